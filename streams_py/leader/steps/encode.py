"""Placements to the bytes that each member receives.

This module implements the cooperative protocol (KIP-429). A member receives a task only if no other member claims any
of its partitions. Otherwise the *whole* task is withheld in this generation. Its current owner sees that it lost the
task, gives it up and rejoins. The member that shall receive it must rejoin immediately, and the next generation
hands the task over. If the receiving client had the task as a standby, it keeps the standby until then, so that its
state stays open.

Source: Kafka Streams' ``StreamsPartitionAssignor.computeNewAssignment`` and ``addClientAssignments``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from streams_protocol import (
    FOLLOW_UP_NOW,
    NO_FOLLOW_UP,
    AssignmentInfo,
    ErrorCode,
    TaskAssignmentProtocolError,
    encode_assignment_info,
    error_assignment,
)
from streams_protocol.types import HostInfo, ProcessId, TaskId, TopicPartition
from streams_py.assignment.problem import Placement
from streams_py.errors import TaskAssignmentError
from streams_py.leader.steps.decode import Client, Group
from streams_py.leader.steps.state import ClientHistory
from streams_py.leader.steps.tasks import TaskTable
from streams_py.leader.steps.threads import distribute_client
from streams_py.ports import MemberAssignment

_MIN_VERSION_HOST_MAPS = 2

PartitionsByHost = dict[HostInfo, frozenset[TopicPartition]]


@dataclass(frozen=True, slots=True)
class ClientThreads:
    """The tasks of each consumer of one client."""

    active: Mapping[str, Collection[TaskId]]
    standby: Mapping[str, Collection[TaskId]]


def spread_over_threads(
    group: Group,
    histories: Mapping[ProcessId, ClientHistory],
    table: TaskTable,
    placements: Mapping[ProcessId, Placement],
    *,
    custom: bool,
) -> dict[ProcessId, ClientThreads]:
    """Distribute each client's tasks over its threads.

    ``custom`` is True for the placements of a custom assignor.
    """
    spread = {}
    for process_id, client in group.clients.items():
        placement = placements.get(process_id, _NOTHING)
        by_lag = histories[process_id].by_lag
        active, standby = distribute_client(
            stateful=[task for task in placement.active if table.is_stateful(task)],
            standby=placement.standby,
            stateless=[task for task in placement.active if not table.is_stateful(task)],
            consumers=client.consumers,
            previous=by_lag.__getitem__,
            standby_in_hash_order=custom,
        )
        spread[process_id] = ClientThreads(active, standby)
    return spread


_NOTHING = Placement([], [])


def host_maps(
    group: Group, threads: Mapping[ProcessId, ClientThreads], table: TaskTable
) -> tuple[PartitionsByHost, PartitionsByHost]:
    """Return the (active, standby) input partitions of each endpoint.

    Both are empty when a member uses a version without host maps. The maps show where tasks are *going*, so a withheld
    task is listed under its future owner.
    """
    active: PartitionsByHost = {}
    standby: PartitionsByHost = {}
    if group.min_received_version < _MIN_VERSION_HOST_MAPS:
        return active, standby
    for process_id, client in group.clients.items():
        if client.host is not None:
            active[client.host] = _inputs(threads[process_id].active, table)
            standby[client.host] = _inputs(threads[process_id].standby, table)
    return active, standby


def _inputs(tasks: Mapping[str, Collection[TaskId]], table: TaskTable) -> frozenset[TopicPartition]:
    return frozenset(tp for mine in tasks.values() for task in mine for tp in table.inputs[task])


def encode_assignments(
    group: Group,
    histories: Mapping[ProcessId, ClientHistory],
    table: TaskTable,
    threads: Mapping[ProcessId, ClientThreads],
    deadlines: Mapping[ProcessId, int],
) -> tuple[dict[str, MemberAssignment], bool]:
    """Return (each usable member's assignment in ascending order, whether the group is stable).

    ``deadlines`` are the follow-up times of clients, in ms since the epoch.

    Raises:
        TaskAssignmentError: something cannot be encoded.
    """
    encoder = _Encoder(group, host_maps(group, threads, table))
    stable = group.future_version is None and not deadlines
    by_member: dict[str, MemberAssignment] = {}
    for process_id, client in group.clients.items():
        deadline = deadlines.get(process_id)
        for consumer in client.consumers:
            mine = threads[process_id]
            pairs, withheld = _split(client, consumer, mine.active[consumer], table, group.claimed)
            standby = {task: frozenset(table.inputs[task]) for task in mine.standby[consumer]}
            for task in withheld:
                if table.is_stateful(task) and task in histories[process_id].standby:
                    standby[task] = frozenset(table.inputs[task])
            if withheld:
                stable, next_ms, deadline = False, FOLLOW_UP_NOW, None
            elif deadline is not None:
                next_ms, deadline = deadline, None
            else:
                next_ms = NO_FOLLOW_UP
            by_member[consumer] = encoder.encode(pairs, standby, next_ms)
    return {member: by_member[member] for member in group.members}, stable


def _split(
    client: Client, consumer: str, tasks: Collection[TaskId], table: TaskTable, claimed: frozenset[TopicPartition]
) -> tuple[list[tuple[TopicPartition, TaskId]], list[TaskId]]:
    """Return a consumer's (partition, task) pairs in ascending order, and the withheld tasks."""
    owner = client.owner
    pairs: list[tuple[TopicPartition, TaskId]] = []
    withheld = []
    for task in tasks:
        inputs = table.inputs[task]
        if any(tp in claimed and owner.get(tp) != consumer for tp in inputs):
            withheld.append(task)
        else:
            pairs.extend((tp, task) for tp in inputs)
    pairs.sort()
    return pairs, withheld


class _Encoder:
    """Encodes the user data of one generation.

    Versions and host maps are the same for all members. In a group of a thousand members with endpoints the host maps
    are nearly all of the bytes. So the encoder encodes them once and inserts the bytes into each member's data: after
    the tasks, which are encoded without host maps, and before the error code and the follow-up time.
    """

    def __init__(self, group: Group, hosts: tuple[PartitionsByHost, PartitionsByHost]) -> None:
        version = group.min_received_version
        self._common = AssignmentInfo(
            version=version, commonly_supported_version=group.min_supported_version, error_code=ErrorCode.NONE
        )
        self._tail_bytes = 12 if version >= 7 else 4 if version >= 4 else 0  # error code, follow-up
        self._empty_bytes = 12 if version >= 6 else 8 if version == 5 else 4 if version >= 2 else 0  # three counts
        full = _encoded(replace(self._common, partitions_by_host=hosts[0], standby_partitions_by_host=hosts[1]))
        head_bytes = len(_encoded(self._common)) - self._empty_bytes - self._tail_bytes
        self._hosts = full[head_bytes : len(full) - self._tail_bytes]

    def encode(
        self,
        pairs: list[tuple[TopicPartition, TaskId]],
        standby: Mapping[TaskId, frozenset[TopicPartition]],
        next_rebalance_ms: int,
    ) -> MemberAssignment:
        data = _encoded(
            replace(
                self._common,
                active_tasks=tuple(task for _, task in pairs),
                standby_tasks=standby,
                next_rebalance_ms=next_rebalance_ms,
            )
        )
        tail = len(data) - self._tail_bytes
        data = data[: tail - self._empty_bytes] + self._hosts + data[tail:]
        return MemberAssignment(tuple(tp for tp, _ in pairs), data)


def _encoded(info: AssignmentInfo) -> bytes:
    try:
        return encode_assignment_info(info)
    except TaskAssignmentProtocolError as error:
        raise TaskAssignmentError(str(error)) from error


def error_assignments(members: Collection[str], code: ErrorCode) -> dict[str, MemberAssignment]:
    """Return an assignment without tasks, only with an error code, for every member."""
    data = encode_assignment_info(error_assignment(int(code)))
    return {member: MemberAssignment((), data) for member in members}
