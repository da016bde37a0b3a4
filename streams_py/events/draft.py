"""An event before it is written: what happened, held by reference, and how to make records of it later."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import TypeAlias

from streams_py.events.codec import EventRecord, encode_event
from streams_py.events.model import ClientEvent, Envelope, Event, Sample, TaskEvent

__all__ = ["BodyDraft", "Draft", "Emit", "Importance"]


class Importance(IntEnum):
    """What goes first when there is no room: the least important."""

    SAMPLE = 0
    PROGRESS = 1
    TASK = 2
    REBALANCE = 3


class Draft(abc.ABC):
    """Offered to the emitter once, turned into records on the emitter's thread. Everything it refers to must stay as it
    is from then on. The emitter notes here what becomes of it: number and times when it is offered, and how many of its
    records have no delivery report yet, or were written, while it is under way."""

    __slots__ = ("at_ms", "bytes", "mono_us", "reports_missing", "seq", "written")

    seq: int
    at_ms: int
    mono_us: int
    bytes: int
    reports_missing: int
    written: int

    @property
    @abc.abstractmethod
    def kind(self) -> str:
        """For counters, e.g. ``rebalance``."""

    @property
    @abc.abstractmethod
    def importance(self) -> Importance:
        """What it is dropped for, and what is dropped for it."""

    @property
    @abc.abstractmethod
    def bytes_estimate(self) -> int:
        """About how much memory it holds; must not cost more than a few operations."""

    @abc.abstractmethod
    def records(self, envelope: Envelope) -> Sequence[EventRecord]:
        """The records to send. May take its time, may raise: both concern the emitter's thread only."""


Emit: TypeAlias = Callable[[Draft], None]
"""Takes a draft at once and never raises, as :meth:`~streams_py.events.emitter.Emitter.emit` does."""


class BodyDraft(Draft):
    """An event of one record whose body is ready."""

    __slots__ = ("_body", "_importance")

    def __init__(self, body: TaskEvent | Sample | ClientEvent) -> None:
        self._body = body
        match body:
            case Sample():
                self._importance = Importance.SAMPLE
            case TaskEvent(event="restore_progress"):
                self._importance = Importance.PROGRESS
            case _:
                self._importance = Importance.TASK

    @property
    def body(self) -> TaskEvent | Sample | ClientEvent:
        """The event without its envelope."""
        return self._body

    @property
    def kind(self) -> str:
        """Kind of the record."""
        return self._body.KIND

    @property
    def importance(self) -> Importance:
        """Samples go first, then the progress of restorations."""
        return self._importance

    @property
    def bytes_estimate(self) -> int:
        """A record of a few fields, or of a few numbers for each task."""
        return 1_000 + 100 * len(self._body.tasks) if isinstance(self._body, Sample) else 1_000

    def records(self, envelope: Envelope) -> Sequence[EventRecord]:
        """The event and its envelope as one record's bytes."""
        return (encode_event(Event(envelope, self._body)),)
