"""Common parts of active and standby tasks: their life cycle and their stores.

A task is created, opens its stores and replays their changelogs (RESTORING), works (RUNNING), pauses with open stores
(SUSPENDED), and ends (CLOSED). A task that lost its state is closed and *revived*: the same object starts again. A task
that changes between active and standby is *recycled*: the open stores move to a new object. Corresponds to Kafka
Streams' ``Task``, ``AbstractTask`` and ``ProcessorStateManager``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from enum import Enum
from typing import ClassVar, Final, Protocol, TypeAlias

from streams_protocol.types import TaskId, TopicPartition
from streams_py.errors import IllegalStateError
from streams_py.runtime.restore.restoring_stores import RestoringStores
from streams_py.runtime.tasks.latency import Latency
from streams_py.runtime.tasks.record.binding import Node
from streams_py.runtime.tasks.record.source_replay import task_replays
from streams_py.runtime.tasks.settings.task_settings import TaskSettings
from streams_py.state.tasks.interface import TaskStores
from streams_py.topology.declare.nodes import RecordContext
from streams_py.topology.declare.stores import StoreBuilder

_log = logging.getLogger(__name__)

Partitions: TypeAlias = frozenset[TopicPartition]


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
        self.restoring = RestoringStores(
            id,
            stores,
            is_active=self.is_active,
            input_partitions=self.input_partitions,
            expiring={store.name for store in nodes.stores if store.expires},
            replays=task_replays(id, nodes.nodes, nodes.stores, settings),
        )
        """The stores, as the state updater sees them."""
        self.topic_ids: dict[str, str] = {}
        """Ids of the topics that the input positions belong to, if known."""
        self.process_latency = Latency()
        self.punctuate_latency = Latency()

    # -- observation ------------------------------------------------------------------------------------

    @property
    def state(self) -> TaskPhase:
        """The state of the task."""
        return self._phase

    @property
    def changelog_positions(self) -> dict[TopicPartition, int]:
        """Next changelog offset that the stores don't contain, if known.

        It follows the last record in a store. While the task restores or is a standby, it also follows the transaction
        markers and deleted records after that record.
        """
        offsets = self.stores.changelog_offsets
        reached = dict(self.restoring.reached)  # the state updater may write to it
        return {at: max(offsets.get(at, -1) + 1, reached.get(at, 0)) for at in offsets.keys() | reached.keys()}

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
        read = {partition: self.stores.restore_position(partition) for partition in self.stores.source_changelogs}
        told = self.stores.inputs.offsets
        return {at: max(read.get(at, 0), told.get(at, 0)) for at in read.keys() | told.keys()}

    @property
    def has_state(self) -> bool:
        """Whether its open stores contain any record."""
        return any(offset >= 0 for offset in self.stores.changelog_offsets.values())

    # -- life -------------------------------------------------------------------------------------------

    def initialize(self) -> None:
        """Open the stores. LockError: nothing has happened, try again later."""
        self._check(TaskPhase.CREATED)
        if not self.stores.is_open:
            self.stores.open()
        self._go(TaskPhase.RESTORING)

    def update_input_partitions(self, partitions: Collection[TopicPartition]) -> None:
        """Read these partitions from now on. They may change because topics that match a pattern come and go."""
        self.input_partitions = self.restoring.input_partitions = frozenset(partitions)

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
            self.restoring.reached.clear()
        self._phase = phase

    def __repr__(self) -> str:
        kind = "active" if self.is_active else "standby"
        return f"<{kind} task {self.id} {self._phase.value}>"
