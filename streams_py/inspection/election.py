"""The leader and the generation of a group.

The response to DescribeGroups contains neither. The group's coordinator writes both to ``__consumer_offsets`` at the
end of each rebalance. They are available to users with READ on that topic, and optional for a view. Source: Kafka's
``GroupMetadataKey`` and ``GroupMetadataValue``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from streams_protocol import DecodeError
from streams_protocol.buffer import Reader
from streams_py.assignment.java_order import string_hash

OFFSETS_TOPIC: Final = "__consumer_offsets"

_KEY_OF_GROUP: Final = 2
_NEWEST_VALUE: Final = 3  # 4 would be the first flexible version; no release of Kafka has written it


@dataclass(frozen=True, slots=True)
class Election:
    """The leader of a generation, and the end of its rebalance (epoch ms).

    Unrecorded values are None.
    """

    generation: int
    leader: str | None
    ended_ms: int | None


def offsets_partition(group: str, partitions: int) -> int:
    """Return the partition of ``__consumer_offsets`` that contains the group's records."""
    unsigned = string_hash(group)
    distance = min(unsigned, 2**32 - unsigned)  # the absolute value of Java's signed hash
    return distance % 2**31 % partitions  # Kafka's Utils.abs returns 0 for the smallest integer


def decode_election(key: bytes | None, value: bytes | None, group: str) -> Election | None:
    """Return the election in a record of ``__consumer_offsets``, or None for any other bytes."""
    if key is None or value is None:
        return None
    try:
        reader = Reader(key, "GroupMetadataKey")
        if reader.int16("version") != _KEY_OF_GROUP or reader.string("group") != group:
            return None
        reader = Reader(value, "GroupMetadataValue")
        version = reader.int16("version")
        if not 0 <= version <= _NEWEST_VALUE:
            return None
        reader.string("protocolType")
        generation = reader.int32("generation")
        reader.nullable_string("protocol")
        leader = reader.nullable_string("leader")
        ended = reader.int64("currentStateTimestamp") if version >= 2 else -1
    except DecodeError:
        return None
    return Election(generation, leader, ended if ended >= 0 else None)
