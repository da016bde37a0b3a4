"""A custom task assignor, the user's or the simulator's own, that a fault can make misbehave."""

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

ASSIGNOR_BEHAVIOUR: Final = "simulated.assignor.behaviour"
ASSIGNOR_CLASS: Final = "simulated.assignor.class"
"""Key of the user's assignor as ``package.module:Class``; empty: the public sticky assignor."""

BEHAVIOURS: Final = (
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
"""Behaviours of the simulated assignor."""


class SimulatedAssignor(TaskAssignor):
    """Lets another assignor place the tasks, then changes the answer according to the configured behaviour."""

    def __init__(self) -> None:
        self._behaviour = "good"
        self._inner: TaskAssignor = StickyTaskAssignor()

    def configure(self, configs: Mapping[str, object]) -> None:
        """Read behaviour and class of the other assignor from the application's configuration."""
        self._behaviour = str(configs.get(ASSIGNOR_BEHAVIOUR, "good"))
        chosen = choose_assignor(configs.get(ASSIGNOR_CLASS) or StickyTaskAssignor).task_assignor
        assert chosen is not None, "the simulator has separate names for the built-in assignors"
        self._inner = new_task_assignor(chosen, configs)

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        """Place all tasks, or misbehave as configured."""
        if self._behaviour == "raises":
            raise RuntimeError("simulated bug of an assignor")
        if self._behaviour == "refuses":
            raise TaskAssignmentError("simulated refusal of an assignor")
        if self._behaviour == "returns nothing":
            return cast("TaskAssignment", None)
        if self._behaviour == "returns text":
            return TaskAssignment("nonsense")  # type: ignore[arg-type]  # wrong on purpose
        answer = self._inner.assign(application_state)
        if self._behaviour == "good":
            return answer
        return TaskAssignment(self._spoiled(list(answer.assignment), application_state))

    def on_assignment_computed(
        self, assignment: GroupAssignment, subscription: GroupSubscription, error: AssignmentError
    ) -> None:
        """Pass the call on to the other assignor."""
        self._inner.on_assignment_computed(assignment, subscription, error)

    def _spoiled(self, entries: list[KafkaStreamsAssignment], state: ApplicationState) -> list[KafkaStreamsAssignment]:
        tasks = [task for entry in entries for task in entry.tasks.values()]
        match self._behaviour:
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
                entries[0] = entries[0].with_followup_rebalance(datetime(2030, 1, 1))  # without a time zone
            case _:
                pass
        return entries
