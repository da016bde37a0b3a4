"""Draft assignors for the backtest. Most of them are faulty."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Mapping
from typing import Any

from streams_protocol.types import ProcessId, TaskId
from streams_py.assignment import (
    ApplicationState,
    AssignedTask,
    KafkaStreamsAssignment,
    TaskAssignment,
    TaskAssignor,
    TaskType,
)

_calls = itertools.count()

Assignments = dict[ProcessId, KafkaStreamsAssignment]


def give(assignments: Assignments, client: ProcessId, task: TaskId, role: TaskType = TaskType.ACTIVE) -> None:
    assignments[client].assign_task(AssignedTask(task, role))


class InTurn(TaskAssignor):
    """A correct assignor: task after task, client after client."""

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        clients = sorted(application_state.kafka_streams_states())
        assignments = {client: KafkaStreamsAssignment(client) for client in clients}
        for number, task in enumerate(sorted(application_state.all_tasks())):
            give(assignments, clients[number % len(clients)], task)
        self.spoil(assignments, clients, application_state)
        return TaskAssignment(list(assignments.values()))

    def spoil(self, assignments: Assignments, clients: list[ProcessId], state: ApplicationState) -> None:
        """The part that other assignors use."""


class Configured(InTurn):
    """Puts everything on the client with the number in ``app.client``."""

    def configure(self, configs: Mapping[str, object]) -> None:
        self.number = int(str(configs["app.client"]))

    def spoil(self, assignments: Assignments, clients: list[ProcessId], state: ApplicationState) -> None:
        for client in clients:
            assignments[client] = KafkaStreamsAssignment(client)
        for task in state.all_tasks():
            give(assignments, clients[self.number], task)


class Raises(InTurn):
    def spoil(self, assignments: Assignments, clients: list[ProcessId], state: ApplicationState) -> None:
        raise KeyError("no such zone")


class RaisesForThree(InTurn):
    """Fails if the group has three clients."""

    def spoil(self, assignments: Assignments, clients: list[ProcessId], state: ApplicationState) -> None:
        if len(clients) == 3:
            raise ValueError("three is too many")


class Exits(InTurn):
    def spoil(self, assignments: Assignments, clients: list[ProcessId], state: ApplicationState) -> None:
        sys.exit("enough")


class Twice(InTurn):
    def spoil(self, assignments: Assignments, clients: list[ProcessId], state: ApplicationState) -> None:
        for client in clients:
            give(assignments, client, min(state.all_tasks()))


class ForgetsAClient(InTurn):
    def spoil(self, assignments: Assignments, clients: list[ProcessId], state: ApplicationState) -> None:
        del assignments[clients[-1]]


class ForgetsATask(InTurn):
    def spoil(self, assignments: Assignments, clients: list[ProcessId], state: ApplicationState) -> None:
        task = min(state.all_tasks())
        for assignment in assignments.values():
            assignment.remove_task(AssignedTask(task, TaskType.ACTIVE))


class ReturnsNonsense(TaskAssignor):
    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        nonsense: Any = {"all": "yours"}
        return nonsense


class ChangesItsInput(InTurn):
    """Reaches behind the interface and clears what a client reported."""

    def spoil(self, assignments: Assignments, clients: list[ProcessId], state: ApplicationState) -> None:
        hidden: Any = state
        for client in hidden._problem.clients:  # a private attribute, on purpose
            client.lags.clear()


class ChangesItsMind(InTurn):
    """Counts its calls, over all instances."""

    def spoil(self, assignments: Assignments, clients: list[ProcessId], state: ApplicationState) -> None:
        task = min(state.all_tasks())
        for client in clients:
            assignments[client].remove_task(AssignedTask(task, TaskType.ACTIVE))
        give(assignments, clients[next(_calls) % len(clients)], task)


class Endless(InTurn):
    """Catches all exceptions and continues."""

    def spoil(self, assignments: Assignments, clients: list[ProcessId], state: ApplicationState) -> None:
        while True:
            try:
                time.monotonic()
            except Exception:
                continue


class Flaps(InTurn):
    """Moves every task to the client after the one that ran it."""

    def spoil(self, assignments: Assignments, clients: list[ProcessId], state: ApplicationState) -> None:
        states = state.kafka_streams_states()
        for client in clients:
            assignments[client] = KafkaStreamsAssignment(client)
        for task in state.all_tasks():
            had = [n for n, client in enumerate(clients) if task in states[client].previous_active_tasks]
            give(assignments, clients[(had[0] + 1) % len(clients) if had else 0], task)


class Rolls(InTurn):
    """Assigns randomly, with the module ``random``, which the backtest seeds."""

    def spoil(self, assignments: Assignments, clients: list[ProcessId], state: ApplicationState) -> None:
        import random

        for client in clients:
            assignments[client] = KafkaStreamsAssignment(client)
        for task in sorted(state.all_tasks()):
            give(assignments, random.choice(clients), task)
