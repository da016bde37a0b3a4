"""What a client knows that its group has committed, beside what the group says when it is asked."""

from __future__ import annotations

from collections.abc import Mapping
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

    def note(self, offsets: Mapping[TopicPartition, int]) -> None:
        """The group has committed these; :data:`NOTHING` is possible."""
        self._offsets.update(offsets)

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
