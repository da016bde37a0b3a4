"""Committed offsets that a client knows about, independent of the group's answers."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from streams_protocol.types import TopicPartition

NOTHING: Final = -1
"""Stands for an offset: the group has no committed offset."""


class KnownCommits:
    """The last known committed offset of each input partition: committed or read by a member of this client.

    The stream threads of the client share it. Thread-safe.
    """

    def __init__(self) -> None:
        self._offsets: dict[TopicPartition, int] = {}
        self._settled: dict[TopicPartition, int] = {}
        self._ids: dict[TopicPartition, str] = {}

    def note(self, offsets: Mapping[TopicPartition, int], topic_ids: Mapping[str, str] = MappingProxyType({})) -> None:
        """Note the group's committed offsets; an offset may be :data:`NOTHING`.

        Args:
            topic_ids: Ids of the topics that a member of this client was reading. Without an id, an offset that the
                group reports may belong to another topic of that name.
        """
        for partition, offset in offsets.items():
            if partition.topic in topic_ids:
                self._ids[partition] = topic_ids[partition.topic]
            elif self._offsets.get(partition) != offset:
                self._ids.pop(partition, None)
        self._offsets.update(offsets)

    def topic_id(self, partition: TopicPartition) -> str | None:
        """Return the id of the topic that the known offset belongs to; None if it is not known."""
        return self._ids.get(partition)

    def at_least(self, partition: TopicPartition) -> int | None:
        """Return the last known committed offset: the group's is not lower unless it was reset.

        :data:`NOTHING` means that the group had no committed offset; None that nothing is known.
        """
        return self._offsets.get(partition)

    def settle(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Accept these committed offsets, although the state on disk contains later records."""
        self._settled.update(offsets)

    def is_settled(self, partition: TopicPartition, offset: int) -> bool:
        """Whether this offset was accepted although the state on disk contains later records."""
        return self._settled.get(partition) == offset
