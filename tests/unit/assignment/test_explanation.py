"""Explanations of decisions: why each task is where it is."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from streams_protocol.types import TaskId
from streams_py.assignment.api import TaskAssignment, TaskType
from streams_py.assignment.assignors.fallback import FallbackPriorAssignor
from streams_py.assignment.assignors.high_availability import HighAvailabilityAssignor
from streams_py.assignment.assignors.static import StaticTaskAssignor
from streams_py.assignment.assignors.sticky import LegacyStickyAssignor, StickyTaskAssignor
from streams_py.assignment.configs import AssignmentConfigs
from streams_py.assignment.explanation import Rule, TaskExplanation
from streams_py.assignment.problem import AssignmentProblem, BuiltInAssignor, ClientInput
from tests.support.assignment.high_availability import problem
from tests.support.assignment.scenario_language import clients, process_id, rows
from tests.support.assignment.sticky import problem as sticky_problem
from tests.support.assignment.sticky import state as sticky_state

HA = {row[0]: row for row in rows("high_availability.txt")}
ONE = TaskId(0, 0)


def given(name: str) -> AssignmentProblem:
    return problem(clients(HA[name][1]), HA[name][2], HA[name][3])


@pytest.mark.parametrize(
    ("name", "task", "rule"),
    [
        ("HA-03", "0_0", Rule.EVEN_SHARE),
        ("HA-14", "0_0", Rule.CAUGHT_UP),
        ("HA-14", "0_1", Rule.FEWEST_ACTIVES),
        ("HA-15", "0_0", Rule.NEAREST),
        ("HA-37", "0_0", Rule.CAUGHT_UP_STANDBY),
    ],
)
def test_explanation_names_the_rule_that_chose_the_active(name: str, task: str, rule: Rule) -> None:
    explanation = HighAvailabilityAssignor().decide(given(name), explain=True).explanation[TaskId.parse(task)]
    assert explanation.active.rule is rule


@pytest.mark.parametrize("name", HA)
def test_explanation_agrees_with_the_decision(name: str) -> None:
    decision = HighAvailabilityAssignor().decide(given(name), explain=True)
    explained = {
        process_id: (
            sorted(
                task
                for task, explanation in decision.explanation.items()
                if explanation.active.process_id == process_id
            ),
            sorted(
                t
                for t, explanation in decision.explanation.items()
                if process_id in {h.process_id for h in explanation.standbys}
            ),
        )
        for process_id in decision.placements
    }
    assert explained == {process_id: tuple(place) for process_id, place in decision.placements.items()}
    assert decision.placements == HighAvailabilityAssignor().decide(given(name)).placements
    warming = sorted(
        (t, h.process_id) for t, s in decision.explanation.items() for h in s.standbys if h.rule is Rule.WARMING_UP
    )
    assert warming == sorted(decision.warmups)


def test_explanation_says_who_waits_when_warmups_are_used_up() -> None:
    explanation = HighAvailabilityAssignor().decide(given("HA-19"), explain=True).explanation
    waiting = [task for task in explanation if explanation[task].waiting]
    assert waiting == [TaskId(0, 3)]
    text = str(explanation[TaskId(0, 3)])
    assert f"no copy yet on {process_id(2)}: 1 of 1 warm-up replicas (max.warmup.replicas) are in use" in text
    assert f"it is meant for {process_id(2)}" in text
    assert f"lags reported, in records: client {process_id(1)}: 0" in text


def test_explanation_costs_nothing_when_not_asked_for() -> None:
    assert HighAvailabilityAssignor().decide(given("HA-03")).explanation == {}
    assert LegacyStickyAssignor().decide(sticky_problem("P1 A{0_0}", "0_0")[1]).explanation == {}


@pytest.mark.parametrize(
    ("assignor", "text", "wanted", "rule"),
    [
        (LegacyStickyAssignor(), "P1 A{0_0}; P2 new", "0_0 0_1", Rule.PREVIOUS_OWNER),
        (LegacyStickyAssignor(), "P1 new; P2 S{0_0}", "0_0 0_1", Rule.FORMER_STANDBY),
        (LegacyStickyAssignor(), "P1 new; P2 new", "0_0 0_1", Rule.LEAST_LOADED),
        (FallbackPriorAssignor(), "P1 A{0_0..3}; P2 new", "0_0..3", Rule.PREVIOUS_OWNER),
    ],
)
def test_sticky_explanation_names_the_rule(assignor: BuiltInAssignor, text: str, wanted: str, rule: Rule) -> None:
    decision = assignor.decide(sticky_problem(text, wanted)[1], explain=True)
    assert decision.explanation[ONE].active.rule is rule
    assert ONE in decision.placements[decision.explanation[ONE].active.process_id].active


def test_sticky_explanation_tells_standbys_too() -> None:
    _, sticky = sticky_problem("P1 A{0_0} S{0_1}; P2 A{0_1} S{0_0}", "0_0 0_1, r=1")
    explanation = LegacyStickyAssignor().decide(sticky, explain=True).explanation[ONE]
    assert [(host.process_id, host.rule) for host in explanation.standbys] == [(process_id(2), Rule.FORMER_STANDBY)]


def test_explanation_shows_special_lags_in_words() -> None:
    explained = HighAvailabilityAssignor().decide(
        AssignmentProblem(
            [ClientInput(process_id(1), lags={ONE: -2}), ClientInput(process_id(2), lags={ONE: -3})], [ONE], {ONE: 9}
        ),
        explain=True,
    )
    text = str(explained.explanation[ONE])
    assert f"{process_id(1)}: running it" in text
    assert f"{process_id(2)}: unknown" in text


def test_explanation_names_few_lags_when_many_clients_reported() -> None:
    clients = [ClientInput(process_id(n), lags={ONE: 0}) for n in range(1, 31)]
    explained = (
        HighAvailabilityAssignor().decide(AssignmentProblem(clients, [ONE], {ONE: 9}), explain=True).explanation[ONE]
    )
    assert explained.reported is not None
    assert len(explained.reported) == 30
    assert "20 more; every other client" in str(explained)


def test_explanation_says_when_standbys_are_missing() -> None:
    configs = AssignmentConfigs(num_standby_replicas=2)
    lonely = AssignmentProblem([ClientInput(process_id(1))], [ONE], {ONE: 9}, configs)
    explained = HighAvailabilityAssignor().decide(lonely, explain=True)
    assert "0 of 2 standby replicas (num.standby.replicas)" in str(explained.explanation[ONE])


def test_explanation_says_which_tags_could_not_be_kept_apart() -> None:
    nothing_fits = [{"zone": "a", "cluster": "x"}, {"zone": "b", "cluster": "x"}, {"zone": "a", "cluster": "y"}]
    given_clients = [ClientInput(process_id(n), tags=tags) for n, tags in enumerate(nothing_fits, 1)]
    configs = AssignmentConfigs(num_standby_replicas=1, rack_aware_assignment_tags=("zone", "cluster"))
    explained = HighAvailabilityAssignor().decide(
        AssignmentProblem(given_clients, [ONE], {ONE: 9}, configs), explain=True
    )
    assert [host.rule for host in explained.explanation[ONE].standbys] == [Rule.STANDBY_BY_TAGS]
    assert "start an instance with zone other than a and cluster other than x" in str(explained.explanation[ONE])


# -- public assignors --------------------------------------------------------------------------------------------


def test_public_sticky_tells_why_and_agrees_with_its_answer() -> None:
    _, given_problem = sticky_problem("P1 A{0_0} S{0_1}; P2 A{0_1} S{0_0}; P3 new", "0_0..2, r=1")
    state = sticky_state(given_problem)
    explained = StickyTaskAssignor().explanations(state)
    assert explained[ONE].active.rule is Rule.PREVIOUS_OWNER
    assert {host.rule for host in explained[ONE].standbys} == {Rule.FORMER_STANDBY}
    assert explained[TaskId(0, 2)].active.rule is Rule.LEAST_LOADED
    assert_told_as_placed(explained, StickyTaskAssignor().assign(state))


def test_static_tells_who_lists_a_task_and_who_waits() -> None:
    two, three = TaskId(0, 1), TaskId(0, 2)
    static = {"static.tasks": "0_0-1"}
    problem_ = AssignmentProblem(
        [
            ClientInput(process_id(1), tags=static, previous_active=[ONE], lags={ONE: -2}),
            ClientInput(process_id(2), previous_active=[three, two], lags={two: -2, three: -2}),
            ClientInput(process_id(3)),
        ],
        [ONE, two, three],
        dict.fromkeys([ONE, two, three], 100_000),
        AssignmentConfigs(num_standby_replicas=1),
    )
    state = sticky_state(problem_)
    assignor = StaticTaskAssignor()
    explained = assignor.explanations(state)
    assert explained[ONE].active.rule is Rule.LISTED_OWNER
    assert explained[two].active.rule is Rule.LISTED
    assert explained[three].active.rule is Rule.UNLISTED_OWNER
    assert [host.rule for host in explained[two].standbys] == [Rule.PREVIOUS_OWNER]
    assert_told_as_placed(explained, assignor.assign(state))
    assignor.configure({"static.tasks.warmup": "true"})
    waiting = assignor.explanations(state)[two]
    assert (waiting.active.rule, waiting.desired) == (Rule.LISTED_LATER, process_id(1))
    assert {host.rule for host in waiting.standbys if host.process_id == process_id(1)} == {Rule.WARMING_UP}
    assert f"it is meant for {process_id(1)}" in str(waiting)


def assert_told_as_placed(explained: Mapping[TaskId, TaskExplanation], answer: TaskAssignment) -> None:
    for entry in answer.assignment:
        for task, assigned in entry.tasks.items():
            hosts = [explained[task].active] if assigned.type is TaskType.ACTIVE else explained[task].standbys
            assert entry.process_id in {host.process_id for host in hosts}
