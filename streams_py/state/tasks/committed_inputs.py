"""The input offsets that the group had committed when the state on this disk was committed."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from streams_protocol.types import TopicPartition

if TYPE_CHECKING:
    from streams_py.state.disk.database import TaskDatabase


class CommittedInputs:
    """The committed offsets of input partitions, and the ids of the topics that the offsets refer to."""

    def __init__(self) -> None:
        self.offsets: dict[TopicPartition, int] = {}
        self._ids: dict[TopicPartition, str] = {}
        self.topic_ids: Mapping[str, str] = MappingProxyType({})
        """Ids of the topics that the task reads now, as far as known. Offsets of later commits refer to them."""

    def use(self, database: TaskDatabase | None) -> None:
        """Load the offsets from a database. None: nothing is known."""
        known = {} if database is None else database.inputs()
        self.offsets = {partition: offset for partition, (offset, _) in known.items()}
        self._ids = {partition: id for partition, (_, id) in known.items() if id}
        self.topic_ids = MappingProxyType({})

    def id_of(self, partition: TopicPartition) -> str | None:
        """Return the id of the topic that the offset of a partition refers to; None if it was not stored."""
        return self._ids.get(partition)

    def changed(self, inputs: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, str]]:
        """Return the database entries for inputs whose offset or topic has changed."""
        entries = {partition: (offset, self.topic_ids.get(partition.topic, "")) for partition, offset in inputs.items()}
        return {at: entry for at, entry in entries.items() if entry != (self.offsets.get(at), self._ids.get(at, ""))}

    def note(self, entries: Mapping[TopicPartition, tuple[int, str]]) -> None:
        """Note entries that were written to the database."""
        for partition, (offset, id) in entries.items():
            self.offsets[partition] = offset
            self._ids.pop(partition, None)
            if id:
                self._ids[partition] = id
