"""Common parts of active and standby tasks: their life cycle and their stores.

A task is created, opens its stores and replays their changelogs (RESTORING), works (RUNNING), pauses with open stores
(SUSPENDED), and ends (CLOSED). A task that lost its state is closed and *revived*: the same object starts again. A task
that changes between active and standby is *recycled*: the open stores move to a new object. Corresponds to Kafka
Streams' ``Task``, ``AbstractTask`` and ``ProcessorStateManager``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, ClassVar, Final, Protocol

from streams_protocol.types import TaskId, TopicPartition
from streams_py.errors import IllegalStateError, StateError
from streams_py.ports import RawRecord, SortedPart
from streams_py.runtime.tasks.latency import Latency
from streams_py.runtime.tasks.record.binding import Node
from streams_py.runtime.tasks.record.collector import ChangelogWriter
from streams_py.runtime.tasks.record.source_replay import task_replays
from streams_py.runtime.tasks.settings.task_settings import TaskSettings
from streams_py.state.tasks.committed_inputs import CommittedInputs
from streams_py.topology.declare.nodes import RecordContext
from streams_py.topology.declare.stores import StoreBuilder

__all__ = ["Task", "TaskNodes", "TaskPhase", "TaskStores"]

_log = logging.getLogger(__name__)


class TaskPhase(Enum):
    """State of a task (Kafka Streams' ``Task.State``)."""

    CREATED = "CREATED"
    RESTORING = "RESTORING"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    CLOSED = "CLOSED"


_NEXT: Final = {
    TaskPhase.CREATED: {TaskPhase.RESTORING, TaskPhase.SUSPENDED},
    TaskPhase.RESTORING: {TaskPhase.RUNNING, TaskPhase.SUSPENDED},
    TaskPhase.RUNNING: {TaskPhase.SUSPENDED},
    TaskPhase.SUSPENDED: {TaskPhase.RESTORING, TaskPhase.CLOSED},
    TaskPhase.CLOSED: {TaskPhase.CREATED},
}


class TaskNodes(Protocol):
    """The part of a topology that a task runs, e.g. a ``Subtopology``. ``nodes`` has parents before children."""

    @property
    def nodes(self) -> Sequence[Node]: ...
    @property
    def stores(self) -> Sequence[StoreBuilder]: ...
    @property
    def is_global(self) -> bool:
        """Whether it feeds a global store, and so has no tasks."""


class TaskStores(Protocol):
    """A task's stores and their changelog positions."""

    @property
    def is_open(self) -> bool: ...
    @property
    def changelog_partitions(self) -> frozenset[TopicPartition]: ...
    @property
    def source_changelogs(self) -> frozenset[TopicPartition]:
        """Changelogs that are source topics."""

    @property
    def changelog_offsets(self) -> Mapping[TopicPartition, int]:
        """Offset of the last record in each store, by changelog. Changelogs without a known offset are missing."""

    def open(self) -> None:
        """Lock the task's directory, open the stores, and read their positions. LockError if it is locked."""

    def attach(self, record: RecordContext, changelog_writer: Callable[[str, int], ChangelogWriter] | None) -> None:
        """Set record context and changelog writers of the stores. None: the stores don't write (standby)."""

    def store(self, name: str) -> Any:
        """Return an open store."""

    def is_of(self, changelog: TopicPartition, topic_id: str | None) -> bool:
        """Whether the position in this changelog belongs to this topic, not to a former topic of the same name."""

    def changelog_replaced(self, changelog: TopicPartition, topic_id: str, acked: int | None) -> None:
        """Note the new id of a changelog of a running task. ``acked``: offset of the last acknowledged write."""

    def restore_position(self, changelog: TopicPartition) -> int: ...
    def restore(
        self, changelog: TopicPartition, records: Sequence[RawRecord], *, in_bulk: bool = False, last: int | None = None
    ) -> None:
        """Apply records of a changelog, in offset order.

        Args:
            in_bulk: Whether the records need not be on disk before :meth:`flush_restored`.
            last: Offset of the last record that was read, if that record is not among the records here.
        """

    def sorted_files(self, changelog: TopicPartition) -> tuple[str, bool] | None:
        """Return the directory for :meth:`take_in`'s files and whether values are stamped; None if not supported."""

    def take_in(self, changelog: TopicPartition, part: SortedPart) -> None:
        """Add the contents of sorted files, which follow all records that were restored so far."""

    @property
    def awaits_disk(self) -> bool:
        """Whether bulk restoration must pause until the disk has caught up."""

    def flush_restored(self) -> bool:
        """Flush bulk-restored records to disk. Call it until it returns True. Thread-safe."""

    def end_loading(self) -> None:
        """Finish the restoration: open the stores for reading and writing."""

    def store_of(self, changelog: TopicPartition) -> str: ...
    def flush_caches(self, order: Iterable[str]) -> None:
        """Write and forward the record caches of these stores until no entry is dirty."""

    def clear_caches(self) -> None: ...
    def update_offsets(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Set newer last offsets of changelogs, which were acknowledged to the producer."""

    @property
    def uncommitted_bytes(self) -> int:
        """Approximate number of bytes in memory that wait for the next commit."""

    def store_figures(self, seconds: float) -> Iterable[tuple[str, str, Mapping[str, float]]]:
        """Return Kafka's tag, name and metrics of each open store. Thread-safe."""

    def cache_figures(self) -> Iterable[tuple[str, float, Mapping[str, float]]]:
        """Return name, cached bytes and Kafka's hit-ratio metrics of each measured cache. Thread-safe."""

    @property
    def inputs(self) -> CommittedInputs:
        """The group's committed input offsets that belong to the state on disk, if known."""

    def commit(self, inputs: Mapping[TopicPartition, int]) -> None:
        """Make the writes and changelog offsets the committed state, together with these committed input offsets."""

    def roll_back(self) -> None:
        """Drop the writes since the last commit."""

    def note_damage(self, error: StateError) -> bool:
        """Whether this error reports damaged files of these stores. If so, :meth:`close` moves the files aside."""

    def forget(self, changelogs: Collection[TopicPartition]) -> None:
        """Restore these changelogs from the beginning the next time the task opens."""

    def checkpoint(self, *, enforce: bool) -> None:
        """Write the checkpoint file if enforced, or if positions have moved far enough since the last one."""

    def close_files_aside(self) -> bool:
        """Do the slow part of :meth:`close` on a background thread.

        Call it until it returns True or raises the error of the background thread.
        """

    def close(self, *, wipe: bool = False) -> None:
        """Close the stores and unlock the directory. ``wipe``: delete all files of the task."""


class Task:
    """Base of both kinds of task. The ``stores`` of a recycled task are already open."""

    is_active: ClassVar[bool]

    def __init__(
        self,
        id: TaskId,
        nodes: TaskNodes,
        input_partitions: Collection[TopicPartition],
        stores: TaskStores,
        settings: TaskSettings,
    ) -> None:
        self.id = id
        self.nodes = nodes
        self.input_partitions = frozenset(input_partitions)
        self.stores = stores
        self._phase = TaskPhase.CREATED
        self._limits: dict[TopicPartition, int] = {}
        self._reached: dict[TopicPartition, int] = {}
        self._replays = task_replays(id, nodes.nodes, nodes.stores, settings)
        self.never_written: set[TopicPartition] = set()
        """Changelogs that had no records when the task was restored."""
        self.topic_ids: dict[str, str] = {}
        """Ids of the topics that the input positions belong to, if known."""
        self.process_latency = Latency()
        self.punctuate_latency = Latency()
        self.replayed_records = 0
        """Number of changelog records replayed as this kind of task."""

    # -- observation ------------------------------------------------------------------------------------

    @property
    def state(self) -> TaskPhase:
        """The state of the task."""
        return self._phase

    @property
    def changelog_partitions(self) -> frozenset[TopicPartition]:
        """All changelog partitions of the stores."""
        return self.stores.changelog_partitions

    @property
    def source_changelogs(self) -> frozenset[TopicPartition]:
        """Changelogs that are source topics."""
        return self.stores.source_changelogs

    @property
    def changelog_offsets(self) -> Mapping[TopicPartition, int]:
        """Offset of the last changelog record in each store, if known."""
        return self.stores.changelog_offsets

    @property
    def changelog_positions(self) -> dict[TopicPartition, int]:
        """Next changelog offset that the stores don't contain, if known.

        It follows the last record in a store. While the task restores or is a standby, it also follows the transaction
        markers and deleted records after that record.
        """
        offsets, reached = self.changelog_offsets, dict(self._reached)  # a copy: the state updater may write to it
        return {at: max(offsets.get(at, -1) + 1, reached.get(at, 0)) for at in offsets.keys() | reached.keys()}

    @property
    def uncommitted_bytes(self) -> int:
        """Approximate number of bytes that the stores on disk hold in memory for the next commit."""
        return self.stores.uncommitted_bytes

    def offset_sum(self) -> int | None:
        """Return the sum of :attr:`changelog_positions`, for the subscription.

        A standby that has read everything reports the sum of the end offsets. None while the stores are not open: the
        checkpoint file has the offsets then.
        """
        if not self.stores.is_open:
            return None
        return sum(self.changelog_positions.values())

    def committed_at_least(self) -> dict[TopicPartition, int]:
        """Return lower bounds of the group's committed input offsets, according to the open stores."""
        read = {partition: self.restore_position(partition) for partition in self.source_changelogs}
        told = self.stores.inputs.offsets
        return {at: max(read.get(at, 0), told.get(at, 0)) for at in read.keys() | told.keys()}

    @property
    def has_state(self) -> bool:
        """Whether its open stores contain any record."""
        return any(offset >= 0 for offset in self.changelog_offsets.values())

    # -- restoration ------------------------------------------------------------------------------------

    def is_of(self, changelog: TopicPartition, topic_id: str | None) -> bool:
        """Whether the position in this changelog belongs to this topic, not to a former topic of the same name."""
        return self.stores.is_of(changelog, topic_id)

    def expires(self, changelog: TopicPartition) -> bool:
        """Whether the topic's retention may delete the beginning of this changelog.

        That is so if its store expires records, or if others write to the topic.
        """
        name = self.store_of(changelog)
        return any(store.name == name and store.expires for store in self.nodes.stores)

    def note_never_written(self, changelog: TopicPartition) -> None:
        """Note that this changelog ends at offset 0, so its store starts empty."""
        self.never_written.add(changelog)

    def note_limit(self, changelog: TopicPartition, committed: int) -> None:
        """Note that a source topic was only read up to the group's committed offset, which is ``committed``."""
        self._limits[changelog] = committed

    def note_position(self, changelog: TopicPartition, position: int) -> None:
        """Note that the stores contain all records of this changelog below ``position``."""
        self._reached[changelog] = position

    def is_behind(self, partition: TopicPartition, committed: int) -> bool:
        """Whether a source topic was not read up to the group's committed offset, so that its table has a gap."""
        return committed > self._limits.get(partition, committed)

    def restore_position(self, changelog: TopicPartition) -> int:
        """Return the next offset to replay, or BEGINNING."""
        return self.stores.restore_position(changelog)

    def restore(self, changelog: TopicPartition, records: Sequence[RawRecord]) -> None:
        """Apply records of a changelog, in offset order.

        Raises:
            BrokerUnavailableError: A serde needs a service that is unavailable. No record was applied.
        """
        if (replay := self._replays.get(changelog.topic)) is None:
            self.stores.restore(changelog, records, in_bulk=self.is_active)
        else:
            last = records[-1].offset()
            self.stores.restore(changelog, replay.replayed(records), in_bulk=self.is_active, last=last)
        self.replayed_records += len(records)

    def sorted_files(self, changelog: TopicPartition) -> tuple[str, bool] | None:
        """Return the directory for :meth:`take_in`'s files and whether values are stamped.

        None if the store does not support such files, or if processing stores other bytes than the changelog has.
        """
        return None if changelog.topic in self._replays else self.stores.sorted_files(changelog)

    def take_in(self, changelog: TopicPartition, part: SortedPart) -> None:
        """Add the contents of sorted files, which follow all records that were restored so far."""
        self.stores.take_in(changelog, part)
        self.replayed_records += part.records

    @property
    def awaits_disk(self) -> bool:
        """Whether the restoration must pause until the disk has caught up."""
        return self.stores.awaits_disk

    def flush_restored(self) -> bool:
        """Flush restored records to disk. Call it until it returns True. Thread-safe."""
        return self.stores.flush_restored()

    def end_loading(self) -> None:
        """Finish the restoration and open the stores for work; this may take a moment."""
        self.stores.end_loading()

    def store_of(self, changelog: TopicPartition) -> str:
        """Return the name of the store that a changelog belongs to."""
        return self.stores.store_of(changelog)

    def checkpoint(self, *, enforce: bool) -> None:
        """Write the checkpoint file if enforced, or if positions have moved far enough."""
        self.stores.checkpoint(enforce=enforce)

    # -- life -------------------------------------------------------------------------------------------

    def update_input_partitions(self, partitions: Collection[TopicPartition]) -> None:
        """Read these partitions from now on. They may change because topics that match a pattern come and go."""
        self.input_partitions = frozenset(partitions)

    def suspend(self) -> None:
        """Stop processing; the stores stay open."""
        if self._phase not in (TaskPhase.SUSPENDED, TaskPhase.CLOSED):
            self._go(TaskPhase.SUSPENDED)

    def close_files_aside(self) -> bool:
        """Close the files of a suspended task on a background thread, because that flushes memory to disk.

        Call it until it returns True. :meth:`close_clean` is fast then.
        """
        self._check(TaskPhase.SUSPENDED)
        return not self.stores.is_open or self.stores.close_files_aside()

    def close_clean(self) -> None:
        """Close a suspended task that has nothing left to commit: write the checkpoint, then close the stores."""
        if self._phase is TaskPhase.CLOSED:
            return
        self._check(TaskPhase.SUSPENDED)
        if self.stores.is_open:
            self.stores.checkpoint(enforce=True)
            self.stores.close()
        self._go(TaskPhase.CLOSED)

    def close_dirty(self) -> None:
        """Close the task in any state, without committing or writing a checkpoint. Errors are only logged."""
        if self._phase is TaskPhase.CLOSED:
            return
        self._quietly(self.suspend)
        if self._phase is not TaskPhase.SUSPENDED:
            self._phase = TaskPhase.SUSPENDED
        if self.stores.is_open:
            self._quietly(self.stores.close)
        self._go(TaskPhase.CLOSED)

    def recycle(self) -> TaskStores:
        """Return the open stores of a suspended, committed task. This object is closed then."""
        self._check(TaskPhase.SUSPENDED)
        self.stores.roll_back()
        self.stores.attach(RecordContext(), None)
        self._go(TaskPhase.CLOSED)
        return self.stores

    def revive(self, *, corrupted: Collection[TopicPartition] = ()) -> None:
        """Close without a commit, and start again as CREATED from the last commit.

        Args:
            corrupted: Changelogs whose stores are restored from the beginning.
        """
        if self._phase is not TaskPhase.CLOSED:
            self._quietly(self.suspend)
            if corrupted and self.stores.is_open:
                self._quietly(lambda: self.stores.forget(corrupted))
            self.close_dirty()
        self._go(TaskPhase.CREATED)

    def _quietly(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception:
            _log.exception("task %s: error while closing it without a commit; ignored", self.id)

    def _check(self, *allowed: TaskPhase) -> None:
        if self._phase not in allowed:
            names = " or ".join(phase.value for phase in allowed)
            raise IllegalStateError(f"task {self.id} is {self._phase.value}, but must be {names} here", task_id=self.id)

    def _go(self, phase: TaskPhase) -> None:
        if phase not in _NEXT[self._phase]:
            raise IllegalStateError(
                f"task {self.id} cannot go from {self._phase.value} to {phase.value}", task_id=self.id
            )
        if phase in (TaskPhase.CREATED, TaskPhase.RUNNING):  # its state is lost, or its own writes are last
            self._reached.clear()
        self._phase = phase

    def __repr__(self) -> str:
        kind = "active" if self.is_active else "standby"
        return f"<{kind} task {self.id} {self._phase.value}>"
