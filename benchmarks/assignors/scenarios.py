"""Groups for which tasks are placed, equal for both sides, with ids as in production.

A scenario is a name such as ``high_availability/10000x1000/r1/joined``. It determines, in every process, random process
ids, tasks of four sub-topologies with a changelog each, and the history of the group:

* cold: no client has state.
* steady: every client still has the tasks of the placement from cold, running or caught up.
* joined: as steady, with one more client without state.
* left: as steady, without one of the clients.

``min_traffic`` scenarios place no tasks: the tasks are distributed round robin, and the rack optimiser exchanges them.
"""

from __future__ import annotations

import hashlib
import random
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from streams_protocol import LATEST_OFFSET
from streams_protocol.types import ProcessId, TaskId, TopicPartition
from streams_py.assignment.api import TaskAssignment, TaskType
from streams_py.assignment.application_state import ProblemState, TaskDescription
from streams_py.assignment.assignors.high_availability import HighAvailabilityAssignor
from streams_py.assignment.assignors.sticky import LegacyStickyAssignor, StickyTaskAssignor
from streams_py.assignment.configs import STRATEGY_MIN_TRAFFIC, AssignmentConfigs
from streams_py.assignment.java_order import HashSizing
from streams_py.assignment.problem import AssignmentProblem, ClientInput
from streams_py.assignment.rack import optimiser_for

MIN_TRAFFIC: Final = "min_traffic"
TRAFFIC_COST: Final = 10
NON_OVERLAP_COST: Final = 1

_SUBTOPOLOGIES: Final = 4
_SEED: Final = 441
_RACKS: Final = ("eu-1a", "eu-1b", "eu-1c")
_REPLICAS: Final = 2
_INPUTS: Final = ("orders", "payments")

Placements = Mapping[ProcessId, tuple[Sequence[TaskId], Sequence[TaskId]]]
"""(active, standby) tasks of each client."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """An assignor, numbers of tasks, clients and standbys, and the history of the group."""

    assignor: str
    tasks: int
    clients: int
    replicas: int
    situation: str

    @classmethod
    def parse(cls, name: str) -> Scenario:
        """Parse a scenario; the inverse of ``str``."""
        assignor, size, replicas, situation = name.split("/")
        tasks, _, clients = size.partition("x")
        return cls(assignor, int(tasks), int(clients), int(replicas.removeprefix("r")), situation)

    def __str__(self) -> str:
        return f"{self.assignor}/{self.tasks}x{self.clients}/r{self.replicas}/{self.situation}"


def tasks_of(count: int) -> list[TaskId]:
    """Return tasks of four sub-topologies, in ascending order."""
    partitions = -(-count // _SUBTOPOLOGIES)
    return [TaskId(number // partitions, number % partitions) for number in range(count)]


def process_ids(count: int) -> list[ProcessId]:
    """Return random process ids, the same in every call."""
    source = random.Random(_SEED)
    return [ProcessId(uuid.UUID(int=source.getrandbits(128), version=4)) for _ in range(count)]


def problem_of(scenario: Scenario, sizing: HashSizing) -> AssignmentProblem:
    """Return the input of the assignor. Clients and tasks are in ascending order, as the JVM side inserts them."""
    tasks = tasks_of(scenario.tasks)
    ids = process_ids(scenario.clients + 1)
    newcomer = ids.pop()
    source = random.Random(_SEED)
    cold = AssignmentProblem(
        [ClientInput(process_id) for process_id in sorted(ids)],
        tasks,
        {task: source.randrange(1_000_000, 2_000_000) for task in tasks},
        AssignmentConfigs(num_standby_replicas=scenario.replicas),
        hash_sizing=sizing,
    )
    if scenario.situation == "cold":
        return cold
    clients = [_after(process_id, *tasks) for process_id, tasks in place(scenario.assignor, cold).items()]
    if scenario.situation == "joined":
        clients.append(ClientInput(newcomer))
    elif scenario.situation == "left":
        clients = [client for client in clients if client.process_id != ids[0]]
    return replace(cold, clients=sorted(clients, key=lambda client: client.process_id))


def _after(process_id: ProcessId, active: Sequence[TaskId], standby: Sequence[TaskId]) -> ClientInput:
    lags = dict.fromkeys(active, LATEST_OFFSET) | dict.fromkeys(standby, 0)
    return ClientInput(process_id, previous_active=sorted(active), previous_standby=sorted(standby), lags=lags)


def place(assignor: str, problem: AssignmentProblem) -> Placements:
    """Place the tasks with this library's assignor."""
    match assignor:
        case "high_availability":
            return HighAvailabilityAssignor().decide(problem).placements
        case "legacy_sticky":
            return LegacyStickyAssignor().decide(problem).placements
        case "sticky":
            return _read(StickyTaskAssignor(hash_sizing=problem.hash_sizing).assign(application_of(problem)))
    raise ValueError(f"no assignor {assignor}")


def application_of(problem: AssignmentProblem) -> ProblemState:
    """Return the problem for a public assignor, in which every task has a store, an input and a changelog."""

    def describe() -> list[TaskDescription]:
        return [
            TaskDescription.of(
                task,
                stores=("store",),
                sources=(TopicPartition(f"in-{task.subtopology}", task.partition),),
                changelogs=(TopicPartition(f"changelog-{task.subtopology}", task.partition),),
            )
            for task in problem.tasks
        ]

    return ProblemState(problem, describe)


def _read(answer: TaskAssignment) -> Placements:
    found: dict[ProcessId, tuple[list[TaskId], list[TaskId]]] = {}
    for entry in answer.assignment:
        active, standby = found.setdefault(entry.process_id, ([], []))
        for task, assigned in entry.tasks.items():
            (active if assigned.type is TaskType.ACTIVE else standby).append(task)
    return found


def outcome_of(placements: Placements) -> str:
    """Return a checksum of the decision's text; the JVM side computes the same."""
    digest = hashlib.sha256()
    for process_id in sorted(placements):
        active, standby = placements[process_id]
        digest.update(f"{process_id}:{_text(active)};{_text(standby)}\n".encode())
    return digest.hexdigest()


def _text(tasks: Sequence[TaskId]) -> str:
    return " ".join(map(str, sorted(tasks)))


# -- racks -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RackCase:
    """Tasks distributed to clients in turn. ``racks``: racks of each input partition of a task."""

    tasks: list[TaskId]
    clients: list[ProcessId]
    rack_of: dict[ProcessId, str]
    owners: list[int]
    racks: dict[TaskId, list[frozenset[str]]]

    def cost(self, owners: Sequence[int]) -> int:
        """Return the cost of a placement: reads from other racks, and moved tasks."""
        foreign = moved = 0
        for task, before, owner in zip(self.tasks, self.owners, owners):
            rack = self.rack_of[self.clients[owner]]
            foreign += sum(rack not in racks for racks in self.racks[task])
            moved += owner != before
        return foreign * TRAFFIC_COST + moved * NON_OVERLAP_COST


def rack_case(scenario: Scenario) -> RackCase:
    """Return a case with three racks. Each task reads two partitions, each with two replicas in random racks."""
    source = random.Random(_SEED)
    tasks, clients = tasks_of(scenario.tasks), sorted(process_ids(scenario.clients))
    return RackCase(
        tasks,
        clients,
        {process_id: _RACKS[number % len(_RACKS)] for number, process_id in enumerate(clients)},
        [number % len(clients) for number in range(len(tasks))],
        {task: [frozenset(source.sample(_RACKS, _REPLICAS)) for _ in _INPUTS] for task in tasks},
    )


def exchange(case: RackCase) -> Sequence[int]:
    """Run this library's optimiser; return the new owners."""
    optimiser = optimiser_for(
        active_racks=case.racks, standby_racks=case.racks, client_racks=case.rack_of, strategy=STRATEGY_MIN_TRAFFIC
    )
    return optimiser.optimise_active(
        case.tasks, case.clients, case.owners, traffic_cost=TRAFFIC_COST, non_overlap_cost=NON_OVERLAP_COST
    )
