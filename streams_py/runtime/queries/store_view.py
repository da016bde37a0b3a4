"""Read-only views of a client's stores (KIP-535): which instances may be read, and when.

A reader takes no lock. It uses the lists of tasks that the stream threads publish, so it may find a task that its
thread is closing. A reader checks the tasks before it reads a key, and again if no store has the key. If the tasks have
moved meanwhile, it raises an error. So "not found" always means that the stores did not have the key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from streams_protocol.types import TaskId
from streams_py.errors import (
    InvalidStateStoreError,
    InvalidStateStorePartitionError,
    StateStoreMigratedError,
    StateStoreNotAvailableError,
    StreamsNotStartedError,
    UnknownStateStoreError,
)
from streams_py.runtime.tasks.task import Task, TaskPhase
from streams_py.runtime.thread.states import State, ThreadState
from streams_py.runtime.thread.stream_thread import StreamThread
from streams_py.state.opening.stores import Store
from streams_py.state.reading.queryable import QueryableStoreType
from streams_py.state.reading.store_views import ReadOnlyStore, read_only


def store_view(
    name: str,
    state: Callable[[], State],
    threads: Callable[[], Sequence[StreamThread]],
    known: Sequence[str],
    global_stores: Callable[[], Mapping[str, Any]],
    *,
    kind: QueryableStoreType,
    partition: int | None,
    stale: bool,
) -> ReadOnlyStore:
    """Return a view of ``name`` over the tasks of ``threads``. Raises the errors of :meth:`KafkaStreams.store`."""
    if state() is State.CREATED:
        raise StreamsNotStartedError("start the client before reading its stores")
    if name not in known:
        raise UnknownStateStoreError(f"the topology has no store {name!r}; it has: {', '.join(known) or 'no stores'}")
    here = _Instances(name, threads, partition=partition, stale=stale)

    def instances() -> list[Store]:
        if not state().is_running_or_rebalancing:
            raise InvalidStateStoreError(f"store {name} cannot be read while the client is {state().value}")
        if (everywhere := global_stores().get(name)) is not None:
            return [everywhere]
        return here.found()

    first = instances()
    if not first:
        if partition is not None:
            raise InvalidStateStorePartitionError(
                f"partition {partition} of store {name} is not on this client now: it is elsewhere, or still restoring"
            )
        raise StateStoreNotAvailableError(
            f"store {name} is not available here: its tasks are elsewhere, or it is still being restored"
        )

    def unchanged() -> list[Store]:
        now = instances()
        if len(now) != len(first) or any(store is not held for store, held in zip(now, first, strict=True)):
            raise StateStoreMigratedError(f"store {name} has moved in a rebalance; request a new view")
        return now

    return read_only(name, kind, unchanged)


class _Instances:
    """The instances of one store, one per task. The list is rebuilt only when a thread publishes other tasks."""

    def __init__(
        self, name: str, threads: Callable[[], Sequence[StreamThread]], *, partition: int | None, stale: bool
    ) -> None:
        self._name = name
        self._threads = threads
        self._partition = partition
        self._stale = stale
        self._seen: tuple[list[tuple[Task, ...]], list[Task]] = ([], [])

    def found(self) -> list[Store]:
        """Return the instances that may be read now, in the order of their partitions."""
        shown = [thread.shown_tasks for thread in self._threads() if thread.state is not ThreadState.DEAD]
        seen, tasks = self._seen
        if shown != seen:
            tasks = sorted((task for of in shown for task in of if self._has_store(task)), key=_by_id)
            self._seen = (shown, tasks)
        return [store for task in tasks if (store := self._readable(task)) is not None]

    def _has_store(self, task: Task) -> bool:
        is_asked_for = self._partition is None or task.id.partition == self._partition
        return is_asked_for and any(builder.name == self._name for builder in task.nodes.stores)

    def _readable(self, task: Task) -> Store | None:
        """Return the store of a running active task; with ``stale`` of any task with open stores."""
        if not (task.stores.is_open and (self._stale or (task.is_active and task.state is TaskPhase.RUNNING))):
            return None
        try:
            store: Store = task.stores.store(self._name)
        except InvalidStateStoreError:  # closed after the check above
            return None
        return store


def _by_id(task: Task) -> TaskId:
    return task.id
