"""What happened to a group from outside, between two of its recorded rebalances.

An assignor has made the state in which it is asked again: who runs what, which copies are warm, how many rebalances
follow. What it has *not* made is an outside event: instances or threads that came, left or started anew, state that
got lost, copies that fell behind, settings or topics that changed. The difference of two situations tells them apart:

* a client that is there in one of the two only has joined or left; other members under one client are a restart, or
  threads that died or were added;
* a copy that was reported, was to be kept, and is not reported any more is lost;
* a copy that was reported and was to be kept, and is further behind than before by more than
  ``acceptable.recovery.lag``, has fallen behind: copies left to themselves catch up;
* everything else (ends of changelogs, sizes, racks) is carried along, and is no event.

A rebalance without an outside event is a consequence of the one before it. It is not replayed: each candidate has
consequences of its own.
"""

# ruff: noqa: RUF009  # `form` is `dataclasses.field` with one more argument, not a shared default value
from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from streams_protocol import LATEST_OFFSET, UNKNOWN_OFFSET_SUM, DecodeError
from streams_protocol.types import TaskId
from streams_py.backtest.inputs import ReplayClient, ReplayInput, check_input
from streams_py.backtest.situation import ends_of
from streams_py.events.fields import SETTING, TEXT, form, list_of, map_of, read_record, record, refused, write_record
from streams_py.events.model import OffsetSums, SubtopologySlice
from streams_py.system.foreign_json import loads as loads_foreign

__all__ = ["LOST", "SEGMENT_HEAD", "OutsideEvent", "Segment", "is_segment", "outside_event", "read_segment"]

LOST: Final = -1
"""Instead of the records that a copy fell behind by: it is gone."""

_ACCEPTABLE: Final = "acceptable.recovery.lag"
_ACCEPTABLE_DEFAULT: Final = 10_000
_REMEDY: Final = "start the run anew: it makes segments itself"
SEGMENT_HEAD: Final = '{"history":1,'


@dataclass(frozen=True, slots=True)
class OutsideEvent:
    """``gone`` are clients that left. ``came`` are those that joined, or have other members, tags or racks than before,
    as they reported themselves; what they still own is not among it. ``copies`` is empty unless state was lost or fell
    behind; then it has, for each copy that was to be kept, by how many records it fell behind, or ``LOST``."""

    gone: Sequence[str] = form(list_of(TEXT))
    came: Sequence[ReplayClient] = form(list_of(record(ReplayClient)))
    copies: Mapping[str, OffsetSums] = form(map_of(record(OffsetSums)))
    configs: Mapping[str, Any] = form(map_of(SETTING))
    subs: Sequence[SubtopologySlice] = form(list_of(record(SubtopologySlice)))


@dataclass(frozen=True, slots=True)
class Segment:
    """A situation as it was recorded, and the outside events behind it, in order."""

    start: ReplayInput = form(record(ReplayInput))
    events: Sequence[OutsideEvent] = form(list_of(record(OutsideEvent)))

    def canonical(self) -> str:
        """As canonical JSON, which begins unlike that of a situation."""
        text = json.dumps(write_record(self), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return SEGMENT_HEAD + text[1:]


def is_segment(text: str) -> bool:
    """Whether a text is that of a segment, not of a situation."""
    return text.startswith(SEGMENT_HEAD)


def read_segment(text: str) -> Segment:
    """A segment from its JSON. DecodeError when it is none."""
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
    """What happened between two situations of one group; None when the later one follows from the decision alone."""
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
    """By how much each copy that the client had, and was to keep, is further behind."""
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
    if value == LATEST_OFFSET:
        return 0
    return None if UNKNOWN_OFFSET_SUM in (value, end) else max(end - value, 0)
