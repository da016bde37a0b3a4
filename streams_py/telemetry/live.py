"""A fold that goes on where it stood: what a look at the topic costs is the new events, not the day's.

New events are mostly the next ones in the order of :mod:`streams_py.telemetry.order`. Then they are fed to the fold
that is there. If one belongs *before* something that is folded, :func:`look` says so, and the days from there on are to
be folded again from the beginning.

One thing is waited for: a rebalance whose last parts have not come (the look fell in between). Its place is that of its
header, so nothing from there on is folded for good until it is complete, or hope is given up after a minute of the
topic's time. What is behind it is folded provisionally, so no table lacks it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from streams_py.telemetry.fold import GroupFold, Output
from streams_py.telemetry.order import Key, Record, in_order

__all__ = ["Live", "Look", "look"]

_HOPE_MS: Final = 60_000
_TAIL_MAX: Final = 2_000
"""More events than that are not folded twice to wait for a part."""


@dataclass(slots=True)
class Live:
    """Where the tables of a group stand. ``batch_id`` is the micro-batch they have taken in last, ``places`` has the
    largest append time by topic and partition, ``fold`` is a snapshot after the event at ``last``, ``tail`` the events
    from a rebalance on that is not complete, ``open_rows`` the tables and days that have rows which hold until the next
    look, ``looks`` how many there were since the day was built as a whole."""

    batch_id: int = -1
    places: dict[str, int] = field(default_factory=dict)
    fold: str | None = None
    last: Key | None = None
    tail: list[Record] = field(default_factory=list)
    open_rows: list[tuple[str, int]] = field(default_factory=list)
    looks: int = 0

    def to_text(self) -> str:
        """JSON."""
        tail = [[*record[:4], base64.b64encode(record.value).decode(), *record[5:]] for record in self.tail]
        value = {
            "batch_id": self.batch_id,
            "places": self.places,
            "fold": self.fold,
            "last": self.last,
            "tail": tail,
            "open_rows": self.open_rows,
            "looks": self.looks,
        }
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def from_text(cls, text: str) -> Live:
        """What :meth:`to_text` made."""
        value: dict[str, Any] = json.loads(text)
        return cls(
            value["batch_id"],
            value["places"],
            value["fold"],
            None if value["last"] is None else Key(*value["last"]),
            [Record._make([*of[:4], base64.b64decode(of[4]), *of[5:]]) for of in value["tail"]],
            [(table, day) for table, day in value["open_rows"]],
            value["looks"],
        )


class Look(NamedTuple):
    """``closed`` rows stay; ``open_rows`` hold until the next look, which replaces all of them. The rest is for
    :class:`Live`."""

    closed: list[Output]
    open_rows: list[Output]
    fold: str
    last: Key | None
    tail: list[Record]


def look(live: Live, new: Iterable[Record]) -> Look | None:
    """Fold new events; None when one of them belongs before events that are folded already."""
    fold = GroupFold(live.fold)
    fresh = [record for record in new if record.rebalance_id is None or not fold.has_finished(record.rebalance_id)]
    placed, without = in_order([*live.tail, *fresh])
    if without or any(record.rebalance_id is not None and fold.has_begun(record.rebalance_id) for record in fresh):
        return None  # of a rebalance whose header was folded, without effect, before; it may even come again
    if live.last is not None and placed and placed[0][0] <= live.last:
        return None
    until = _safe(placed)
    last = live.last
    closed: list[Output] = []
    for key, record in placed[:until]:
        closed += fold.feed(record.value, key.place_ms, record.append_ms)
        last = key
    snapshot = fold.snapshot()
    provisional = GroupFold(snapshot)
    open_rows: list[Output] = []
    for key, record in placed[until:]:
        open_rows += provisional.feed(record.value, key.place_ms, record.append_ms)
    open_rows += provisional.finish()
    return Look(closed, open_rows, snapshot, last, [record for _, record in placed[until:]])


def _safe(placed: Sequence[tuple[Key, Record]]) -> int:
    """How many events can be folded for good: those before a rebalance that may still become complete."""
    if not placed:
        return 0
    newest_ms = max(record.place_ms for _, record in placed)
    found: dict[str, set[int]] = {}
    first: dict[str, int] = {}
    wanted: dict[str, int] = {}
    for number, (_, record) in enumerate(placed):
        if record.rebalance_id is not None:
            found.setdefault(record.rebalance_id, set()).add(record.part)
            first.setdefault(record.rebalance_id, number)
            wanted.setdefault(record.rebalance_id, record.parts)
    for name, number in sorted(first.items(), key=lambda item: item[1]):
        is_complete = len(found[name]) >= wanted[name]
        hopeless = placed[number][0].place_ms < newest_ms - _HOPE_MS or len(placed) - number > _TAIL_MAX
        if not is_complete and not hopeless:
            return number
    return len(placed)
