"""A task assignor that does what a file says: decides unusually, or misbehaves."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

from streams_py.assignment.api import (
    ApplicationState,
    AssignedTask,
    KafkaStreamsAssignment,
    TaskAssignment,
    TaskAssignor,
    TaskType,
)
from streams_py.errors import TaskAssignmentError

MODE_FILE = "app.mode.file"


class Moody(TaskAssignor):
    """``split``: sub-topology 0 on the client with the smallest process id, 1 on the one with the largest. All other
    modes are ways to fail."""

    def configure(self, configs: Mapping[str, object]) -> None:
        self._mode = Path(str(configs[MODE_FILE])).read_text()

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        match self._mode:
            case "raise":
                raise ZeroDivisionError("moody today")
            case "refuse":
                raise TaskAssignmentError("refused on purpose")
            case "nonsense":
                return {"task": "somewhere"}  # type: ignore[return-value]  # nonsense on purpose
            case "twice":
                clients = application_state.kafka_streams_states()
                tasks = [AssignedTask(task, TaskType.ACTIVE) for task in application_state.all_tasks()]
                return TaskAssignment([KafkaStreamsAssignment(client, tasks) for client in clients])
            case "never":
                threading.Event().wait()
        return self._split(application_state)

    def _split(self, application_state: ApplicationState) -> TaskAssignment:
        clients = sorted(application_state.kafka_streams_states())
        assignments = {client: KafkaStreamsAssignment(client) for client in clients}
        for task in application_state.all_tasks():
            client = clients[0] if task.subtopology == 0 else clients[-1]
            assignments[client].assign_task(AssignedTask(task, TaskType.ACTIVE))
        return TaskAssignment(list(assignments.values()))


class NoAssignor:
    """Not what ``task.assignor.class`` wants."""
