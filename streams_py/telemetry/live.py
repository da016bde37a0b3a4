"""Continues a fold from its saved state. So a *look* (a small micro-batch) costs only its new events, and not a day's.

New events usually follow the processed ones in the order of :mod:`streams_py.telemetry.order`. Then the fold processes
them from its saved state. If an event belongs *before* a processed one, :func:`look` returns None, and the caller must
fold the days from there again.

If the last parts of a rebalance have not arrived, the fold waits for them. They belong to the place of its header, so
events from the header on are not folded finally until the rebalance is complete, or until a minute of the topic's time
has elapsed. In the meantime they are folded provisionally, so no table lacks them.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from streams_py.telemetry.fold import GroupFold, Output
from streams_py.telemetry.order import Key, Record, in_order

_WAIT_FOR_PARTS_MS: Final = 60_000
"""How long, in the topic's time, the fold waits for the missing parts of a rebalance."""
_TAIL_MAX: Final = 2_000
"""Largest number of events that are folded provisionally while parts are missing."""


@dataclass(slots=True)
class Live:
    """The state of a group's tables.

    Attributes:
        batch_id: the last micro-batch that the tables include.
        places: ``topic/partition`` -> largest append time of the group's events.
        fold: snapshot of the fold after the event at ``last``.
        last: key of the last event that is folded finally.
        tail: events from the header of an incomplete rebalance on.
        open_rows: tables and days with rows that are valid until the next look.
        looks: number of looks since the day was built completely.
    """

    batch_id: int = -1
    places: dict[str, int] = field(default_factory=dict)
    fold: str | None = None
    last: Key | None = None
    tail: list[Record] = field(default_factory=list)
    open_rows: list[tuple[str, int]] = field(default_factory=list)
    looks: int = 0

    def to_text(self) -> str:
        """Return the state as JSON."""
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
        """Read the JSON of :meth:`to_text`."""
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
    """The result of a look.

    ``closed`` rows are final. ``open_rows`` are valid until the next look, which replaces all of them. The other fields
    are for :class:`Live`.
    """

    closed: list[Output]
    open_rows: list[Output]
    fold: str
    last: Key | None
    tail: list[Record]


def look(live: Live, new: Iterable[Record]) -> Look | None:
    """Fold new events. Returns None when one of them belongs before events that are folded already."""
    fold = GroupFold(live.fold)
    fresh = [record for record in new if record.rebalance_id is None or not fold.has_finished(record.rebalance_id)]
    placed, without = in_order([*live.tail, *fresh])
    if without or any(record.rebalance_id is not None and fold.has_begun(record.rebalance_id) for record in fresh):
        return None  # parts of a rebalance whose header was already folded without them, or has arrived again
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
    """Return the number of events that can be folded finally: all before a rebalance that may still become complete."""
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
        is_given_up = placed[number][0].place_ms < newest_ms - _WAIT_FOR_PARTS_MS or len(placed) - number > _TAIL_MAX
        if not is_complete and not is_given_up:
            return number
    return len(placed)
