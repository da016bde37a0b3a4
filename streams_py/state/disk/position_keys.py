"""The keys of the column family in which a task's database stores changelog positions and other metadata."""

from __future__ import annotations

import struct
from typing import Final, TypeAlias

from streams_protocol.types import TopicPartition

InputEntry: TypeAlias = tuple[int, str]
"""Committed offset of an input partition, and the id of the topic that the offset refers to ("": unknown)."""
_OFFSET: Final = struct.Struct(">q")

TOPICS: Final = b"\1"
"""Lower bound of the keys of positions. All other keys start with a zero byte, which no topic name does."""
LAYOUT: Final = b"\0layout "
"""Key prefix for the layout of a store. The name of the store follows."""
TOPIC_ID: Final = b"\0topic "
"""Key prefix for the id of a topic. The name of the topic follows."""
INPUT: Final = b"\0input "
"""Key prefix for an :data:`InputEntry`. The input partition follows."""


def key_of(partition: TopicPartition) -> bytes:
    """Return the key for the position in a partition."""
    return f"{partition.topic} {partition.partition}".encode()


def partition_in(key: bytes) -> TopicPartition:
    """Return the partition of a key made by :func:`key_of`."""
    topic, partition = key.decode().split(" ")
    return TopicPartition(topic, int(partition))


def written_input(entry: InputEntry) -> bytes:
    """Encode an entry as the value of an :data:`INPUT` key."""
    offset, id = entry
    return _OFFSET.pack(offset) + id.encode()


def read_input(data: bytes) -> InputEntry:
    """Decode a value made by :func:`written_input`."""
    return _OFFSET.unpack_from(data)[0], data[_OFFSET.size :].decode()
