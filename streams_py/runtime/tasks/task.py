"""What active and standby tasks have in common: their states, and their stores.

A task is created, opens its stores and replays their changelogs (RESTORING), works (RUNNING), is taken out of work with
its stores open (SUSPENDED), and ends (CLOSED). A task that lost its state is closed and *revived*: the same object
starts again. A task that changes between active and standby is *recycled*: the open stores move to a new object.
Answers to Kafka Streams' ``Task``, ``AbstractTask`` and ``ProcessorStateManager``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, ClassVar, Final, Protocol

from streams_protocol.types import TaskId, TopicPartition
from streams_py.errors import IllegalStateError, StateError
from streams_py.ports import RawRecord, SortedPart
from streams_py.runtime.latency import Latency
from streams_py.runtime.restore.source_replay import task_replays
from streams_py.runtime.tasks.binding import Node
from streams_py.runtime.tasks.collector import ChangelogWriter
from streams_py.runtime.tasks.task_settings import TaskSettings
from streams_py.state.committed_inputs import CommittedInputs
from streams_py.topology.nodes import RecordContext
from streams_py.topology.stores import StoreBuilder

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
    """The part of a topology that a task runs; ``Subtopology`` is one. ``nodes`` have parents before children."""

    @property
    def nodes(self) -> Sequence[Node]: ...
    @property
    def stores(self) -> Sequence[StoreBuilder]: ...
    @property
    def is_global(self) -> bool:
        """True when it fills a global store, and so has no tasks."""


class TaskStores(Protocol):
    """What a task needs of its stores and their changelog positions."""

    @property
    def is_open(self) -> bool: ...
    @property
    def changelog_partitions(self) -> frozenset[TopicPartition]: ...
    @property
    def source_changelogs(self) -> frozenset[TopicPartition]:
        """Those changelogs that are source topics."""

    @property
    def changelog_offsets(self) -> Mapping[TopicPartition, int]:
        """Offset of the last record contained in each store; a changelog of which nothing is known is missing."""

    def open(self) -> None:
        """Lock the task's directory, open the stores, learn their positions. LockError when it is locked."""

    def attach(self, record: RecordContext, changelog_writer: Callable[[str, int], ChangelogWriter] | None) -> None:
        """From now on stores log with this context through these writers; None: nobody writes (standby)."""

    def store(self, name: str) -> Any:
        """An open store."""

    def is_of(self, changelog: TopicPartition, topic_id: str | None) -> bool:
        """False when the position in this changelog is one in another topic of that name."""

    def changelog_replaced(self, changelog: TopicPartition, topic_id: str, acked: int | None) -> None:
        """A changelog has this id while the task runs; ``acked``: the offset of the last acknowledged write."""

    def restore_position(self, changelog: TopicPartition) -> int: ...
    def restore(
        self, changelog: TopicPartition, records: Sequence[RawRecord], *, in_bulk: bool = False, last: int | None = None
    ) -> None:
        """Apply records of a changelog, in offset order. ``in_bulk``: they need not be on the disk before
        :meth:`flush_restored`. ``last``: offset of the last record that was read, if not that of the last one here."""

    def sorted_files(self, changelog: TopicPartition) -> tuple[str, bool] | None:
        """Where files for :meth:`take_in` go, and whether their values are stamped; None when the store takes none."""

    def take_in(self, changelog: TopicPartition, part: SortedPart) -> None:
        """Have what sorted files contain, behind everything that was restored so far."""

    @property
    def awaits_disk(self) -> bool:
        """True while the disk has to catch up before more is restored in bulk."""

    def flush_restored(self) -> bool:
        """Bring to the disk what was restored in bulk; to be asked again until it is True. Any thread may."""

    def end_loading(self) -> None:
        """All is restored: be open for reading and writing."""

    def store_of(self, changelog: TopicPartition) -> str: ...
    def flush_caches(self, order: Iterable[str]) -> None:
        """Write and forward what the record caches of these stores hold, until nothing is dirty any more."""

    def clear_caches(self) -> None: ...
    def update_offsets(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Newer last offsets of changelogs, as the producer got them acknowledged."""

    @property
    def uncommitted_bytes(self) -> int:
        """What is held in memory for the next commit, about."""

    def store_figures(self, seconds: float) -> Iterable[tuple[str, str, Mapping[str, float]]]:
        """Kafka's tag, name and figures of each open store. Thread-safe."""

    def cache_figures(self) -> Iterable[tuple[str, float, Mapping[str, float]]]:
        """Of each cached store that is measured: its name, the bytes in its cache, and Kafka's figures of the share of
        reads that it answered. Thread-safe."""

    @property
    def inputs(self) -> CommittedInputs:
        """What the group had committed for input partitions when what is on disk was, as far as known."""

    def commit(self, inputs: Mapping[TopicPartition, int]) -> None:
        """What was written, and the offsets, are the committed state from now on; and so are these of input
        partitions, to the group."""

    def roll_back(self) -> None:
        """Drop what was written since the last commit."""

    def note_damage(self, error: StateError) -> bool:
        """Whether this error is about damaged files of these stores. Then :meth:`close` sets the files aside."""

    def forget(self, changelogs: Collection[TopicPartition]) -> None:
        """Restore these from the beginning when the task opens next."""

    def checkpoint(self, *, enforce: bool) -> None:
        """Write the checkpoint file, if enforced or when positions moved far enough since the last one."""

    def close_files_aside(self) -> bool:
        """Do of :meth:`close` what takes time, on a thread of its own; to be asked again until it is True, which raises
        what went wrong."""

    def close(self, *, wipe: bool = False) -> None:
        """Close the stores and unlock; ``wipe``: delete everything of the task."""


class Task:
    """Base of both kinds of task. ``stores`` are open already when they come from a recycled task."""

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
        """Changelogs without a single write when the task was restored."""
        self.topic_ids: dict[str, str] = {}
        """Ids of the topics that its input positions are in, where known."""
        self.process_latency = Latency()
        self.punctuate_latency = Latency()
        self.replayed_records = 0
        """From changelogs, as this kind of task."""

    # -- what others ask --------------------------------------------------------------------------------

    @property
    def state(self) -> TaskPhase:
        """Where in its life the task is."""
        return self._phase

    @property
    def changelog_partitions(self) -> frozenset[TopicPartition]:
        """All changelog partitions of its stores."""
        return self.stores.changelog_partitions

    @property
    def source_changelogs(self) -> frozenset[TopicPartition]:
        """Those changelogs that are source topics."""
        return self.stores.source_changelogs

    @property
    def changelog_offsets(self) -> Mapping[TopicPartition, int]:
        """Offset of the last changelog record that each store contains, where known."""
        return self.stores.changelog_offsets

    @property
    def changelog_positions(self) -> dict[TopicPartition, int]:
        """Next offset of each changelog that the stores lack, where known.

        It is after the last record that a store contains. While the task is restored or is a copy, it is also after
        the markers and the deleted records that follow this record.
        """
        offsets, reached = self.changelog_offsets, dict(self._reached)  # the state updater may write to it
        return {at: max(offsets.get(at, -1) + 1, reached.get(at, 0)) for at in offsets.keys() | reached.keys()}

    @property
    def uncommitted_bytes(self) -> int:
        """What its stores on disk hold in memory for the next commit, about."""
        return self.stores.uncommitted_bytes

    def offset_sum(self) -> int | None:
        """What the subscription reports: the sum of :attr:`changelog_positions`, so that a copy that has read
        everything reports the end offsets. None while the stores are not open: the checkpoint file has the offsets."""
        if not self.stores.is_open:
            return None
        return sum(self.changelog_positions.values())

    def committed_at_least(self) -> dict[TopicPartition, int]:
        """Offsets of input partitions below which the group cannot have committed, by what the open stores contain."""
        read = {partition: self.restore_position(partition) for partition in self.source_changelogs}
        told = self.stores.inputs.offsets
        return {at: max(read.get(at, 0), told.get(at, 0)) for at in read.keys() | told.keys()}

    @property
    def has_state(self) -> bool:
        """True when its open stores contain something."""
        return any(offset >= 0 for offset in self.changelog_offsets.values())

    # -- restoration ------------------------------------------------------------------------------------

    def is_of(self, changelog: TopicPartition, topic_id: str | None) -> bool:
        """False when the position in this changelog is one in another topic of that name."""
        return self.stores.is_of(changelog, topic_id)

    def expires(self, changelog: TopicPartition) -> bool:
        """Whether retention may delete the beginning of this changelog: its store expires, or others write the
        topic."""
        name = self.store_of(changelog)
        return any(store.name == name and store.expires for store in self.nodes.stores)

    def note_never_written(self, changelog: TopicPartition) -> None:
        """This changelog ends at offset 0: its store starts empty."""
        self.never_written.add(changelog)

    def note_limit(self, changelog: TopicPartition, committed: int) -> None:
        """A source topic is read no further than to what the group has committed, and that was this."""
        self._limits[changelog] = committed

    def note_position(self, changelog: TopicPartition, position: int) -> None:
        """The stores contain all records of this changelog below ``position``."""
        self._reached[changelog] = position

    def is_behind(self, partition: TopicPartition, committed: int) -> bool:
        """True when a source topic was not read as far as the group has committed, so that its table has a gap."""
        return committed > self._limits.get(partition, committed)

    def restore_position(self, changelog: TopicPartition) -> int:
        """Next offset to replay, or BEGINNING."""
        return self.stores.restore_position(changelog)

    def restore(self, changelog: TopicPartition, records: Sequence[RawRecord]) -> None:
        """Apply records of a changelog, in offset order. BrokerUnavailableError: a serde needs something that is away;
        nothing was applied."""
        if (replay := self._replays.get(changelog.topic)) is None:
            self.stores.restore(changelog, records, in_bulk=self.is_active)
        else:
            last = records[-1].offset()
            self.stores.restore(changelog, replay.replayed(records), in_bulk=self.is_active, last=last)
        self.replayed_records += len(records)

    def sorted_files(self, changelog: TopicPartition) -> tuple[str, bool] | None:
        """Where files for :meth:`take_in` go, and whether their values are stamped; None when the store takes none, or
        when the files would have the bytes of records that processing stores otherwise."""
        return None if changelog.topic in self._replays else self.stores.sorted_files(changelog)

    def take_in(self, changelog: TopicPartition, part: SortedPart) -> None:
        """Have what sorted files contain, behind everything that was restored so far."""
        self.stores.take_in(changelog, part)
        self.replayed_records += part.records

    @property
    def awaits_disk(self) -> bool:
        """True while the disk has to catch up before more is restored."""
        return self.stores.awaits_disk

    def flush_restored(self) -> bool:
        """Bring to the disk what was restored; to be asked again until it is True. Any thread may."""
        return self.stores.flush_restored()

    def end_loading(self) -> None:
        """All is restored: make it ready for whoever works with it, which may take a moment."""
        self.stores.end_loading()

    def store_of(self, changelog: TopicPartition) -> str:
        """Name of the store that a changelog belongs to."""
        return self.stores.store_of(changelog)

    def checkpoint(self, *, enforce: bool) -> None:
        """Write the checkpoint file, if enforced or when positions moved far enough."""
        self.stores.checkpoint(enforce=enforce)

    # -- life -------------------------------------------------------------------------------------------

    def update_input_partitions(self, partitions: Collection[TopicPartition]) -> None:
        """Read these partitions from now on (topics that match a pattern come and go)."""
        self.input_partitions = frozenset(partitions)

    def suspend(self) -> None:
        """Take the task out of work; its stores stay open."""
        if self._phase not in (TaskPhase.SUSPENDED, TaskPhase.CLOSED):
            self._go(TaskPhase.SUSPENDED)

    def close_files_aside(self) -> bool:
        """Close the files of a suspended task, while others go on: what is in memory is flushed. To be asked again
        until it is True; then :meth:`close_clean` takes no time."""
        self._check(TaskPhase.SUSPENDED)
        return not self.stores.is_open or self.stores.close_files_aside()

    def close_clean(self) -> None:
        """Close a suspended task that has nothing left to commit: checkpoint, then close the stores."""
        if self._phase is TaskPhase.CLOSED:
            return
        self._check(TaskPhase.SUSPENDED)
        if self.stores.is_open:
            self.stores.checkpoint(enforce=True)
            self.stores.close()
        self._go(TaskPhase.CLOSED)

    def close_dirty(self) -> None:
        """Close, in whatever state the task is, without committing or checkpointing; errors are only logged."""
        if self._phase is TaskPhase.CLOSED:
            return
        self._quietly(self.suspend)
        if self._phase is not TaskPhase.SUSPENDED:
            self._phase = TaskPhase.SUSPENDED
        if self.stores.is_open:
            self._quietly(self.stores.close)
        self._go(TaskPhase.CLOSED)

    def recycle(self) -> TaskStores:
        """Give away the open stores of a suspended, committed task; this object is closed then."""
        self._check(TaskPhase.SUSPENDED)
        self.stores.roll_back()
        self.stores.attach(RecordContext(), None)
        self._go(TaskPhase.CLOSED)
        return self.stores

    def revive(self, *, corrupted: Collection[TopicPartition] = ()) -> None:
        """Close dirty and start over as CREATED, from the last commit.

        ``corrupted``: changelogs whose stores are restored from the beginning.
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
            _log.exception("task %s is being given up; this went wrong on the way", self.id)

    def _check(self, *allowed: TaskPhase) -> None:
        if self._phase not in allowed:
            names = " or ".join(phase.value for phase in allowed)
            raise IllegalStateError(f"task {self.id} is {self._phase.value} where {names} is needed", task_id=self.id)

    def _go(self, phase: TaskPhase) -> None:
        if phase not in _NEXT[self._phase]:
            raise IllegalStateError(
                f"task {self.id} cannot go from {self._phase.value} to {phase.value}", task_id=self.id
            )
        if phase in (TaskPhase.CREATED, TaskPhase.RUNNING):  # a lost state, or own writes are the last records now
            self._reached.clear()
        self._phase = phase

    def __repr__(self) -> str:
        kind = "active" if self.is_active else "standby"
        return f"<{kind} task {self.id} {self._phase.value}>"
