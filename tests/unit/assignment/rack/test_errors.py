"""Rejected inputs, with scenario ids, and KIP-924's public functions with the optimiser."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from streams_protocol.types import TaskId, TopicPartition
from streams_py.assignment import task_assignment_utils as utils
from streams_py.assignment.api import AssignedTask, KafkaStreamsAssignment, TaskType
from streams_py.assignment.application_state import ProblemState, RackLookup, TaskDescription
from streams_py.assignment.configs import AssignmentConfigs
from streams_py.assignment.problem import AssignmentProblem, ClientInput
from streams_py.assignment.rack import optimiser_for, transport
from streams_py.errors import IllegalStateError
from tests.support.assignment.racks import STRATEGIES, optimise, placement, process_id

Replicas = dict[str, list[frozenset[str]]]


def state_of(
    inputs: dict[str, list[set[str]]],
    changelogs: dict[str, list[set[str]]] | None = None,
    *,
    racks: dict[str, str | None],
    configs: AssignmentConfigs | None = None,
) -> ProblemState:
    """Return an application whose task ``t`` reads topics in-0, in-1, ... with these replica racks."""
    known: dict[TopicPartition, frozenset[str]] = {}

    def partitions(task: TaskId, kind: str, replicas: list[set[str]]) -> list[TopicPartition]:
        found = [TopicPartition(f"{kind}-{task.subtopology}-{n}", task.partition) for n in range(len(replicas))]
        known.update({tp: frozenset(racks) for tp, racks in zip(found, replicas)})
        return found

    lookup = RackLookup(lambda: known)
    described = []
    for name, replicas in inputs.items():
        task = TaskId.parse(name)
        logged = partitions(task, "log", (changelogs or {}).get(name, []))
        described.append(
            TaskDescription.of(
                task,
                stores=("store",) if logged else (),
                sources=partitions(task, "in", replicas),
                changelogs=logged,
                racks=lookup,
            )
        )
    problem = AssignmentProblem(
        [ClientInput(process_id(name), rack=rack) for name, rack in racks.items()],
        [info.id for info in described],
        {},
        configs or AssignmentConfigs(rack_aware_assignment_strategy="min_traffic"),
    )
    return ProblemState(problem, lambda: described)


def assigned(text: str, role: TaskType = TaskType.ACTIVE) -> dict[object, KafkaStreamsAssignment]:
    return {
        process_id(name): KafkaStreamsAssignment(
            process_id(name), [AssignedTask(TaskId.parse(task), role) for task in tasks]
        )
        for name, tasks in placement(text).items()
    }


def owners(assignments: dict[object, KafkaStreamsAssignment], role: TaskType = TaskType.ACTIVE) -> dict[str, object]:
    return {
        str(task): process
        for process, entry in assignments.items()
        for task, found in entry.tasks.items()
        if found.type is role
    }


@pytest.mark.parametrize("racks", [pytest.param({TaskId(0, 0): [frozenset()]}, id="E1"), pytest.param({}, id="E7")])
def test_task_without_known_racks_is_an_error(racks: dict[TaskId, list[frozenset[str]]]) -> None:
    with pytest.raises(IllegalStateError, match="task 0_0 has a partition without rack information"):
        optimise(placement("P1: 0_0"), (10, 1), partitions=racks)


def params(state: ProblemState) -> utils.RackAwareOptimizationParams:
    return utils.RackAwareOptimizationParams(application_state=state, traffic_cost=10, non_overlap_cost=1)


def test_task_with_two_owners_is_an_error() -> None:  # E2
    state = state_of({"1_1": [{"a"}]}, racks={"P2": "a", "P5": "b"})
    with pytest.raises(ValueError, match="Task 1_1 assigned to multiple clients") as error:
        utils.optimize_rack_aware_active_tasks(params(state), assigned("P2: 1_1; P5: 1_1"))  # type: ignore[arg-type]  # a map
    assert str(process_id("P2")) in str(error.value)
    assert str(process_id("P5")) in str(error.value)


def test_task_without_an_owner_is_an_error() -> None:  # E3
    state = state_of({"1_0": [{"a"}]}, racks={"P1": "a"})
    chosen = replace(params(state), tasks=[TaskId(1, 0)])
    with pytest.raises(ValueError, match="Task 1_0 not assigned to any client"):
        utils.optimize_rack_aware_active_tasks(chosen, assigned("P1:"))  # type: ignore[arg-type]  # a map


@pytest.mark.parametrize("role", [TaskType.ACTIVE, TaskType.STANDBY])
def test_client_that_is_not_in_the_group_is_an_error(role: TaskType) -> None:
    state = state_of({"0_0": [{"a"}]}, {"0_0": [{"a"}]}, racks={"P1": "a"})
    optimise_role = {
        TaskType.ACTIVE: utils.optimize_rack_aware_active_tasks,
        TaskType.STANDBY: utils.optimize_rack_aware_standby_tasks,
    }[role]
    with pytest.raises(ValueError, match=f"{process_id('P7')}, which is not in the group"):
        optimise_role(params(state), assigned("P7: 0_0", role))  # type: ignore[arg-type]  # a map


def test_strategy_none_makes_no_optimiser() -> None:  # E5
    with pytest.raises(ValueError, match="switched off"):
        optimiser_for(active_racks={}, standby_racks={}, client_racks={}, strategy="none")


def test_client_without_a_rack_is_an_error() -> None:  # E6
    optimiser = optimiser_for(active_racks={}, standby_racks={}, client_racks={}, strategy="min_traffic")
    with pytest.raises(IllegalStateError, match=str(process_id("P1"))):
        optimiser.optimise_active([], [process_id("P1")], [], traffic_cost=1, non_overlap_cost=0)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_only_the_chosen_standbys_move(strategy: str) -> None:  # E8
    configs = AssignmentConfigs(rack_aware_assignment_strategy=strategy)
    tasks = ("0_0", "0_1", "1_0", "1_1")
    state = state_of(
        {task: [{"a", "b"}] for task in tasks},
        {"0_0": [{"b"}], "0_1": [{"a"}], "1_0": [{"b"}], "1_1": [{"a"}]},
        racks={"P1": "a", "P2": "b", "P3": "b"},
        configs=configs,
    )
    assignments = assigned("P1: 0_0 1_0; P2: 0_1 1_1; P3:", TaskType.STANDBY)
    for task in tasks:
        assignments[process_id("P3")].assign_task(AssignedTask(TaskId.parse(task), TaskType.ACTIVE))
    utils.optimize_rack_aware_standby_tasks(replace(params(state), tasks=[TaskId(0, 0), TaskId(0, 1)]), assignments)  # type: ignore[arg-type]  # a map
    p1, p2 = process_id("P1"), process_id("P2")
    assert owners(assignments, TaskType.STANDBY) == {"0_0": p2, "0_1": p1, "1_0": p1, "1_1": p2}
    utils.optimize_rack_aware_standby_tasks(params(state), assignments)  # type: ignore[arg-type]  # a map
    assert owners(assignments, TaskType.STANDBY) == {"0_0": p2, "0_1": p1, "1_0": p2, "1_1": p1}


def test_changelogs_count_for_actives_of_the_public_function() -> None:  # A21
    state = state_of(
        {"0_0": [{"r1"}], "0_1": [{"r1"}]}, {"0_0": [{"r2"}], "0_1": [{"r1"}]}, racks={"P1": "r1", "P2": "r2"}
    )
    assignments = assigned("P1: 0_0; P2: 0_1")
    utils.optimize_rack_aware_active_tasks(params(state), assignments)  # type: ignore[arg-type]  # a map
    assert owners(assignments) == {"0_0": process_id("P2"), "0_1": process_id("P1")}
    inputs = {TaskId(0, p): [frozenset({"r1"})] for p in (0, 1)}
    start = placement("P1: 0_0; P2: 0_1")
    assert optimise(start, (10, 1), partitions=inputs, racks_of={"P1": "r1", "P2": "r2"}) == start


def test_overrides_suffice_when_no_cost_is_configured() -> None:  # P14
    state = state_of({"0_0": [{"b"}], "0_1": [{"a"}]}, racks={"P1": "a", "P2": "b"})
    assignments = assigned("P1: 0_0; P2: 0_1")
    utils.optimize_rack_aware_active_tasks(params(state), assignments)  # type: ignore[arg-type]  # a map
    assert owners(assignments) == {"0_0": process_id("P2"), "0_1": process_id("P1")}


@pytest.mark.parametrize(
    ("racks", "replicas", "strategy", "override", "reason"),
    [
        ({"P1": "a", "P2": None}, {"a"}, "min_traffic", True, "has no client.rack"),
        ({"P1": "a", "P2": ""}, {"a"}, "min_traffic", True, "has no client.rack"),
        ({"P1": "a", "P2": "b"}, set(), "min_traffic", True, "the racks of in-0-0-1 are unknown"),
        ({"P1": "a", "P2": "b"}, {"a"}, "none", True, "strategy=none"),
        ({"P1": "a", "P2": "b"}, {"a"}, "min_traffic", False, "set rack.aware.assignment.traffic_cost"),
    ],
)
def test_public_function_says_why_it_does_nothing(
    racks: dict[str, str | None],
    replicas: set[str],
    strategy: str,
    override: bool,
    reason: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    configs = AssignmentConfigs(rack_aware_assignment_strategy=strategy)
    state = state_of({"0_0": [{"b"}], "0_1": [replicas]}, racks=racks, configs=configs)
    assignments = assigned("P1: 0_0; P2: 0_1")
    found = params(state) if override else utils.RackAwareOptimizationParams(application_state=state)
    with caplog.at_level(logging.WARNING, "streams_py.assignment"):
        utils.optimize_rack_aware_active_tasks(found, assignments)  # type: ignore[arg-type]  # a map
    assert owners(assignments) == {"0_0": process_id("P1"), "0_1": process_id("P2")}
    assert reason in caplog.text


def test_network_that_nobody_can_wait_for_is_not_solved(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(transport, "ARCS_MAX", 1)
    start = placement("P1: 0_1 1_1; P2: 1_0; P3: 0_0")
    assert optimise(start, (10, 1)) == start
    assert "differ too much" in caplog.text


def test_what_was_done_is_logged_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "streams_py.assignment"):
        optimise(placement("P1: 0_1 1_1; P2: 1_0; P3: 0_0"), (10, 1))
    assert [record.getMessage() for record in caplog.records] == [
        "rack optimisation of active tasks: tasks 4, signatures 4, racks 3, traffic_before 40, traffic_after 0, moved 4"
    ]
