"""Building blocks for task assignors: KIP-924's ``TaskAssignmentUtils``.

A typical assignor starts from :func:`identity_assignment`, or places active tasks by its own rule. Then
:func:`default_standby_task_assignment` and the rack optimisers refine the map ``process id -> assignment`` in place.

Deviations from Apache Kafka Streams:

* Standbys are spread over tags wherever this is possible.
* The rack optimisation runs with costs passed as parameters even if no cost is configured.
* The standby optimiser is limited to the chosen tasks (tasks without a standby are skipped) and respects client tags.
* Clients are visited in ascending order.
* "Stateful" means *with a changelog*.
"""

from __future__ import annotations

from streams_protocol.types import ProcessId
from streams_py.assignment.api import ApplicationState, AssignedTask, KafkaStreamsAssignment, TaskType
from streams_py.assignment.assignment_map import Assignments, add_missing, cluster_of, has_changelog, log_notes
from streams_py.assignment.java_order import in_hash_order, task_hash
from streams_py.assignment.rack_optimisation import (
    RackAwareOptimizationParams,
    optimize_rack_aware_active_tasks,
    optimize_rack_aware_standby_tasks,
)
from streams_py.assignment.standby.default import assign_default_standbys
from streams_py.assignment.standby.tag_aware import TagAwareStandbys
from streams_py.assignment.validation import validate_task_assignment

__all__ = [
    "RackAwareOptimizationParams",
    "default_standby_task_assignment",
    "identity_assignment",
    "optimize_rack_aware_active_tasks",
    "optimize_rack_aware_standby_tasks",
    "validate_task_assignment",
]


def identity_assignment(application_state: ApplicationState) -> dict[ProcessId, KafkaStreamsAssignment]:
    """Return an assignment in which every client keeps its previous active and standby tasks.

    The result may contain tasks that no longer exist, and tasks that ran on two clients.

    Raises:
        IllegalStateError: a client reports a task in both roles.
    """
    result = {}
    for process_id, state in application_state.kafka_streams_states().items():
        tasks = [AssignedTask(task, TaskType.ACTIVE) for task in state.previous_active_tasks]
        tasks += [AssignedTask(task, TaskType.STANDBY) for task in state.previous_standby_tasks]
        result[process_id] = KafkaStreamsAssignment(process_id, tasks)
    return result


# -- standbys ------------------------------------------------------------------------------------------------


def default_standby_task_assignment(
    application_state: ApplicationState, assignments: Assignments, *, reference_behaviour: bool = False
) -> None:
    """Add standbys in place: spread over client tags if tags are configured, otherwise by load.

    Each task with a changelog gets ``num.standby.replicas`` additional standbys, however many it already has. A client
    that has the task in any role is not eligible. With tags and 0 replicas each task still gets one standby, as in
    Kafka Streams.

    One warning in the log names the tasks that could not be spread over tags, or that lack clients, and says what to
    do. ``reference_behaviour`` limits the spread to what Kafka Streams finds.
    """
    states = application_state.kafka_streams_states()
    add_missing(states, assignments)
    tasks = application_state.all_tasks()
    logged = in_hash_order((t for t, info in tasks.items() if has_changelog(info)), task_hash)
    cluster = cluster_of(states, assignments, sorted(logged))
    number_of = {task: number for number, task in enumerate(cluster.tasks)}
    before = list(cluster.standby)
    order = [number_of[task] for task in logged]
    configs = application_state.assignment_configs()
    if configs.rack_aware_assignment_tags:
        tags = [states[process_id].client_tags for process_id in cluster.process_ids]
        tag_aware = TagAwareStandbys(cluster, tags, configs.rack_aware_assignment_tags, one_by_one=reference_behaviour)
        notes = tag_aware.assign(order, configs.num_standby_replicas)
    else:
        notes = assign_default_standbys(cluster, order, configs.num_standby_replicas)
    for number, task in enumerate(cluster.tasks):
        for client in sorted(set(cluster.standby[number]).difference(before[number])):
            assignments[cluster.process_ids[client]].assign_task(AssignedTask(task, TaskType.STANDBY))
    log_notes(notes)
