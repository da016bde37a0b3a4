"""The stores of one task while their changelogs are replayed, and what is known about these changelogs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from streams_protocol.types import TaskId, TopicPartition
from streams_py.errors import StateError
from streams_py.ports import RawRecord, SortedPart
from streams_py.state.tasks.interface import TaskStores


class _Replay(Protocol):
    """Converts the records of a source topic into the records that the store would have."""

    def replayed(self, records: Sequence[RawRecord]) -> Sequence[RawRecord]: ...


class RestoringStores:
    """The stores of one task, as the state updater uses them.

    Args:
        id: The task.
        stores: Its stores.
        is_active: Whether the task will process records. The stores of active tasks are restored in bulk.
        input_partitions: Its input partitions.
        expiring: Names of the stores for whose changelogs :meth:`expires` is True.
        replays: Source topic that is a changelog -> conversion of its records, if one is needed.
    """

    def __init__(
        self,
        id: TaskId,
        stores: TaskStores,
        *,
        is_active: bool,
        input_partitions: frozenset[TopicPartition],
        expiring: Collection[str],
        replays: Mapping[str, _Replay],
    ) -> None:
        self.id = id
        self.is_active = is_active
        self.input_partitions = input_partitions
        self.reached: dict[TopicPartition, int] = {}
        """Next offset of changelogs whose records below it are all in the stores."""
        self.never_written: set[TopicPartition] = set()
        """Changelogs that had no records when the task was restored."""
        self.replayed_records = 0
        """Number of changelog records replayed into these stores."""
        self._stores = stores
        self._expiring = expiring
        self._replays = replays
        self._limits: dict[TopicPartition, int] = {}

    # -- changelogs ---------------------------------------------------------------------------------------------------

    @property
    def changelog_partitions(self) -> frozenset[TopicPartition]:
        """All changelog partitions of the stores."""
        return self._stores.changelog_partitions

    @property
    def source_changelogs(self) -> frozenset[TopicPartition]:
        """Changelogs that are source topics."""
        return self._stores.source_changelogs

    def store_of(self, changelog: TopicPartition) -> str:
        """Return the name of the store that a changelog belongs to."""
        return self._stores.store_of(changelog)

    def expires(self, changelog: TopicPartition) -> bool:
        """Whether the topic's retention may delete the beginning of this changelog.

        That is so if its store expires records, or if others write to the topic.
        """
        return self.store_of(changelog) in self._expiring

    def is_of(self, changelog: TopicPartition, topic_id: str | None) -> bool:
        """Whether the position in this changelog belongs to this topic, not to a former topic of the same name."""
        return self._stores.is_of(changelog, topic_id)

    def restore_position(self, changelog: TopicPartition) -> int:
        """Return the next offset to replay, or BEGINNING."""
        return self._stores.restore_position(changelog)

    def note_never_written(self, changelog: TopicPartition) -> None:
        """Note that this changelog ends at offset 0, so its store starts empty."""
        self.never_written.add(changelog)

    def note_limit(self, changelog: TopicPartition, committed: int) -> None:
        """Note that a source topic was only read up to the group's committed offset, which is ``committed``."""
        self._limits[changelog] = committed

    def note_position(self, changelog: TopicPartition, position: int) -> None:
        """Note that the stores contain all records of this changelog below ``position``.

        The position may be after transaction markers and deleted records.
        """
        self.reached[changelog] = position

    def is_behind(self, partition: TopicPartition, committed: int) -> bool:
        """Whether a source topic was not read up to the group's committed offset, so that its table has a gap."""
        return committed > self._limits.get(partition, committed)

    # -- replaying ----------------------------------------------------------------------------------------------------

    def restore(self, changelog: TopicPartition, records: Sequence[RawRecord]) -> None:
        """Apply records of a changelog, in offset order.

        Raises:
            BrokerUnavailableError: A serde needs a service that is unavailable. No record was applied.
        """
        if (replay := self._replays.get(changelog.topic)) is None:
            self._stores.restore(changelog, records, in_bulk=self.is_active)
        else:
            last = records[-1].offset()
            self._stores.restore(changelog, replay.replayed(records), in_bulk=self.is_active, last=last)
        self.replayed_records += len(records)

    def sorted_files(self, changelog: TopicPartition) -> tuple[str, bool] | None:
        """Return the directory for :meth:`take_in`'s files and whether values are stamped.

        None if the store does not support such files, or if processing stores other bytes than the changelog has.
        """
        return None if changelog.topic in self._replays else self._stores.sorted_files(changelog)

    def take_in(self, changelog: TopicPartition, part: SortedPart) -> None:
        """Add the contents of sorted files. All records before them must be restored and flushed.

        If ``part.last`` is None, the position in the changelog does not change.
        """
        self._stores.take_in(changelog, part)
        self.replayed_records += part.records

    @property
    def awaits_disk(self) -> bool:
        """Whether the restoration must pause until the disk has caught up."""
        return self._stores.awaits_disk

    @property
    def damage(self) -> StateError | None:
        """The first error of any thread that reported damaged files of the stores."""
        return self._stores.damage

    def flush_restored(self) -> bool:
        """Flush restored records to disk. Call it until it returns True. Thread-safe."""
        return self._stores.flush_restored()

    def end_loading(self) -> None:
        """Finish the restoration and open the stores for work; this may take a moment."""
        self._stores.end_loading()

    def checkpoint(self, *, enforce: bool) -> None:
        """Write the checkpoint file if enforced, or if positions have moved far enough."""
        self._stores.checkpoint(enforce=enforce)
