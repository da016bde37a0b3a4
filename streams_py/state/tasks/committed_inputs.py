"""What the group had committed for a task's inputs when the state on this disk was committed."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from streams_protocol.types import TopicPartition

if TYPE_CHECKING:
    from streams_py.state.disk.database import TaskDatabase

__all__ = ["CommittedInputs"]


class CommittedInputs:
    """Offsets of input partitions, and the ids of the topics that they are offsets in."""

    def __init__(self) -> None:
        self.offsets: dict[TopicPartition, int] = {}
        self._ids: dict[TopicPartition, str] = {}
        self.topic_ids: Mapping[str, str] = MappingProxyType({})
        """Ids of the topics that the task reads now, where known: offsets of later commits are offsets in these."""

    def use(self, database: TaskDatabase | None) -> None:
        """Read what the database has; None: nothing is known."""
        known = {} if database is None else database.inputs()
        self.offsets = {partition: offset for partition, (offset, _) in known.items()}
        self._ids = {partition: id for partition, (_, id) in known.items() if id}
        self.topic_ids = MappingProxyType({})

    def id_of(self, partition: TopicPartition) -> str | None:
        """Id of the topic that the offset of a partition is an offset in; None when that was not noted."""
        return self._ids.get(partition)

    def news(self, inputs: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, str]]:
        """The entries that differ from what is known, for the database."""
        entries = {partition: (offset, self.topic_ids.get(partition.topic, "")) for partition, offset in inputs.items()}
        return {at: entry for at, entry in entries.items() if entry != (self.offsets.get(at), self._ids.get(at, ""))}

    def note(self, entries: Mapping[TopicPartition, tuple[int, str]]) -> None:
        """The database has these entries now."""
        for partition, (offset, id) in entries.items():
            self.offsets[partition] = offset
            self._ids.pop(partition, None)
            if id:
                self._ids[partition] = id
