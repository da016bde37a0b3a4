"""Metadata of a stream thread, for users."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streams_protocol.types import TaskId, TopicPartition
from streams_py.runtime.tasks.active_task import ActiveTask
from streams_py.runtime.tasks.task import TaskPhase
from streams_py.runtime.thread.states import ThreadState
from streams_py.runtime.thread.stream_thread import StreamThread

__all__ = ["TaskMetadata", "ThreadMetadata", "thread_metadata"]


@dataclass(frozen=True, slots=True)
class TaskMetadata:
    """One task of a thread: state, input partitions and, for active tasks, the offsets of the last commit."""

    id: TaskId
    """Id of the task."""
    state: TaskPhase
    """Its state."""
    partitions: frozenset[TopicPartition]
    """Its input partitions."""
    committed_offsets: Mapping[TopicPartition, int]
    """Input partition -> offset of the last commit. Empty for standby tasks."""


@dataclass(frozen=True, slots=True)
class ThreadMetadata:
    """Name, state and tasks of one stream thread (Kafka's ThreadMetadata). Tasks are sorted by id.

    ``last_error`` is the last error that did not stop the thread: a failure of a task assignor on this thread as
    leader.
    """

    name: str
    """Name of the thread."""
    state: ThreadState
    """State of the thread."""
    active: tuple[TaskMetadata, ...]
    """Its active tasks."""
    standby: tuple[TaskMetadata, ...]
    """Its standby tasks."""
    last_error: Exception | None = None
    """The last error that did not stop the thread, or None."""

    @property
    def active_tasks(self) -> tuple[TaskId, ...]:
        """Ids of the active tasks, including restoring ones."""
        return tuple(task.id for task in self.active)

    @property
    def standby_tasks(self) -> tuple[TaskId, ...]:
        """Ids of the standby tasks."""
        return tuple(task.id for task in self.standby)


def thread_metadata(thread: StreamThread) -> ThreadMetadata:
    """Return the metadata of a thread. Tasks may move meanwhile."""
    active: list[TaskMetadata] = []
    standby: list[TaskMetadata] = []
    for task in thread.tasks:
        if isinstance(task, ActiveTask):
            offsets = dict(task.positions.committed)
            active.append(TaskMetadata(task.id, task.state, task.input_partitions, offsets))
        else:
            standby.append(TaskMetadata(task.id, task.state, task.input_partitions, {}))
    active.sort(key=lambda task: task.id)
    standby.sort(key=lambda task: task.id)
    return ThreadMetadata(thread.name, thread.state, tuple(active), tuple(standby), thread.last_error)
