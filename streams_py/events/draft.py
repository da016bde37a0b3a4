"""An event before it is written: references to what happened, and the conversion to records."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import TypeAlias

from streams_py.events.codec import EventRecord, encode_event
from streams_py.events.model import ClientEvent, Envelope, Event, Eviction, Sample, TaskEvent


class Importance(IntEnum):
    """The importance of an event. When the queue is full, the least important events are dropped first."""

    SAMPLE = 0
    PROGRESS = 1
    TASK = 2
    REBALANCE = 3


class Draft(abc.ABC):
    """An event that is offered to the emitter once, and converted to records on the emitter's thread.

    Objects that it refers to must not change after it was offered. The emitter sets the attributes: the sequence number
    and times when the event is offered, and later the number of its records without a delivery report, and of its
    written records.
    """

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
        """The kind for counters, for example ``rebalance``."""

    @property
    @abc.abstractmethod
    def importance(self) -> Importance:
        """The importance, which determines which events are dropped first."""

    @property
    @abc.abstractmethod
    def bytes_estimate(self) -> int:
        """Estimated memory size in bytes. Must be cheap to compute."""

    @abc.abstractmethod
    def records(self, envelope: Envelope) -> Sequence[EventRecord]:
        """Return the records to send. May be slow and may raise, because only the emitter's thread calls it."""


Emit: TypeAlias = Callable[[Draft], None]
"""Queues a draft. Returns immediately and never raises, as :meth:`~streams_py.events.emitter.Emitter.emit`."""


class BodyDraft(Draft):
    """An event of one record with a complete body."""

    __slots__ = ("_body", "_importance")

    def __init__(self, body: TaskEvent | Sample | ClientEvent | Eviction) -> None:
        self._body = body
        match body:
            case Sample():
                self._importance = Importance.SAMPLE
            case TaskEvent(event="restore_progress"):
                self._importance = Importance.PROGRESS
            case _:
                self._importance = Importance.TASK

    @property
    def body(self) -> TaskEvent | Sample | ClientEvent | Eviction:
        """The event without its envelope."""
        return self._body

    @property
    def kind(self) -> str:
        """The kind of the record."""
        return self._body.KIND

    @property
    def importance(self) -> Importance:
        """The importance: lowest for samples, then restore progress, then other events."""
        return self._importance

    @property
    def bytes_estimate(self) -> int:
        """Estimated size in bytes: a constant, and for samples an addition per task."""
        return 1_000 + 100 * len(self._body.tasks) if isinstance(self._body, Sample) else 1_000

    def records(self, envelope: Envelope) -> Sequence[EventRecord]:
        """Return the event with its envelope as one record."""
        return (encode_event(Event(envelope, self._body)),)
