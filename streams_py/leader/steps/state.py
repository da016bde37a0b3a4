"""The previous tasks and the lags of every client.

A task was active on a client if a member of the client claims one of its partitions or reports it as running. Every
other task that the client reports was a standby there, or its state is still on the client's disk. Lags follow from the
end offsets of the tasks' changelogs. Source: Kafka Streams' ``ClientState.initializePrevTasks`` and
``computeTaskLags``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from streams_protocol import LATEST_OFFSET, UNKNOWN_OFFSET_SUM
from streams_protocol.types import ProcessId, TaskId, TopicPartition
from streams_py.assignment.configs import AssignmentConfigs
from streams_py.assignment.java_order import HashSizing
from streams_py.assignment.problem import AssignmentProblem, ClientInput, lag_from_offsets
from streams_py.errors import IllegalStateError, StreamsError
from streams_py.leader.events import CommittedOffsetsFetched, EndOffsetsListed
from streams_py.leader.steps.decode import Client, Group
from streams_py.leader.steps.tasks import TaskTable
from streams_py.leader.steps.threads import tasks_by_lag
from streams_py.ports import AdminError

_INT64_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class EndOffsets:
    """The end-offset sum of every stateful task, in records.

    If the end offsets are unknown, all sums are -3 and ``failed`` is the reason.
    """

    sums: Mapping[TaskId, int]
    failed: str | None = None


@dataclass(frozen=True, slots=True)
class ClientHistory:
    """A client before this rebalance. ``lags`` has the stateful tasks that it reported."""

    active: frozenset[TaskId]
    standby: frozenset[TaskId]
    lags: Mapping[TaskId, int]
    by_lag: Mapping[str, tuple[TaskId, ...]]
    """Stateful tasks that each consumer reported, by (lag, task); see :func:`client_histories`."""


def asked_partitions(
    table: TaskTable, newly_created: Collection[str]
) -> tuple[tuple[TopicPartition, ...], tuple[TopicPartition, ...]]:
    """Return (partitions whose end offsets, partitions whose committed offsets are needed).

    The first are changelog partitions, without newly created ones, which are empty. The second are source partitions
    that also serve as changelogs. A source topic is complete as changelog at the group's committed offset, not at its
    end.
    """
    ends = {tp for parts in table.changelogs.values() for tp in parts if tp.topic not in newly_created}
    committed = {tp for parts in table.source_changelogs.values() for tp in parts}
    return tuple(sorted(ends)), tuple(sorted(committed))


def end_offset_sums(
    table: TaskTable,
    newly_created: Collection[str],
    listed: EndOffsetsListed | None,
    committed: CommittedOffsetsFetched | None,
) -> EndOffsets:
    """Add up the answers. An answer is None if no request was needed.

    If a request or a single partition failed, all sums are unknown; this is not an error.

    Raises:
        StreamsError: a successful answer leaves out a partition.
    """
    failure = _failure(listed, committed)
    if failure is not None:
        return EndOffsets(dict.fromkeys(table.stateful, UNKNOWN_OFFSET_SUM), failure)
    ends = listed.offsets if listed is not None else {}
    starts = committed.offsets if committed is not None else {}
    sums = {}
    for task in table.stateful:
        total = sum(_end_offset(ends, tp) for tp in table.changelogs[task] if tp.topic not in newly_created)
        total += sum(max(starts.get(tp) or 0, 0) for tp in table.source_changelogs[task])
        sums[task] = min(total, _INT64_MAX)
    return EndOffsets(sums)


def _failure(listed: EndOffsetsListed | None, committed: CommittedOffsetsFetched | None) -> str | None:
    if committed is not None and committed.error is not None:
        return f"committed offsets cannot be fetched: {committed.error.message}"
    if listed is None:
        return None
    if listed.error is not None:
        return f"end offsets cannot be listed: {listed.error.message}"
    for tp, answer in sorted(listed.offsets.items(), key=lambda item: item[0]):
        if isinstance(answer, AdminError):
            return f"the end offset of {tp} cannot be listed: {answer.message}"
        if answer < 0:
            return f"the end offset of {tp} is unknown: {answer} is not a valid offset"
    return None


def _end_offset(ends: Mapping[TopicPartition, int | AdminError], tp: TopicPartition) -> int:
    offset = ends.get(tp)
    if not isinstance(offset, int):
        raise StreamsError(f"the brokers did not return an end offset for {tp}, although the request succeeded")
    return offset


def client_histories(
    group: Group, table: TaskTable, ends: EndOffsets, *, tolerate_unknown: bool, owned_first: bool = False
) -> tuple[dict[ProcessId, ClientHistory], list[str]]:
    """Return the previous tasks and lags of every client, and warnings.

    Args:
        tolerate_unknown: accept a client that owns partitions but none of a known task; otherwise IllegalStateError.
        owned_first: sort the tasks that a consumer owns before the tasks of which it only has state. Kafka Streams
            sorts by lag alone. There a thread that is still restoring a task gives it up for another task on the same
            disk with a slightly smaller lag. The thread rejoins immediately, before the new task is restored, and by
            then the old task has the smaller lag. While new records keep arriving, this never ends.
    """
    warnings: list[str] = []
    histories = {}
    for process_id, client in group.clients.items():
        histories[process_id] = _history(client, table, ends, warnings, tolerate_unknown, owned_first)
    return histories, warnings


def _history(
    client: Client, table: TaskTable, ends: EndOffsets, warnings: list[str], tolerate_unknown: bool, owned_first: bool
) -> ClientHistory:
    active = {table.task_of[tp] for tp in client.owner if tp in table.task_of}
    unknown = sorted(tp for tp in client.owner if tp not in table.task_of)
    if unknown:
        text = f"client {client.process_id} owns {', '.join(map(str, unknown))}, which no task reads"
        if not active and not tolerate_unknown:
            raise IllegalStateError(f"{text}, and no others; is another application using this application.id?")
        warnings.append(text)
    standby: set[TaskId] = set()
    for task, offset_sum in client.sums.items():
        if task not in active:
            (active if offset_sum == LATEST_OFFSET else standby).add(task)
    lags = {
        task: lag_from_offsets(offset_sum, ends.sums[task])
        for task, offset_sum in client.sums.items()
        if task in ends.sums
    }
    owned: dict[str, set[TaskId]] = {}
    if owned_first:
        for tp, consumer in client.owner.items():
            if tp in table.task_of:
                owned.setdefault(consumer, set()).add(table.task_of[tp])
    by_lag = {
        consumer: tasks_by_lag((task for task in tasks if task in lags), lags, owned.get(consumer, frozenset()))
        for consumer, tasks in client.reported.items()
    }
    return ClientHistory(frozenset(active), frozenset(standby), lags, by_lag)


def problem_of(
    group: Group,
    histories: Mapping[ProcessId, ClientHistory],
    table: TaskTable,
    ends: EndOffsets,
    *,
    configs: AssignmentConfigs,
    hash_sizing: HashSizing,
) -> AssignmentProblem:
    """Return the input of an assignor. Every container has the same order as in the Java leader."""
    return AssignmentProblem(
        clients=[_client_input(client, histories[process_id]) for process_id, client in group.clients.items()],
        tasks=table.tasks,
        end_offset_sums={task: ends.sums[task] for task in table.stateful},
        configs=configs,
        hash_sizing=hash_sizing,
    )


def _client_input(client: Client, history: ClientHistory) -> ClientInput:
    return ClientInput(
        process_id=client.process_id,
        capacity=len(client.consumers),
        tags=client.tags,
        rack=client.rack,
        previous_active=sorted(history.active),
        previous_standby=sorted(history.standby),
        lags=history.lags,
        consumers=_ascending(client.consumers),
        consumer_tasks={consumer: client.reported[consumer] for consumer in client.consumers},
        host=client.host,
    )


def _ascending(consumers: Sequence[str]) -> tuple[str, ...]:
    return tuple(consumers)  # members are decoded in ascending order
