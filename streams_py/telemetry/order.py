"""The order that events are folded in: that of the topic, never that of a clock.

Within a partition the offset decides. Between partitions the *place* of a record does: the largest append time of its
group in the partition so far. It goes with the time and never back, whatever a broker's clock does, or the clocks of
producers where a topic has CreateTime. All parts of a rebalance are folded at the place of its header; without a header
they are not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["Key", "Record", "in_order"]


class Record(NamedTuple):
    """A readable event of the group. ``place_ms`` is the group's largest append time in the partition up to it;
    ``rebalance_id``, ``part`` and ``parts`` are those of a part of a rebalance, part 0 being its header."""

    place_ms: int
    partition: int
    offset: int
    append_ms: int
    value: bytes
    rebalance_id: str | None = None
    part: int = 0
    parts: int = 1


class Key(NamedTuple):
    """What is sorted by: the place (of the header), the part, then where the record itself is."""

    place_ms: int
    place_partition: int
    place_offset: int
    part: int
    partition: int
    offset: int


def in_order(records: Iterable[Record]) -> tuple[list[tuple[Key, Record]], list[Record]]:
    """(records by key, parts whose header is not among them)."""
    given = sorted(records)
    headers: dict[str, Record] = {}
    for record in given:
        if record.rebalance_id is not None and record.part == 0:
            headers.setdefault(record.rebalance_id, record)
    placed: list[tuple[Key, Record]] = []
    without: list[Record] = []
    for record in given:
        place = record if record.rebalance_id is None else headers.get(record.rebalance_id)
        if place is None:
            without.append(record)
        else:
            where = Key(place.place_ms, place.partition, place.offset, record.part, record.partition, record.offset)
            placed.append((where, record))
    return sorted(placed, key=lambda of: of[0]), without
