"""Conversion and validation of the answer of the application's task assignor (KIP-924).

The executor has made sure that all values of the answer have this library's types and cannot change later
(:mod:`streams_py.assignment.assignors.answer`). This module converts its entries to placements and checks the rules of
KIP-924.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streams_protocol.types import ProcessId, TaskId
from streams_py.assignment.api import (
    ApplicationState,
    AssignmentError,
    KafkaStreamsAssignment,
    TaskAssignment,
    TaskType,
)
from streams_py.assignment.problem import Placement
from streams_py.assignment.validation import validate_task_assignment
from streams_py.errors import AssignorError
from streams_py.leader.steps.probing import epoch_millis


@dataclass(frozen=True, slots=True)
class CustomAnswer:
    """The decision of a custom assignor, with the first rule that it breaks.

    ``deadlines`` are in ms since the epoch.
    """

    placements: Mapping[ProcessId, Placement]
    deadlines: Mapping[ProcessId, int]
    error: AssignmentError
    culprit: str = ""

    def as_error(self, name: str) -> AssignorError:
        """Return the broken rule as an error that names the class, the task and the client."""
        return AssignorError(
            f"task assignor {name} returned an assignment that cannot be used: {self.error.value}: {self.culprit} "
            f"({self.error.name}); correct its assign method"
        )


def read_assignment(
    returned: TaskAssignment, state: ApplicationState, name: str, *, reference_behaviour: bool = False
) -> CustomAnswer:
    """Return the placements in ``returned``.

    With ``reference_behaviour`` the later of two entries for one client counts, as in Kafka Streams.

    Raises:
        AssignorError: a client has two entries. One of them, and its tasks, would be lost.
    """
    placements: dict[ProcessId, Placement] = {}
    deadlines = {}
    for entry in returned.assignment:
        if entry.process_id in placements and not reference_behaviour:
            raise AssignorError(
                f"task assignor {name} returned two entries for client {entry.process_id}; "
                "put all of its tasks into one"
            )
        placements[entry.process_id] = Placement(_of(entry, TaskType.ACTIVE), _of(entry, TaskType.STANDBY))
        deadline = entry.followup_rebalance_deadline
        if deadline is not None:
            deadlines[entry.process_id] = epoch_millis(deadline)
    broken = validate_task_assignment(state, returned)
    return CustomAnswer(placements, deadlines, broken, _culprit(broken, returned, state))


def _culprit(error: AssignmentError, returned: TaskAssignment, state: ApplicationState) -> str:
    """Return the first task or client that breaks the rule."""
    if error is AssignmentError.NONE:
        return ""
    tasks, clients = state.all_tasks(), state.kafka_streams_states()
    given = {entry.process_id for entry in returned.assignment}
    owners: dict[TaskId, ProcessId] = {}
    for entry in returned.assignment:
        for task in sorted(entry.tasks):
            active = entry.tasks[task].type is TaskType.ACTIVE
            where = f"{task} on client {entry.process_id}"
            if error is AssignmentError.UNKNOWN_TASK_ID and task not in tasks:
                return where
            if error is AssignmentError.INVALID_STANDBY_TASK and not active and not tasks[task].is_stateful:
                return where
            if error is AssignmentError.ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES and active and task in owners:
                return f"{task} on clients {owners[task]} and {entry.process_id}"
            if active:
                owners[task] = entry.process_id
    missing = given - clients.keys() if error is AssignmentError.UNKNOWN_PROCESS_ID else clients.keys() - given
    return f"client {min(missing)}" if missing else ""


def _of(entry: KafkaStreamsAssignment, role: TaskType) -> list[TaskId]:
    return sorted(task.id for task in entry.tasks.values() if task.type is role)
