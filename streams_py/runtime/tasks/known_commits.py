"""What a client knows that its group has committed, beside what the group says when it is asked."""

from __future__ import annotations

from collections.abc import Mapping

from streams_protocol.types import TopicPartition

__all__ = ["KnownCommits"]


class KnownCommits:
    """For each input partition the offset that a member of this client has committed last, or was told last. Shared by
    its stream threads; thread-safe."""

    def __init__(self) -> None:
        self._offsets: dict[TopicPartition, int] = {}

    def note(self, offsets: Mapping[TopicPartition, int]) -> None:
        """The group has committed these."""
        self._offsets.update(offsets)

    def forget(self, partition: TopicPartition) -> None:
        """It is believed that nothing is committed there."""
        self._offsets.pop(partition, None)

    def at_least(self, partition: TopicPartition) -> int:
        """The group's committed offset is not below this one, unless somebody has reset it; 0: nothing is known."""
        return self._offsets.get(partition, 0)
