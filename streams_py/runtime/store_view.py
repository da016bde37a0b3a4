"""Read-only views of a client's stores (KIP-535): which instances may be read, and when."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from streams_py.errors import (
    InvalidStateStoreError,
    InvalidStateStorePartitionError,
    StreamsNotStartedError,
    UnknownStateStoreError,
)
from streams_py.runtime.states import State, ThreadState
from streams_py.runtime.tasks.task import TaskPhase
from streams_py.runtime.threads.stream_thread import StreamThread
from streams_py.runtime.threads.task_table import StreamTask
from streams_py.state.open import Store
from streams_py.state.queries import QueryableStoreType, ReadOnlyStore, read_only

__all__ = ["store_view"]


def store_view(
    name: str,
    state: Callable[[], State],
    threads: Callable[[], Sequence[StreamThread]],
    known: Sequence[str],
    global_stores: Callable[[], Mapping[str, Store]],
    *,
    kind: QueryableStoreType,
    partition: int | None,
    stale: bool,
) -> ReadOnlyStore:
    """A view of ``name`` over the tasks of ``threads``; the errors are those of :meth:`KafkaStreams.store`."""
    if state() is State.CREATED:
        raise StreamsNotStartedError("start the client before reading its stores")
    if name not in known:
        raise UnknownStateStoreError(f"no store is called {name!r}; there are: {', '.join(known) or 'none'}")

    def instances() -> list[Store]:
        if not state().is_running_or_rebalancing:
            raise InvalidStateStoreError(f"store {name} cannot be read while the client is {state().value}")
        if (everywhere := global_stores().get(name)) is not None:
            return [everywhere]
        return _instances(name, threads(), partition=partition, stale=stale)

    first = instances()
    if not first:
        if partition is not None:
            raise InvalidStateStorePartitionError(f"partition {partition} of store {name} is not on this client")
        raise InvalidStateStoreError(f"store {name} is not available here: its tasks are elsewhere, or still restoring")
    held = {id(store) for store in first}

    def unchanged() -> list[Store]:
        now = instances()
        if {id(store) for store in now} != held:
            raise InvalidStateStoreError(f"store {name} has moved in a rebalance; ask for a new view")
        return now

    return read_only(name, kind, unchanged)


def _instances(name: str, threads: Sequence[StreamThread], *, partition: int | None, stale: bool) -> list[Store]:
    found: list[Store] = []
    for thread in threads:
        if thread.state is ThreadState.DEAD:
            continue
        for task in thread.tasks:
            if partition is not None and task.id.partition != partition:
                continue
            if _readable(task, stale=stale) and name in {builder.name for builder in task.nodes.stores}:
                found.append(task.stores.store(name))
    return found


def _readable(task: StreamTask, *, stale: bool) -> bool:
    """Running actives; with ``stale`` everything whose stores are open."""
    return task.stores.is_open and (stale or (task.is_active and task.state is TaskPhase.RUNNING))
