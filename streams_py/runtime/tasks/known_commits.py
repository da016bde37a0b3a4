"""What a client knows that its group has committed, beside what the group says when it is asked."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from streams_protocol.types import TopicPartition

__all__ = ["NOTHING", "KnownCommits"]

NOTHING: Final = -1
"""Instead of an offset: none is committed."""


class KnownCommits:
    """For each input partition the offset that a member of this client has committed last, or was told last. Shared by
    its stream threads; thread-safe."""

    def __init__(self) -> None:
        self._offsets: dict[TopicPartition, int] = {}
        self._settled: dict[TopicPartition, int] = {}
        self._ids: dict[TopicPartition, str] = {}

    def note(self, offsets: Mapping[TopicPartition, int], topic_ids: Mapping[str, str] = MappingProxyType({})) -> None:
        """The group has committed these; :data:`NOTHING` is possible.

        ``topic_ids``: ids of the topics that a member of this client was reading. A committed offset that the group
        reports may be an offset in another topic.
        """
        for partition, offset in offsets.items():
            if partition.topic in topic_ids:
                self._ids[partition] = topic_ids[partition.topic]
            elif self._offsets.get(partition) != offset:
                self._ids.pop(partition, None)
        self._offsets.update(offsets)

    def topic_id(self, partition: TopicPartition) -> str | None:
        """Id of the topic that the known offset is an offset in; None when that is not known."""
        return self._ids.get(partition)

    def at_least(self, partition: TopicPartition) -> int | None:
        """The group's committed offset is not below this one, unless somebody has reset it. :data:`NOTHING` when there
        was none the last time that somebody knew; None when nothing is known."""
        return self._offsets.get(partition)

    def settle(self, offsets: Mapping[TopicPartition, int]) -> None:
        """These are what the group has committed, although the state on disk was made of more."""
        self._settled.update(offsets)

    def is_settled(self, partition: TopicPartition, offset: int) -> bool:
        """True when the state on disk is nothing against this offset any more."""
        return self._settled.get(partition) == offset
