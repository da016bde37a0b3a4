"""Rack optimisation for task assignors: KIP-924's entry points to KIP-925's optimiser.

This module checks whether the optimisation can run, converts the assignment map for the optimiser and writes the result
back. For an active task its inputs and changelogs count, for a standby only its changelogs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from streams_protocol.types import ProcessId, TaskId
from streams_py.assignment.api import ApplicationState, AssignedTask, TaskTopicPartition, TaskType
from streams_py.assignment.assignment_map import Assignments, add_missing, cluster_of
from streams_py.assignment.configs import STRATEGY_NONE
from streams_py.assignment.problem import RackOptimiser
from streams_py.assignment.rack import optimiser_for

_log = logging.getLogger("streams_py.assignment")


@dataclass(frozen=True, slots=True, kw_only=True)
class RackAwareOptimizationParams:
    """Parameters of the rack optimisers (KIP-924).

    Defaults: all tasks and the configured costs. ``traffic_cost`` is the cost of one partition read from another rack,
    ``non_overlap_cost`` the cost of moving a task.
    """

    application_state: ApplicationState
    """The state that the assignor got."""
    traffic_cost: int | None = None
    """Cost of a partition that is read from another rack. None: as configured."""
    non_overlap_cost: int | None = None
    """Cost of moving a task to another client. None: as configured."""
    tasks: Iterable[TaskId] | None = None
    """The tasks that may move. None: all tasks."""


def rack_strategy_set(application_state: ApplicationState) -> bool:
    """Whether ``rack.aware.assignment.strategy`` enables the rack optimisation."""
    return application_state.assignment_configs().rack_aware_assignment_strategy != STRATEGY_NONE


def optimize_rack_aware_active_tasks(params: RackAwareOptimizationParams, assignments: Assignments) -> None:
    """Exchange active tasks between clients in place, to read less from other racks (KIP-925).

    Every client keeps its number of tasks. The function changes nothing and logs the reason if no strategy is
    configured, if a cost is neither configured nor given, or if rack information is incomplete.

    Raises:
        ValueError: a task is not active on any client or on several clients, or the map has an unknown client.
    """
    tasks = _chosen(params, assignments, TaskType.ACTIVE)
    prepared = _prepare(params, tasks, assignments, lambda partition: True)
    if prepared is None:
        return
    client_of = {process_id: client for client, process_id in enumerate(prepared.clients)}
    owner_of: dict[TaskId, int] = {}
    for process_id, assignment in assignments.items():
        for task, assigned in assignment.tasks.items():
            if assigned.type is TaskType.STANDBY:
                continue
            if owner_of.setdefault(task, client_of[process_id]) != client_of[process_id]:
                other = prepared.clients[owner_of[task]]
                raise ValueError(f"Task {task} assigned to multiple clients {process_id}, {other}")
    for task in tasks:
        if task not in owner_of:
            raise ValueError(f"Task {task} not assigned to any client")
    owners = [owner_of[task] for task in tasks]
    new = prepared.optimiser.optimise_active(
        tasks, prepared.clients, owners, traffic_cost=prepared.traffic_cost, non_overlap_cost=prepared.non_overlap_cost
    )
    moves = [(task, old, dst) for task, old, dst in zip(tasks, owners, new) if old != dst]
    for task, old, _ in moves:
        assignments[prepared.clients[old]].remove_task(AssignedTask(task, TaskType.ACTIVE))
    for task, _, dst in moves:
        assignments[prepared.clients[dst]].assign_task(AssignedTask(task, TaskType.ACTIVE))


def optimize_rack_aware_standby_tasks(params: RackAwareOptimizationParams, assignments: Assignments) -> None:
    """Swap standbys between clients in place, to restore less from other racks (KIP-925).

    Works as for active tasks, but only changelogs count. With tags configured, no swap makes a task's copies less
    diverse.
    """
    tasks = _chosen(params, assignments, TaskType.STANDBY)
    prepared = _prepare(params, tasks, assignments, lambda partition: partition.is_changelog)
    if prepared is None:
        return
    states = params.application_state.kafka_streams_states()
    cluster = cluster_of(states, assignments, tasks)
    before = [set(hosts) for hosts in cluster.standby]
    keys = params.application_state.assignment_configs().rack_aware_assignment_tags
    tags = None
    if keys:
        tags = [frozenset(states[process_id].client_tags.items()) for process_id in cluster.process_ids]
    new = prepared.optimiser.optimise_standby(
        tasks,
        prepared.clients,
        cluster.active,
        [sorted(hosts) for hosts in before],
        traffic_cost=prepared.traffic_cost,
        non_overlap_cost=prepared.non_overlap_cost,
        tags=tags,
    )
    for task, old, hosts in zip(tasks, before, new):
        for client in sorted(old.difference(hosts)):
            assignments[prepared.clients[client]].remove_task(AssignedTask(task, TaskType.STANDBY))
        for client in sorted(set(hosts) - old):
            assignments[prepared.clients[client]].assign_task(AssignedTask(task, TaskType.STANDBY))


# -- preconditions -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Prepared:
    optimiser: RackOptimiser
    clients: Sequence[ProcessId]
    traffic_cost: int
    non_overlap_cost: int


def _chosen(params: RackAwareOptimizationParams, assignments: Assignments, role: TaskType) -> list[TaskId]:
    if params.tasks is not None:
        return sorted(set(params.tasks))
    found = {t for assignment in assignments.values() for t, a in assignment.tasks.items() if a.type is role}
    return sorted(found)


def _prepare(
    params: RackAwareOptimizationParams,
    tasks: Sequence[TaskId],
    assignments: Assignments,
    charged: Callable[[TaskTopicPartition], bool],
) -> _Prepared | None:
    """Return the optimiser and its input, or None after logging why it cannot run."""
    state = params.application_state
    configs = state.assignment_configs()
    if not tasks:
        return None
    if not rack_strategy_set(state):
        _log.warning("rack optimisation skipped: rack.aware.assignment.strategy=none")
        return None
    traffic = configs.rack_aware_traffic_cost if params.traffic_cost is None else params.traffic_cost
    non_overlap = configs.rack_aware_non_overlap_cost if params.non_overlap_cost is None else params.non_overlap_cost
    if traffic is None or non_overlap is None:
        missing = "traffic_cost" if traffic is None else "non_overlap_cost"
        _log.warning(
            "rack optimisation skipped: a cost is missing; set rack.aware.assignment.%s or pass the cost", missing
        )
        return None
    client_racks = _client_racks(state)
    partition_racks = _partition_racks(state, charged)
    if client_racks is None or partition_racks is None:
        return None
    for process_id in assignments:
        if process_id not in client_racks:
            raise ValueError(f"the assignments contain client {process_id}, which is not in the group")
    add_missing(state.kafka_streams_states(), assignments)
    optimiser = optimiser_for(
        active_racks=partition_racks,
        standby_racks=partition_racks,
        client_racks=client_racks,
        strategy=configs.rack_aware_assignment_strategy,
    )
    return _Prepared(optimiser, sorted(client_racks), traffic, non_overlap)


def _client_racks(state: ApplicationState) -> dict[ProcessId, str] | None:
    racks = {}
    for process_id, client in state.kafka_streams_states().items():
        if not client.rack_id:
            _log.error("rack optimisation skipped: client %s has no client.rack", process_id)
            return None
        racks[process_id] = client.rack_id
    return racks


def _partition_racks(
    state: ApplicationState, charged: Callable[[TaskTopicPartition], bool]
) -> dict[TaskId, list[frozenset[str]]] | None:
    """Return the racks of the counted partitions of every task, including tasks not to optimise."""
    racks: dict[TaskId, list[frozenset[str]]] = {}
    for task, info in state.all_tasks().items():
        racks[task] = []
        for partition in info.topic_partitions:
            if charged(partition):
                known = partition.rack_ids()
                if not known:
                    _log.error("rack optimisation skipped: the racks of %s are unknown", partition.topic_partition)
                    return None
                racks[task].append(known)
    return racks
