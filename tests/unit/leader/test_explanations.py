"""The inputs that the leader remembers for explanations, and the bounds of this memory."""

from __future__ import annotations

import uuid

from streams_protocol.types import ProcessId, TaskId
from streams_py.assignment.assignors.high_availability import HighAvailabilityAssignor
from streams_py.assignment.configs import AssignmentConfigs
from streams_py.assignment.problem import AssignmentProblem, ClientInput
from streams_py.leader.explanations import Explanations

TASKS = tuple(TaskId(0, number) for number in range(4))
ENDS = dict.fromkeys(TASKS, 100_000)


def problem(*lags: dict[TaskId, int]) -> AssignmentProblem:
    """Return a problem with one client for each table of reported lags; all tasks have state."""
    clients = [ClientInput(ProcessId(uuid.UUID(int=n)), lags=table) for n, table in enumerate(lags, 1)]
    return AssignmentProblem(tasks=TASKS, end_offset_sums=ENDS, clients=clients, configs=AssignmentConfigs())


def test_a_explanation_names_the_client_and_the_reason() -> None:
    explanations = Explanations()
    explanations.keep(1_000, problem(dict.fromkeys(TASKS, -2), {}), HighAvailabilityAssignor())
    [explained] = explanations.explanation(TaskId(0, 1))
    assert explained.assigned_at_ms == 1_000
    assert explained.explanation.task == TaskId(0, 1)
    assert str(explained).startswith(f"0_1 is active on {explained.explanation.active.process_id}")
    assert "because" in str(explained)


def test_the_explanation_agrees_with_the_decision() -> None:
    question = problem(dict.fromkeys(TASKS, -2), {}, {TASKS[0]: 5})
    decision = HighAvailabilityAssignor().decide(question)
    explanations = Explanations()
    explanations.keep(1, question, HighAvailabilityAssignor())
    for task in TASKS:
        [explained] = explanations.explanation(task)
        assert task in decision.placements[explained.explanation.active.process_id].active


def test_newest_assignment_comes_first_and_old_ones_are_forgotten() -> None:
    explanations = Explanations(assignments_max=3)
    for now_ms in (1, 2, 3, 4):
        explanations.keep(now_ms, problem({}), HighAvailabilityAssignor())
    assert [explained.assigned_at_ms for explained in explanations.explanation(TASKS[0])] == [4, 3, 2]


def test_memory_is_bounded_by_lags_but_the_newest_stays() -> None:
    explanations = Explanations(lags_max=5)
    big = problem(dict.fromkeys(TASKS, 7), dict.fromkeys(TASKS, 7))
    explanations.keep(1, problem({TASKS[0]: 7}), HighAvailabilityAssignor())
    explanations.keep(2, big, HighAvailabilityAssignor())
    assert [explained.assigned_at_ms for explained in explanations.explanation(TASKS[0])] == [2]
    assert len(explanations) == 1


def test_an_unknown_task_has_no_explanation() -> None:
    explanations = Explanations()
    explanations.keep(1, problem({}), HighAvailabilityAssignor())
    assert explanations.explanation(TaskId(9, 9)) == []
