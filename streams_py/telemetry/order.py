"""The order in which events are folded: the order of the topic, and not of a clock.

Within a partition, the offset decides. Between partitions, the *place* of a record decides: the largest append time of
its group in the partition so far. It never decreases, even if the clock of a broker goes back (or the clocks of
producers, for a topic with CreateTime). All parts of a rebalance are folded at the place of its header. Parts without a
header are not folded.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Record(NamedTuple):
    """A valid event of the group.

    ``place_ms`` is the group's largest append time in the partition so far. ``rebalance_id``, ``part`` and ``parts``
    identify a part of a rebalance; part 0 is its header.
    """

    place_ms: int
    partition: int
    offset: int
    append_ms: int
    value: bytes
    rebalance_id: str | None = None
    part: int = 0
    parts: int = 1


class Key(NamedTuple):
    """The sort key: the place of the record or of its header, the part, and the position of the record."""

    place_ms: int
    place_partition: int
    place_offset: int
    part: int
    partition: int
    offset: int


def in_order(records: Iterable[Record]) -> tuple[list[tuple[Key, Record]], list[Record]]:
    """Return the records sorted by key, and the parts whose header is missing."""
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
