"""Finds outside events, and divides a history into segments of them.

Outside events are the changes of a group between two recorded rebalances that the assignor has not caused.

The assignor's own decisions cause most of the next situation: which client runs a task, which copies are warm, how many
rebalances follow. Outside events are instances or threads that joined, left or restarted, state that was lost, copies
that fell behind, and settings or topics that changed. The difference of two situations shows them:

* A client that is only in one of the two situations has joined or left. If a client has other members, it has
  restarted, or threads have died or were added.
* A copy that was reported and was to be kept, and is no longer reported, is lost.
* A copy that was reported and was to be kept, and whose lag has grown by more than ``acceptable.recovery.lag``, has
  fallen behind. Without an outside event, copies catch up.
* Everything else (end offsets of changelogs, sizes, racks) is updated, but is not an event.

A rebalance without an outside event is a consequence of the previous one. It is not replayed, because each candidate
has its own consequences.

Segments can be replayed independently of each other, on any number of cores. A segment has ``SITUATIONS`` recorded
situations of a group. It starts with the first one as recorded. Events between the last situation of a segment and the
first one of the next segment are not replayed. The division depends only on the history, so every engine creates the
same segments.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from streams_protocol import LATEST_OFFSET, DecodeError
from streams_protocol.types import TaskId
from streams_py.assignment.problem import reported_lag
from streams_py.backtest.inputs import ReplayClient, ReplayInput, check_input, read_input
from streams_py.backtest.situation import ends_of
from streams_py.events.fields import SETTING, TEXT, form, list_of, map_of, read_record, record, refused, write_record
from streams_py.events.model import OffsetSums, SubtopologySlice
from streams_py.system.foreign_json import loads as loads_foreign

# ruff: noqa: RUF009  # `form` is `dataclasses.field` with one more argument, not a shared default value


LOST: Final = -1
"""Marks a lost copy, in place of the number of records by which a copy fell behind."""

_ACCEPTABLE: Final = "acceptable.recovery.lag"
_ACCEPTABLE_DEFAULT: Final = 10_000
_REMEDY: Final = "start the run again: it creates the segments itself"
SEGMENT_HEAD: Final = '{"history":1,'


@dataclass(frozen=True, slots=True)
class OutsideEvent:
    """An outside event.

    Attributes:
        gone: clients that left.
        came: clients that joined, or that have other members, tags or racks than before, as they reported themselves
            (without owned tasks).
        copies: empty unless state was lost or fell behind. Then it has, for each copy that was to be kept, the number
            of records by which it fell behind, or ``LOST``.
        configs: settings after the event.
        subs: sub-topologies after the event.
    """

    gone: Sequence[str] = form(list_of(TEXT))
    came: Sequence[ReplayClient] = form(list_of(record(ReplayClient)))
    copies: Mapping[str, OffsetSums] = form(map_of(record(OffsetSums)))
    configs: Mapping[str, Any] = form(map_of(SETTING))
    subs: Sequence[SubtopologySlice] = form(list_of(record(SubtopologySlice)))


@dataclass(frozen=True, slots=True)
class Segment:
    """A recorded situation, and the outside events after it, in order."""

    start: ReplayInput = form(record(ReplayInput))
    events: Sequence[OutsideEvent] = form(list_of(record(OutsideEvent)))

    def canonical(self) -> str:
        """Return canonical JSON. Its beginning differs from the JSON of a situation."""
        text = json.dumps(write_record(self), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return SEGMENT_HEAD + text[1:]


def is_segment(text: str) -> bool:
    """Whether a text is a segment and not a situation."""
    return text.startswith(SEGMENT_HEAD)


def read_segment(text: str) -> Segment:
    """Read a segment from its JSON. Raises DecodeError when it is not valid."""
    try:
        value = loads_foreign(text)
    except ValueError as error:
        raise DecodeError(f"a segment of a history is not JSON ({error})", offset=0, remedy=_REMEDY) from None
    segment = read_record(Segment, value, "history")
    check_input(segment.start)
    for event in segment.events:
        check_input(replace(segment.start, subs=event.subs))
        for client in event.came:
            check_input(replace(segment.start, subs=event.subs, clients=[client]))
        for name, of in event.copies.items():
            if len(of.tasks) != len(of.v):
                raise refused(f"history.events.copies.{name}", len(of.v), "one number for each task")
    return segment


def outside_event(before: ReplayInput, after: ReplayInput) -> OutsideEvent | None:
    """Find the event between two situations of a group; None when the decision alone explains the later one."""
    had = {client.client: client for client in before.clients}
    has = {client.client for client in after.clients}
    gone = sorted(had.keys() - has)
    came = [_arrived(client) for client in after.clients if _is_new(had.get(client.client), client)]
    copies = _copies(before, after)
    is_changed = dict(before.configs) != dict(after.configs) or _shape(before) != _shape(after)
    if not (gone or came or copies or is_changed):
        return None
    return OutsideEvent(gone, came, copies, after.configs, after.subs)


def _is_new(before: ReplayClient | None, client: ReplayClient) -> bool:
    if before is None:
        return True
    members = {consumer.member for consumer in client.consumers}
    return (
        members != {consumer.member for consumer in before.consumers}
        or dict(client.tags) != dict(before.tags)
        or client.rack != before.rack
    )


def _arrived(client: ReplayClient) -> ReplayClient:
    return replace(client, consumers=[replace(consumer, owned=()) for consumer in client.consumers], prev_active=())


def _shape(of: ReplayInput) -> list[tuple[object, ...]]:
    return [
        (piece.sub, piece.first, piece.count, piece.logged, tuple(piece.sources), tuple(piece.changelogs))
        for piece in of.subs
    ]


def _copies(before: ReplayInput, after: ReplayInput) -> dict[str, OffsetSums]:
    found: dict[str, OffsetSums] = {}
    is_worth_it = False
    given = after.configs.get(_ACCEPTABLE)
    acceptable = given if isinstance(given, int) else _ACCEPTABLE_DEFAULT
    now = {client.client: client for client in after.clients}
    for client in before.clients:
        if client.client in now:
            grown = dict(_grown(client, now[client.client], before, after))
            if grown:
                tasks = sorted(grown)
                found[client.client] = OffsetSums(tasks, [grown[task] for task in tasks])
                is_worth_it |= any(by == LOST or by > acceptable for by in grown.values())
    return found if is_worth_it else {}


def _grown(
    client: ReplayClient, now: ReplayClient, before: ReplayInput, after: ReplayInput
) -> Iterator[tuple[TaskId, int]]:
    """Yield the growth of the lag of each copy that the client had and was to keep."""
    given = before.decision.clients.get(client.client) if before.decision is not None else None
    if given is None:
        return
    kept = {*given.active, *given.standby, *given.warmup}
    ends_before, ends = ends_of(before.subs), ends_of(after.subs)
    reported = dict(zip(now.sums.tasks, now.sums.v, strict=True))
    for task, value in zip(client.sums.tasks, client.sums.v, strict=True):
        if task not in kept or task not in ends or task not in ends_before:
            continue
        if task not in reported:
            yield task, LOST
            continue
        behind = _lag(reported[task], ends[task])
        if behind is not None and reported[task] != LATEST_OFFSET:
            yield task, max(behind - (_lag(value, ends_before[task]) or 0), 0)


def _lag(value: int, end: int) -> int | None:
    lag = reported_lag(value, end)
    return 0 if lag == LATEST_OFFSET else lag


SITUATIONS: Final = 128


class Segments:
    """Creates segments from the situations of one group, in their order.

    It keeps one situation and the events of one segment in memory.
    """

    def __init__(self) -> None:
        self._number = 0
        self._start: ReplayInput | None = None
        self._last: ReplayInput | None = None
        self._events: list[OutsideEvent] = []

    def add(self, text: str) -> Iterator[str]:
        """Add a situation. Yields the segment that ends before it, if any, and if it has events."""
        number = self._number
        self._number += 1
        if number % SITUATIONS == 0:
            yield from self.finish()
        try:
            situation = read_input(text)
        except DecodeError:
            return  # the kernel reports it
        if not situation.lag_ok:
            return  # its lags are unknown; the next situation still shows which clients joined or left
        if self._start is None or self._last is None:
            self._start = self._last = situation
            return
        event = outside_event(self._last, situation)
        self._last = situation
        if event is not None:
            self._events.append(event)

    def finish(self) -> Iterator[str]:
        """Yield the current segment, if it has events."""
        if self._start is not None and self._events:
            yield Segment(self._start, tuple(self._events)).canonical()
        self._start = self._last = None
        self._events = []
