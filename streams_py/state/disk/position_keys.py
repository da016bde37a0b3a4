"""Under which keys a task's database notes positions, and what else it has to know beside its stores."""

from __future__ import annotations

import struct
from typing import Final, TypeAlias

from streams_protocol.types import TopicPartition

__all__ = [
    "INPUT",
    "LAYOUT",
    "TOPICS",
    "TOPIC_ID",
    "InputEntry",
    "key_of",
    "partition_in",
    "read_input",
    "written_input",
]

InputEntry: TypeAlias = tuple[int, str]
"""Committed offset of an input partition, and the id of the topic that it is an offset in ("": not known)."""
_OFFSET: Final = struct.Struct(">q")

TOPICS: Final = b"\1"
"""Keys of positions begin here: what else the family has begins with a zero, as no topic does."""
LAYOUT: Final = b"\0layout "
"""Before the name of a store."""
TOPIC_ID: Final = b"\0topic "
"""Before the name of a topic."""
INPUT: Final = b"\0input "
"""Before a partition that the task reads."""


def key_of(partition: TopicPartition) -> bytes:
    """The key of the position in a partition."""
    return f"{partition.topic} {partition.partition}".encode()


def partition_in(key: bytes) -> TopicPartition:
    """The partition that such a key is of."""
    topic, partition = key.decode().split(" ")
    return TopicPartition(topic, int(partition))


def written_input(entry: InputEntry) -> bytes:
    """The value below such a key with :data:`INPUT`."""
    offset, id = entry
    return _OFFSET.pack(offset) + id.encode()


def read_input(data: bytes) -> InputEntry:
    """The entry that such a value is."""
    return _OFFSET.unpack_from(data)[0], data[_OFFSET.size :].decode()
