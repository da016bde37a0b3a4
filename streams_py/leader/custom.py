"""Reading what the application's own task assignor returned (KIP-924).

The shell has made sure that it is a TaskAssignment (``streams_py.assignment.assignors.registry.call_assignor``). Here
its entries become placements, and the rules of KIP-924 are checked.
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
from streams_py.leader.probing import epoch_millis

__all__ = ["CustomAnswer", "read_assignment"]


@dataclass(frozen=True, slots=True)
class CustomAnswer:
    """What a custom assignor decided, with the first rule that it breaks. Deadlines in ms since the epoch."""

    placements: Mapping[ProcessId, Placement]
    deadlines: Mapping[ProcessId, int]
    error: AssignmentError

    def as_error(self, name: str) -> AssignorError:
        """The broken rule as an error that names the class."""
        return AssignorError(
            f"task assignor {name} returned an assignment that cannot be used: {self.error.value} ({self.error.name}); "
            "correct its assign method"
        )


def read_assignment(returned: TaskAssignment, state: ApplicationState, name: str) -> CustomAnswer:
    """The placements in ``returned``. AssignorError, naming the class, when a deadline is no instant."""
    placements = {}
    deadlines = {}
    for entry in returned.assignment:  # of two entries for one client the later counts, as in Kafka
        placements[entry.process_id] = Placement(_of(entry, TaskType.ACTIVE), _of(entry, TaskType.STANDBY))
        deadline = entry.followup_rebalance_deadline
        if deadline is not None:
            try:
                deadlines[entry.process_id] = epoch_millis(deadline)
            except ValueError as error:
                raise AssignorError(f"task assignor {name}, client {entry.process_id}: {error}") from error
    return CustomAnswer(placements, deadlines, validate_task_assignment(state, returned))


def _of(entry: KafkaStreamsAssignment, role: TaskType) -> list[TaskId]:
    return sorted(task.id for task in entry.tasks.values() if task.type is role)
