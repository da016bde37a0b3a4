"""Queries the local partitions of a store (KIP-796): which of them answer, and at which position."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from streams_protocol.types import TopicPartition
from streams_py.errors import (
    InvalidStateStoreError,
    StateStoreMigratedError,
    StateStoreNotAvailableError,
    StreamsNotStartedError,
    UnknownStateStoreError,
)
from streams_py.runtime.tasks.active_task import ActiveTask
from streams_py.runtime.tasks.task import Task, TaskPhase
from streams_py.runtime.thread.states import State, ThreadState
from streams_py.runtime.thread.stream_thread import StreamThread
from streams_py.state.reading.typed_queries import (
    FailureReason,
    Position,
    Query,
    QueryResult,
    StateQueryResult,
    answer_of,
    is_up_to,
)

R = TypeVar("R")


def query_store(
    name: str,
    query: Query[R],
    state: Callable[[], State],
    threads: Sequence[StreamThread],
    known: Sequence[str],
    global_stores: Callable[[], Mapping[str, Any]],
    *,
    is_global: bool,
    partitions: Collection[int] | None,
    bound: Position | None,
    require_active: bool,
) -> StateQueryResult[R]:
    """Return the answers of the local partitions. Raises the same errors as ``KafkaStreams.query``."""
    if state() is State.CREATED:
        raise StreamsNotStartedError("start the client before reading its stores")
    if name not in known:
        raise UnknownStateStoreError(f"the topology has no store {name!r}; it has: {', '.join(known) or 'no stores'}")
    if not state().is_running_or_rebalancing:
        raise InvalidStateStoreError(f"store {name} cannot be read while the client is {state().value}")
    if is_global:
        everywhere = global_stores().get(name)
        if everywhere is None:
            raise StateStoreNotAvailableError(
                f"global store {name} is not available: it is being restored, or was closed"
            )

        def open_ones() -> list[Any]:
            if global_stores().get(name) is not everywhere:
                raise StateStoreMigratedError(f"global store {name!r} was closed")
            return [everywhere]

        return StateQueryResult({}, answer_of(query, name, everywhere, open_ones))
    results: dict[int, QueryResult[R]] = {}
    for task in _tasks_with(name, threads):
        partition = task.id.partition
        if partitions is not None and partition not in partitions:
            continue
        answer = _answer(name, query, task, bound or {}, require_active=require_active)
        if answer is not None and (partition not in results or answer.is_success):
            results[partition] = answer
    for partition in sorted(set(partitions or ()) - results.keys()):
        results[partition] = _absent(name, partition)
    return StateQueryResult(dict(sorted(results.items())))


def _tasks_with(name: str, threads: Sequence[StreamThread]) -> list[Task]:
    shown = [task for thread in threads if thread.state is not ThreadState.DEAD for task in thread.shown_tasks]
    return [task for task in shown if any(builder.name == name for builder in task.nodes.stores)]


def _answer(name: str, query: Query[R], task: Task, bound: Position, *, require_active: bool) -> QueryResult[R] | None:
    """Query a task. Returns None if its stores are closed, or if it is an active task that is not running."""
    phase = task.state
    runs = task.is_active and phase is TaskPhase.RUNNING
    if require_active and not runs:
        restores = phase in (TaskPhase.CREATED, TaskPhase.RESTORING)
        kind = "a standby" if not task.is_active else "being restored" if restores else f"not running ({phase.value})"
        return QueryResult(
            failure=FailureReason.NOT_ACTIVE, message=f"task {task.id} with store {name!r} is {kind} on this instance"
        )
    if not task.stores.is_open or (task.is_active and not runs):
        return None

    def readable() -> list[Any]:
        # A task that starts over opens its stores again. Their content then does not match the query's position.
        if not task.stores.is_open or (runs and task.state is not TaskPhase.RUNNING):
            raise StateStoreMigratedError(f"store {name!r} of task {task.id} has moved; repeat the query")
        return [task.stores.store(name)]

    # Read the position before the store, so that the answer is at least as new.
    position = _by_topic(task.contained_positions()) if isinstance(task, ActiveTask) else {}
    if not require_active and not is_up_to(position, bound, task.id.partition):
        message = (
            f"task {task.id} with store {name!r} is at {position or 'an unknown position'}, not up to {dict(bound)}"
        )
        return QueryResult(failure=FailureReason.NOT_UP_TO_BOUND, message=message, position=position)
    try:
        store = readable()[0]
    except InvalidStateStoreError:
        return None
    answer = answer_of(query, name, store, readable)
    return QueryResult(answer._value, answer.failure, answer.message, position)


def _absent(name: str, partition: int) -> QueryResult[Any]:
    if partition < 0:
        message = f"store {name!r} has no partition {partition}: partitions start at 0"
        return QueryResult(failure=FailureReason.DOES_NOT_EXIST, message=message)
    message = f"partition {partition} of store {name!r} is not on this instance now: it is elsewhere, or being restored"
    return QueryResult(failure=FailureReason.NOT_PRESENT, message=message)


def _by_topic(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[partition] = offset
    return found
