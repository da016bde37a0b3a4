"""A task assignor of the application, the user's own or one of ours: well-behaved until a fault says otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final, cast

from streams_protocol.types import ProcessId, TaskId
from streams_py.assignment.api import (
    ApplicationState,
    AssignedTask,
    AssignmentError,
    GroupAssignment,
    GroupSubscription,
    KafkaStreamsAssignment,
    TaskAssignment,
    TaskAssignor,
    TaskType,
)
from streams_py.assignment.assignors.registry import choose_assignor, new_task_assignor
from streams_py.assignment.assignors.sticky import StickyTaskAssignor
from streams_py.errors import TaskAssignmentError

__all__ = ["ASSIGNOR_CLASS", "ASSIGNOR_MOOD", "MOODS", "SimulatedAssignor"]

ASSIGNOR_MOOD: Final = "simulated.assignor.mood"
ASSIGNOR_CLASS: Final = "simulated.assignor.class"
"""``package.module:Class`` of the user's own assignor; empty: the public sticky one."""

MOODS: Final = (
    "good",
    "raises",
    "refuses",
    "hangs",
    "returns nothing",
    "returns text",
    "task twice",
    "unknown task",
    "unknown process",
    "missing process",
    "standby without state",
    "naive deadline",
)
"""What the assignor can be made to do."""


class SimulatedAssignor(TaskAssignor):
    """Lets another assignor place the tasks, then spoils its answer according to its mood."""

    def __init__(self) -> None:
        self._mood = "good"
        self._inner: TaskAssignor = StickyTaskAssignor()

    def configure(self, configs: Mapping[str, object]) -> None:
        """Mood and class are configuration of the application."""
        self._mood = str(configs.get(ASSIGNOR_MOOD, "good"))
        chosen = choose_assignor(configs.get(ASSIGNOR_CLASS) or StickyTaskAssignor).task_assignor
        assert chosen is not None, "built-in assignors have names of their own in the simulator"
        self._inner = new_task_assignor(chosen, configs)

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        """A placement of all tasks, or whatever the mood makes of it."""
        if self._mood == "raises":
            raise RuntimeError("simulated bug of an assignor")
        if self._mood == "refuses":
            raise TaskAssignmentError("simulated refusal of an assignor")
        if self._mood == "returns nothing":
            return cast("TaskAssignment", None)
        if self._mood == "returns text":
            return TaskAssignment("nonsense")  # type: ignore[arg-type]  # that is the point
        answer = self._inner.assign(application_state)
        if self._mood == "good":
            return answer
        return TaskAssignment(self._spoiled(list(answer.assignment), application_state))

    def on_assignment_computed(
        self, assignment: GroupAssignment, subscription: GroupSubscription, error: AssignmentError
    ) -> None:
        """The other one hears of it."""
        self._inner.on_assignment_computed(assignment, subscription, error)

    def _spoiled(self, entries: list[KafkaStreamsAssignment], state: ApplicationState) -> list[KafkaStreamsAssignment]:
        tasks = [task for entry in entries for task in entry.tasks.values()]
        match self._mood:
            case "task twice":
                actives = [task.id for task in tasks if task.type is TaskType.ACTIVE]
                for entry in entries[:2]:
                    held = {task.id for task in entry.tasks.values()}
                    entry_task = next((task for task in actives if task not in held), None)
                    if entry_task is not None:
                        entry.assign_task(AssignedTask(entry_task, TaskType.ACTIVE))
            case "unknown task":
                entries[0].assign_task(AssignedTask(TaskId(99, 0), TaskType.ACTIVE))
            case "unknown process":
                stranger = ProcessId.parse("00000000-0000-0000-0000-0000000000ff")
                entries.append(KafkaStreamsAssignment(stranger))
            case "missing process":
                entries.pop()
            case "standby without state":
                stateless = [info.id for info in state.all_tasks().values() if not info.is_stateful]
                for entry in entries:
                    for id in stateless[:1]:
                        if id not in {task.id for task in entry.tasks.values()}:
                            entry.assign_task(AssignedTask(id, TaskType.STANDBY))
            case "naive deadline":
                entries[0] = entries[0].with_followup_rebalance(datetime(2030, 1, 1))  # the point
            case _:
                pass
        return entries
