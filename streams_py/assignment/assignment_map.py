"""Shared functions of ``TaskAssignmentUtils`` for a map ``process id -> assignment``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence

from streams_protocol.types import ProcessId, TaskId
from streams_py.assignment.api import ApplicationState, KafkaStreamsAssignment, KafkaStreamsState, TaskInfo, TaskType
from streams_py.assignment.assignors.cluster import Cluster
from streams_py.assignment.explanation import Host, Limits, Rule, TaskExplanation
from streams_py.assignment.problem import Note, sentences
from streams_py.errors import IllegalStateError

Assignments = MutableMapping[ProcessId, KafkaStreamsAssignment]
_log = logging.getLogger("streams_py.assignment")


def cluster_of(
    states: Mapping[ProcessId, KafkaStreamsState], assignments: Assignments, tasks: Sequence[TaskId]
) -> Cluster:
    """Convert the map to a Cluster over these (ascending) tasks.

    The load of a client counts all of its tasks in both roles.
    """
    process_ids = sorted(states)
    for process_id in process_ids:
        if states[process_id].num_processing_threads < 1:
            raise IllegalStateError(f"client {process_id} has no processing threads")
    cluster = Cluster(process_ids, [states[p].num_processing_threads for p in process_ids], tasks)
    number_of = {task: number for number, task in enumerate(tasks)}
    client_of = {process_id: client for client, process_id in enumerate(process_ids)}
    for process_id, assignment in assignments.items():
        client = client_of.get(process_id)
        if client is None:
            continue
        cluster.count[client] = len(assignment.tasks)
        for task, assigned in assignment.tasks.items():
            number = number_of.get(task)
            if number is None:
                continue
            if assigned.type is TaskType.ACTIVE and cluster.active[number] < 0:
                cluster.active[number] = client
            else:
                cluster.standby[number] += (client,)
    return cluster


def add_missing(states: Mapping[ProcessId, KafkaStreamsState], assignments: Assignments) -> None:
    """Add an empty entry for each client without an entry."""
    for process_id in states:
        if process_id not in assignments:
            assignments[process_id] = KafkaStreamsAssignment(process_id)


def has_changelog(info: TaskInfo) -> bool:
    """Whether the task has state to restore. This is what "stateful" means for placement."""
    return any(partition.is_changelog for partition in info.topic_partitions)


def log_notes(notes: Iterable[Note]) -> None:
    """Log notes for the operator as warnings."""
    for text in sentences(notes):
        _log.warning("%s", text)


def explanations_of(
    application_state: ApplicationState,
    entries: Iterable[KafkaStreamsAssignment],
    rule_of: Callable[[TaskId, ProcessId], Rule],
    desired: Mapping[TaskId, ProcessId],
) -> dict[TaskId, TaskExplanation]:
    """Return why each task is placed as the entries say.

    ``desired`` has the client that shall run a task in the end, if another client runs it now.
    """
    states = application_state.kafka_streams_states(compute_task_lags=True)
    configs = application_state.assignment_configs()
    logged = {task for task, info in application_state.all_tasks().items() if has_changelog(info)}
    hosts: dict[TaskId, dict[TaskType, list[Host]]] = {}
    for entry in sorted(entries, key=lambda entry: entry.process_id):
        state = states[entry.process_id]
        load = len(entry.tasks) / state.num_processing_threads
        for task, assigned in entry.tasks.items():
            lag = state.lag_for(task) if task in logged else None
            host = Host(entry.process_id, rule_of(task, entry.process_id), lag, load)
            hosts.setdefault(task, {TaskType.ACTIVE: [], TaskType.STANDBY: []})[assigned.type].append(host)
    warmups = sum(host.rule is Rule.WARMING_UP for roles in hosts.values() for host in roles[TaskType.STANDBY])
    limits = Limits(configs.acceptable_recovery_lag, configs.max_warmup_replicas, warmups, configs.num_standby_replicas)
    found = {}
    for task, roles in sorted(hosts.items(), key=lambda item: item[0]):
        if roles[TaskType.ACTIVE]:
            active, standbys = roles[TaskType.ACTIVE][0], tuple(roles[TaskType.STANDBY])
            wanted = desired.get(task, active.process_id)
            with_copy = {host.process_id for host in (active, *standbys)}
            waiting = () if wanted in with_copy else (wanted,)
            found[task] = TaskExplanation(task, active, wanted, limits, standbys, waiting)
    return found
