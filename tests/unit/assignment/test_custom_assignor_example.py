"""Decisions of the example of a custom assignor."""

from __future__ import annotations

from dataclasses import replace

import pytest

from examples.custom_assignor import SETTINGS, HeavyOnLarge
from streams_protocol.types import TaskId, TopicPartition
from streams_py.assignment.api import AssignmentError, TaskType
from streams_py.assignment.application_state import ProblemState, TaskDescription
from streams_py.assignment.assignors.registry import call_assignor, choose_assignor, new_task_assignor
from streams_py.assignment.configs import AssignmentConfigs
from streams_py.assignment.problem import AssignmentProblem, ClientInput
from streams_py.assignment.validation import validate_task_assignment
from tests.support.assignment.scenario_language import process_id, tasks

ALL = tasks("0_0..3 1_0..3")


def client(number: int, size: str, *, threads: int = 1, before: str = "") -> ClientInput:
    return ClientInput(process_id(number), capacity=threads, tags={"size": size}, previous_active=tasks(before))


def decide(*clients: ClientInput, standbys: int = 0) -> dict[int, tuple[str, str]]:
    """Return active and standby tasks by client number, through the code path of production."""
    described = [
        TaskDescription.of(
            task,
            stores=("counts",) if task.subtopology == 1 else (),
            sources=[TopicPartition(f"in-{task.subtopology}", task.partition)],
            changelogs=[TopicPartition("log", task.partition)] if task.subtopology == 1 else (),
        )
        for task in ALL
    ]
    ends = {task: 100 for task in ALL if task.subtopology == 1}
    problem = AssignmentProblem(clients, ALL, ends, AssignmentConfigs(num_standby_replicas=standbys))
    state = ProblemState(problem, lambda: described)
    chosen = choose_assignor(SETTINGS["task.assignor.class"]).task_assignor
    assert chosen is HeavyOnLarge
    answer = call_assignor(new_task_assignor(chosen, SETTINGS), state)
    assert validate_task_assignment(state, answer) is AssignmentError.NONE
    result = {}
    for entry in answer.assignment:
        roles: dict[TaskType, list[TaskId]] = {TaskType.ACTIVE: [], TaskType.STANDBY: []}
        for task in entry.tasks.values():
            roles[task.type].append(task.id)
        active, standby = (" ".join(map(str, sorted(found))) for found in roles.values())
        result[entry.process_id.low] = (active, standby)
    return result


def test_heavy_tasks_run_on_large_clients_only() -> None:
    found = decide(client(1, "small"), client(2, "large"), client(3, "large"))
    assert found == {1: ("0_0 0_1 0_2", ""), 2: ("0_3 1_0 1_2", ""), 3: ("1_1 1_3", "")}


def test_heavy_tasks_run_anywhere_when_no_client_is_large() -> None:
    found = decide(client(1, "small"), client(2, "small"))
    assert found == {1: ("0_0 0_2 1_0 1_2", ""), 2: ("0_1 0_3 1_1 1_3", "")}


def test_nothing_moves_when_the_placement_is_fine() -> None:
    group = [client(1, "small"), client(2, "large", threads=2), client(3, "large")]
    found = decide(*group)
    again = decide(*(replace(c, previous_active=tasks(found[c.process_id.low][0])) for c in group))
    assert again == found


def test_only_what_is_needed_moves_when_a_large_client_joins() -> None:
    group = [client(1, "small", before="0_0 0_1 0_2 0_3"), client(2, "large", before="1_0 1_1 1_2 1_3")]
    found = decide(*group, client(3, "large"))
    assert found == {1: ("0_0 0_1 0_2", ""), 2: ("0_3 1_0 1_2", ""), 3: ("1_1 1_3", "")}


@pytest.mark.parametrize("size", ["small", "large"])
def test_stateful_tasks_get_their_standby(size: str) -> None:
    found = decide(client(1, size), client(2, "large"), standbys=1)
    assert sorted(" ".join(standby for _, standby in found.values()).split()) == ["1_0", "1_1", "1_2", "1_3"]
