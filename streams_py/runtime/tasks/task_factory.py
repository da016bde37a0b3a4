"""Creates the tasks of one stream thread from sub-topologies, stores and clients."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from streams_protocol.types import TaskId
from streams_py.errors import IllegalStateError
from streams_py.ports import RecordConsumer, RecordProducer
from streams_py.runtime.tasks.active_task import ActiveTask
from streams_py.runtime.tasks.record.collector import RecordCollector
from streams_py.runtime.tasks.record.node_services import SharedServices
from streams_py.runtime.tasks.settings.task_settings import TaskSettings
from streams_py.runtime.tasks.standby_task import StandbyTask
from streams_py.runtime.tasks.task import Partitions, Task
from streams_py.state.directory.state_directory import StateDirectory
from streams_py.state.tasks.interface import TaskStores
from streams_py.state.tasks.task_stores import StoreEnvironment, TaskState
from streams_py.topology.physical.subtopologies import Subtopology


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFactory:
    """Creates the tasks of one stream thread."""

    subtopologies: Sequence[Subtopology]
    settings: TaskSettings
    stores: StoreEnvironment
    consumer: RecordConsumer
    producer: RecordProducer
    shared: SharedServices
    sharing: Callable[[], Collection[TaskId]]
    """Returns all tasks that write with the thread's producer."""

    def active(self, task_id: TaskId, partitions: Partitions) -> ActiveTask:
        """Return a new active task in state CREATED."""
        return self._active(task_id, partitions, self._new_stores(task_id))

    def standby(self, task_id: TaskId, partitions: Partitions) -> StandbyTask | None:
        """Return a new standby task; None if the task has no logged store."""
        stores = self._new_stores(task_id)
        if not stores.changelog_partitions:
            return None
        return StandbyTask(task_id, self._subtopology(task_id), partitions, stores, self.settings)

    def recycled(self, task: Task, partitions: Partitions) -> Task:
        """Return a task of the other kind that takes over the open stores of a suspended, committed task."""
        stores = task.recycle()
        if task.is_active:
            return StandbyTask(task.id, self._subtopology(task.id), partitions, stores, self.settings)
        return self._active(task.id, partitions, stores)

    def _active(self, task_id: TaskId, partitions: Partitions, stores: TaskStores) -> ActiveTask:
        return ActiveTask(
            task_id,
            self._subtopology(task_id),
            partitions,
            stores,
            collector=RecordCollector(task_id, self.producer, self.settings, sharing=self.sharing),
            inputs=self.consumer,
            shared=self.shared,
        )

    def _new_stores(self, task_id: TaskId) -> TaskState:
        return TaskState(
            task_id,
            self._subtopology(task_id).stores,
            self.stores,
            application_id=self.settings.application_id,
            measuring=self.settings.measuring(self.shared.clock),
        )

    def _subtopology(self, task_id: TaskId) -> Subtopology:
        if not 0 <= task_id.subtopology < len(self.subtopologies):
            raise IllegalStateError(
                f"the leader assigned task {task_id}, but this topology has only {len(self.subtopologies)} "
                f"sub-topologies; all members of a group must run the same topology",
                task_id=task_id,
            )
        return self.subtopologies[task_id.subtopology]


def offset_sums(tasks: Collection[Task], directory: StateDirectory, owner: str) -> Mapping[TaskId, int]:
    """Return the offset sums for a thread's subscription: of its tasks, and of the task directories that it locked."""
    sums: dict[TaskId, int] = {}
    own = {task.id: task for task in tasks}
    for task_id in directory.lock_stored_tasks(owner):
        stored = directory.stored_offset_sum(task_id) if task_id not in own else None
        if stored is not None:
            sums[task_id] = stored
    for task in tasks:
        if not task.stores.changelog_partitions:
            continue
        total = task.offset_sum()
        if total is None:
            total = directory.stored_offset_sum(task.id)
        if total is not None:
            sums[task.id] = total
    return sums
