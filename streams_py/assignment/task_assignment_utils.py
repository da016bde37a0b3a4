"""Building blocks for task assignors: KIP-924's ``TaskAssignmentUtils``.

A typical assignor starts from :func:`identity_assignment`, or places actives by its own rule, and then lets
:func:`default_standby_task_assignment` and the rack optimisers refine the map ``process id -> assignment`` in place.

Where we differ from Apache Kafka Streams: standbys are spread over tags wherever that is possible at all;
rack optimisation runs with overridden costs even when no cost is configured;
the standby optimiser respects the chosen tasks (skipping those without a standby) and really honours client tags;
clients are taken in ascending order; "stateful" means *with changelog*.
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
    """Every client keeps its previous actives and standbys.

    Not filtered: tasks that no longer exist, tasks that two clients ran. IllegalStateError when a client reports a task
    in both roles.
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
    """Add standbys in place: over client tags when tags are configured, else by load.

    Tasks with a changelog get ``num.standby.replicas`` more standbys, whatever they have already; a client holding a
    task in any role is not eligible. With tags and 0 replicas, each task still gets one, as in Kafka Streams.

    One warning in the log tells which task could not be spread over which tags, or for which task there are too few
    clients, and what to do about it. ``reference_behaviour``: no better spread than Kafka Streams finds.
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
