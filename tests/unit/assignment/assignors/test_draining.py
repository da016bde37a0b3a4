"""Tasks that a draining client keeps, and the clients that take them over, for each assignor."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from streams_protocol import LATEST_OFFSET
from streams_protocol.types import TaskId
from streams_py.assignment.assignors.draining import DRAINING_TAG, DrainingAssignor
from streams_py.assignment.assignors.high_availability import HighAvailabilityAssignor
from streams_py.assignment.assignors.sticky import LegacyStickyAssignor
from streams_py.assignment.configs import AssignmentConfigs
from streams_py.assignment.problem import AssignmentProblem, BuiltInAssignor, ClientInput, Decision
from tests.support.assignment.scenario_language import process_id, tasks

STATEFUL, STATELESS = tasks("1_0 1_1 1_2 1_3"), tasks("0_0 0_1")
ASSIGNORS = pytest.mark.parametrize("inner", [HighAvailabilityAssignor(), LegacyStickyAssignor()])


def client(
    number: int, active: str = "", lags: Mapping[str, int] | None = None, *, leaves: bool = False
) -> ClientInput:
    known = dict.fromkeys(tasks(active), LATEST_OFFSET) | {TaskId.parse(t): lag for t, lag in (lags or {}).items()}
    return ClientInput(
        process_id(number),
        tags={DRAINING_TAG: "true"} if leaves else {},
        previous_active=tasks(active),
        lags={task: lag for task, lag in known.items() if task in STATEFUL},
    )


def decide(inner: BuiltInAssignor, *clients: ClientInput) -> tuple[Decision, dict[int, tuple[str, str]]]:
    ends = dict.fromkeys(STATEFUL, 50_000)
    problem = AssignmentProblem(clients, [*STATELESS, *STATEFUL], ends, AssignmentConfigs())
    decision = DrainingAssignor(inner).decide(problem)
    words = {
        who.low: (" ".join(map(str, place.active)), " ".join(map(str, place.standby)))
        for who, place in decision.placements.items()
    }
    return decision, words


ALL = "0_0 0_1 1_0 1_1 1_2 1_3"


@ASSIGNORS
def test_leaving_client_keeps_tasks_with_state_while_two_of_them_warm_up_elsewhere(inner: BuiltInAssignor) -> None:
    decision, found = decide(inner, client(1, ALL, leaves=True), client(2))
    assert found[1] == ("1_0 1_1 1_2 1_3", "")
    assert found[2] == ("0_0 0_1", "1_0 1_1")
    assert decision.probing
    assert [task for task, _ in decision.warmups] == tasks("1_0 1_1")


@ASSIGNORS
def test_task_goes_when_its_new_client_has_caught_up(inner: BuiltInAssignor) -> None:
    caught_up = {"1_0": 10_000, "1_1": 0, "1_2": 10_001}
    _, found = decide(inner, client(1, ALL, leaves=True), client(2, lags=caught_up))
    assert found[1] == ("1_2 1_3", "")
    assert found[2] == ("0_0 0_1 1_0 1_1", "1_2 1_3")


@ASSIGNORS
def test_leaving_client_has_nothing_in_the_end(inner: BuiltInAssignor) -> None:
    caught_up = dict.fromkeys(map(str, STATEFUL), 0)
    decision, found = decide(inner, client(1, ALL, leaves=True), client(2, lags=caught_up))
    assert found == {1: ("", ""), 2: (ALL, "")}
    assert not decision.probing


@ASSIGNORS
def test_state_that_the_leaving_client_has_not_either_is_not_waited_for(inner: BuiltInAssignor) -> None:
    restoring = dict.fromkeys(map(str, STATEFUL), 40_000)
    _, found = decide(inner, client(1, ALL, restoring, leaves=True), client(2))
    assert found[1] == ("", "")


@ASSIGNORS
def test_task_that_two_leaving_clients_claim_stays_with_one_of_them(inner: BuiltInAssignor) -> None:
    both = client(1, "1_0 1_1", leaves=True), client(2, "1_1 1_2", leaves=True)
    _, found = decide(inner, *both, client(3))
    assert (found[1][0], found[2][0], found[3][0]) == ("1_0 1_1", "1_2", "0_0 0_1 1_3")


@ASSIGNORS
def test_nothing_changes_when_everybody_leaves(inner: BuiltInAssignor) -> None:
    both = client(1, "0_0 1_0 1_1", leaves=True), client(2, "0_1 1_2 1_3", leaves=True)
    _, found = decide(inner, *both)
    assert sorted(" ".join(active for active, _ in found.values()).split()) == ALL.split()


def test_caught_up_third_client_takes_over_before_the_one_that_is_meant() -> None:
    caught_up = dict.fromkeys(map(str, STATEFUL), 0)
    _, found = decide(HighAvailabilityAssignor(), client(1, ALL, leaves=True), client(2), client(3, lags=caught_up))
    assert found[1] == ("", "")
    assert set(found[3][0].split()) >= {"1_0", "1_1", "1_2", "1_3"}
