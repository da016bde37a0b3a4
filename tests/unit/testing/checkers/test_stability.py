"""A7: which tasks may move and which must stay, for any cluster."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from streams_protocol.types import ProcessId, TaskId
from streams_py.assignment.assignors.fallback import FallbackPriorAssignor
from streams_py.assignment.assignors.high_availability import HighAvailabilityAssignor
from streams_py.assignment.assignors.sticky import LegacyStickyAssignor
from streams_py.assignment.problem import AssignmentProblem, BuiltInAssignor, Decision
from tests.support.assignment.drawn_problems import ASSIGNORS, problems

SOME = settings(max_examples=120, deadline=None)


def came_to_pass(problem: AssignmentProblem, decision: Decision) -> AssignmentProblem:
    """Return the next problem, after all clients have restored their tasks and nothing else has happened."""
    ends = problem.end_offset_sums
    clients = []
    for client in problem.clients:
        place = decision.placements[client.process_id]
        running = {task: -2 for task in place.active if task in ends}
        caught_up = dict.fromkeys(place.standby, 0)
        clients.append(
            replace(
                client,
                lags={**running, **caught_up},
                previous_active=list(place.active),
                previous_standby=list(place.standby),
            )
        )
    return replace(problem, clients=clients)


def owners(decision: Decision) -> dict[TaskId, ProcessId]:
    return {task: client for client, place in decision.placements.items() for task in place.active}


def at_rest(problem: AssignmentProblem, assignor: BuiltInAssignor) -> tuple[AssignmentProblem, Decision]:
    """Return the group after it has stopped rebalancing, and its last assignment."""
    decision = assignor.decide(problem)
    for _ in range(3 + 2 * len(problem.end_offset_sums) * (1 + problem.configs.num_standby_replicas)):
        problem = came_to_pass(problem, decision)
        before, decision = decision, assignor.decide(problem)
        if owners(before) == owners(decision) and not decision.warmups:
            return problem, decision
    raise AssertionError(f"{type(assignor).__name__} does not come to rest")


@SOME
@given(problems(tags=False), st.sampled_from(ASSIGNORS))
def test_group_comes_to_rest_and_a_further_rebalance_moves_nothing(
    problem: AssignmentProblem, assignor: BuiltInAssignor
) -> None:
    rested, decision = at_rest(problem, assignor)
    again = assignor.decide(came_to_pass(rested, decision))
    assert owners(again) == owners(decision)
    assert {client: place.standby for client, place in again.placements.items()} == {
        client: place.standby for client, place in decision.placements.items()
    }


@SOME
@given(problems(tags=False), st.data())
def test_losing_a_client_moves_only_its_tasks_unless_balance_wants_more_when_sticky(
    problem: AssignmentProblem, data: st.DataObject
) -> None:
    assume(len(problem.clients) > 1)
    assignor = LegacyStickyAssignor()
    rested, decision = at_rest(problem, assignor)
    lost = data.draw(st.sampled_from(rested.clients)).process_id
    left = replace(rested, clients=[client for client in rested.clients if client.process_id != lost])
    before, after = owners(decision), owners(assignor.decide(left))
    due = len(left.tasks) // sum(client.capacity for client in left.clients)
    kept = {client.process_id: 0 for client in left.clients}
    for task, owner in before.items():
        kept[owner] = kept.get(owner, 0) + (after[task] == owner)
    for client in left.clients:
        had = sum(owner == client.process_id for owner in before.values())
        assert kept[client.process_id] >= min(had, due * client.capacity)


@SOME
@given(problems(tags=False), st.data())
def test_losing_a_client_moves_only_its_tasks_when_the_fallback_decides(
    problem: AssignmentProblem, data: st.DataObject
) -> None:
    assume(len(problem.clients) > 1)
    assignor = FallbackPriorAssignor()
    rested, decision = at_rest(problem, assignor)
    lost = data.draw(st.sampled_from(rested.clients)).process_id
    left = replace(rested, clients=[client for client in rested.clients if client.process_id != lost])
    after = owners(assignor.decide(left))
    assert all(after[task] == owner for task, owner in owners(decision).items() if owner != lost)


@SOME
@given(problems(tags=False))
def test_active_task_never_goes_to_a_client_behind_while_one_is_caught_up(problem: AssignmentProblem) -> None:
    limit = problem.configs.acceptable_recovery_lag
    decision = HighAvailabilityAssignor().decide(problem)
    known = {client.process_id: client for client in problem.clients}
    for task, owner in owners(decision).items():
        if task not in problem.end_offset_sums:
            continue
        lags = {id: problem.lag(client, task) for id, client in known.items()}
        caught_up = {id for id, lag in lags.items() if lag in (-2, -3) or 0 <= lag <= limit}
        assert owner in caught_up or not caught_up
