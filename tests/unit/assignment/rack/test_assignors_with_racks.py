"""The assignors with the rack optimiser: scenarios with their ids."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product

import pytest

from streams_protocol.types import ProcessId, TaskId
from streams_py.assignment.assignors.high_availability import HighAvailabilityAssignor
from streams_py.assignment.assignors.sticky import LegacyStickyAssignor
from streams_py.assignment.configs import AssignmentConfigs
from streams_py.assignment.problem import AssignmentProblem, BuiltInAssignor, ClientInput, Decision
from streams_py.assignment.rack import optimiser_for
from tests.support.assignment.racks import ACTIVE, RACKS, STANDBY, STRATEGIES, process_id, traffic

ALL = ("none", *STRATEGIES)


class Counting:
    """An optimiser that counts its calls."""

    def __init__(self) -> None:
        self.actives: list[int] = []
        self.standbys = 0

    def optimise_active(
        self, tasks: Sequence[TaskId], clients: Sequence[ProcessId], owners: Sequence[int], **costs: int
    ) -> Sequence[int]:
        self.actives.append(len(tasks))
        return owners

    def optimise_standby(
        self, tasks: object, clients: object, actives: object, standbys: Sequence[set[int]], **costs: object
    ) -> Sequence[set[int]]:
        self.standbys += 1
        return standbys


def problem(
    clients: Sequence[ClientInput],
    tasks: Sequence[TaskId],
    stateful: Sequence[TaskId],
    configs: AssignmentConfigs,
    *,
    racks: object = "real",
) -> AssignmentProblem:
    optimiser = racks
    if racks == "real" and configs.rack_aware_assignment_strategy != "none":
        rack_of = {client.process_id: client.rack or "" for client in clients}
        optimiser = optimiser_for(
            active_racks={task: ACTIVE.get(task) or [frozenset({"rack0"})] for task in tasks},
            standby_racks={task: STANDBY.get(task) or [frozenset({"rack0"})] for task in stateful},
            client_racks=rack_of,
            strategy=configs.rack_aware_assignment_strategy,
        )
    elif racks == "real":
        optimiser = None
    return AssignmentProblem(
        clients,
        sorted(tasks),
        dict.fromkeys(sorted(stateful), 100),
        configs,
        racks=optimiser,  # type: ignore[arg-type]  # real, fake or none
    )


def actives(decision: Decision) -> dict[str, list[str]]:
    return {f"P{process.low}": [str(task) for task in place.active] for process, place in decision.placements.items()}


def test_optimiser_is_called_for_each_kind_of_task() -> None:  # H1
    tasks = [TaskId(g, p) for g, p in product(range(3), range(2))]
    counting = Counting()
    clients = [ClientInput(process_id(name), rack=RACKS[name]) for name in ("P1", "P2", "P3")]
    configs = AssignmentConfigs(num_standby_replicas=1, rack_aware_assignment_strategy="min_traffic")
    HighAvailabilityAssignor().decide(problem(clients, tasks, tasks[:4], configs, racks=counting))
    assert (counting.actives, counting.standbys) == ([4, 2], 1)


@pytest.mark.parametrize(("strategy", "skew"), [("none", 1), ("min_traffic", 3), ("balance_subtopology", 4)])
def test_every_client_has_its_share_under_every_strategy(strategy: str, skew: int) -> None:  # H2
    tasks = [TaskId(g, p) for g, p in product(range(3), range(3))]
    clients = [ClientInput(process_id(name), rack=RACKS[name]) for name in ("P1", "P2", "P3")]
    configs = AssignmentConfigs(
        rack_aware_assignment_strategy=strategy, acceptable_recovery_lag=2**63 - 1, max_warmup_replicas=1
    )
    found = actives(HighAvailabilityAssignor().decide(problem(clients, tasks, tasks, configs)))
    assert [len(own) for own in found.values()] == [3, 3, 3]
    for group in range(3):
        held = [sum(TaskId.parse(task).subtopology == group for task in own) for own in found.values()]
        assert max(held) - min(held) <= skew


@pytest.mark.parametrize("strategy", ALL)
def test_tasks_warm_up_as_without_racks(strategy: str) -> None:  # H3
    tasks = [TaskId(g, p) for g, p in product(range(3), range(3))]
    clients = [
        ClientInput(process_id("P1"), rack="rack0", previous_active=tasks, lags=dict.fromkeys(tasks, 0)),
        ClientInput(process_id("P2"), rack="rack1", previous_standby=tasks, lags=dict.fromkeys(tasks, 10)),
        ClientInput(process_id("P3"), rack="rack2"),
    ]
    configs = AssignmentConfigs(
        acceptable_recovery_lag=11,
        max_warmup_replicas=2,
        num_standby_replicas=1,
        rack_aware_assignment_strategy=strategy,
    )
    decision = HighAvailabilityAssignor().decide(problem(clients, tasks, tasks, configs))
    held = {f"P{p.low}": len(place.active) + len(place.standby) for p, place in decision.placements.items()}
    assert held == {"P1": 9, "P2": 9, "P3": 2}
    assert decision.probing


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("standbys", [0, 1])
def test_probing_ends_after_changes_of_the_group(strategy: str, standbys: int) -> None:  # H4
    chance = random.Random(4)
    tasks = sorted(ACTIVE)[:12]
    configs = AssignmentConfigs(
        acceptable_recovery_lag=0,
        max_warmup_replicas=2,
        num_standby_replicas=standbys,
        rack_aware_assignment_strategy=strategy,
    )
    names = ["P1", "P2", "P3"]
    lags: dict[str, dict[TaskId, int]] = {}
    for _ in range(6):
        if len(names) > 2 and chance.random() < 0.5:
            lags.pop(names.pop(chance.randrange(len(names))), None)
        else:
            names.append(next(name for name in RACKS if name not in names))
        for _ in range(2 * len(tasks) * (1 + standbys)):
            clients = [ClientInput(process_id(name), rack=RACKS[name], lags=lags.get(name, {})) for name in names]
            decision = HighAvailabilityAssignor().decide(problem(clients, tasks, tasks, configs))
            placed = {f"P{process.low}": place for process, place in decision.placements.items()}
            assert sorted(task for place in placed.values() for task in place.active) == tasks
            lags = {
                name: dict.fromkeys(place.standby, 0) | dict.fromkeys(place.active, -2)
                for name, place in placed.items()
            }
            if not decision.probing:
                break
        assert not decision.probing


def sticky_case(strategy: str) -> Decision:
    def ids(text: str) -> list[TaskId]:
        return [TaskId.parse(task) for task in text.split()]

    previous = {"P1": "0_0 0_1 0_2", "P2": "0_3 1_0 1_1 1_3", "P3": "1_2"}
    clients = [ClientInput(process_id(n), rack=RACKS[n], previous_active=ids(own)) for n, own in previous.items()]
    tasks = ids("0_0 0_1 0_2 0_3 1_0 1_1 1_2 1_3")
    configs = AssignmentConfigs(
        num_standby_replicas=1,
        rack_aware_assignment_strategy=strategy,
        rack_aware_traffic_cost=10,
        rack_aware_non_overlap_cost=1,
    )
    return LegacyStickyAssignor().decide(problem(clients, tasks, ids("0_0 0_1 1_0 1_1"), configs))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_sticky_placement_is_optimised(strategy: str) -> None:  # H5
    def parts(found: dict[str, list[str]]) -> tuple[int, int]:
        stateful = {"0_0", "0_1", "1_0", "1_1"}
        return (
            traffic({name: [task for task in own if task in stateful] for name, own in found.items()}),
            traffic({name: [task for task in own if task not in stateful] for name, own in found.items()}),
        )

    assert parts(actives(sticky_case("none"))) == (3, 4)
    assert parts(actives(sticky_case(strategy))) == (0, 0)


@pytest.mark.parametrize("make", [HighAvailabilityAssignor, LegacyStickyAssignor])
def test_nothing_moves_when_traffic_costs_nothing(make: type[BuiltInAssignor]) -> None:  # H6
    chance = random.Random(6)
    tasks = sorted(ACTIVE)
    clients = [
        ClientInput(process_id(name), rack=RACKS[name], previous_active=sorted(chance.sample(tasks, 3)))
        for name in ("P1", "P2", "P3", "P4")
    ]
    results = []
    for strategy in ("none", "min_traffic"):
        configs = AssignmentConfigs(
            num_standby_replicas=1,
            rack_aware_assignment_strategy=strategy,
            rack_aware_traffic_cost=0,
            rack_aware_non_overlap_cost=10,
            rack_aware_assignment_tags=("zone",),
        )
        results.append(make().decide(problem(clients, tasks, tasks, configs)).placements)
    assert results[0] == results[1]
