"""Validation of an assignment: the leader's check of a task assignor's answer (KIP-924).

As in Kafka Streams, these errors are not detected: tasks that no client gets, tasks assigned only as standby, and two
entries for one client.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from streams_protocol.types import ProcessId, TaskId
from streams_py.assignment.api import (
    ApplicationState,
    AssignmentError,
    KafkaStreamsAssignment,
    TaskAssignment,
    TaskInfo,
    TaskType,
)
from streams_py.assignment.java_order import in_hash_order, task_hash


def validate_task_assignment(application_state: ApplicationState, task_assignment: TaskAssignment) -> AssignmentError:
    """Return the first error found, or ``AssignmentError.NONE``.

    KIP-924's ``validateTaskAssignment``. Unknown tasks and repeated active tasks are searched in one pass. So the order
    of the collection (within a client: the order of a Java hash map) decides which of the two is reported. Then come
    invalid standbys, then missing clients, then unknown clients.
    """
    entries, tasks = task_assignment.assignment, application_state.all_tasks()
    found = _unknown_or_repeated(entries, tasks)
    if found is AssignmentError.NONE:
        found = _invalid_standby(entries, tasks)
    if found is AssignmentError.NONE:
        found = _wrong_clients(entries, application_state.kafka_streams_states().keys())
    return found


def _unknown_or_repeated(
    entries: Collection[KafkaStreamsAssignment], tasks: Mapping[TaskId, TaskInfo]
) -> AssignmentError:
    active: set[TaskId] = set()
    for entry in entries:
        for task in in_hash_order(entry.tasks, task_hash):
            if task not in tasks:
                return AssignmentError.UNKNOWN_TASK_ID
            if entry.tasks[task].type is TaskType.ACTIVE:
                if task in active:
                    return AssignmentError.ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES
                active.add(task)
    return AssignmentError.NONE


def _invalid_standby(entries: Collection[KafkaStreamsAssignment], tasks: Mapping[TaskId, TaskInfo]) -> AssignmentError:
    for entry in entries:
        for task, assigned in entry.tasks.items():
            if assigned.type is TaskType.STANDBY and not tasks[task].is_stateful:
                return AssignmentError.INVALID_STANDBY_TASK
    return AssignmentError.NONE


def _wrong_clients(entries: Collection[KafkaStreamsAssignment], clients: Collection[ProcessId]) -> AssignmentError:
    listed = {entry.process_id for entry in entries}
    if any(client not in listed for client in clients):
        return AssignmentError.MISSING_PROCESS_ID
    if any(client not in clients for client in listed):
        return AssignmentError.UNKNOWN_PROCESS_ID
    return AssignmentError.NONE
