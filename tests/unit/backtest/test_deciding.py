"""Every candidate gets a row, whatever it does."""

from __future__ import annotations

import random

import pytest

from streams_protocol.types import TaskId
from streams_py.assignment import TaskAssignor
from streams_py.assignment.assignors.draining import DRAINING_TAG
from streams_py.backtest.candidates import Candidate
from streams_py.backtest.deciding import OK, ask
from streams_py.backtest.kernel import COLUMNS, METRICS, Row
from streams_py.backtest.summary import summarise
from tests.support.backtest import assignors
from tests.support.backtest.kit import A, B, C, chosen, client, mine, replay, rows, situation_of, sub

SITUATION = replay(client(A, "0:0-1"), client(B, "0:2-3"))


def row_of(assignor: type[TaskAssignor], **options: float) -> Row:
    (row,) = rows(SITUATION, Candidate("mine", assignor), rounds=False, **options)
    assert row.keys() == COLUMNS.keys()
    return row


@pytest.mark.parametrize(
    ("assignor", "kind", "text"),
    [
        (assignors.Raises, "raised", "KeyError: 'no such zone'"),
        (assignors.Exits, "raised", "SystemExit: enough"),
        (assignors.Twice, "active_task_assigned_multiple_times", "active on more than one client"),
        (assignors.ForgetsAClient, "missing_process_id", "no entry"),
        (assignors.ReturnsNonsense, "raised", "must return a TaskAssignment"),
        (assignors.ChangesItsInput, "changes_input", "copy values before"),
        (assignors.ChangesItsMind, "not_deterministic", "configs['seed']"),
    ],
)
def test_row_says_what_is_wrong_when_a_candidate_misbehaves(assignor: type[TaskAssignor], kind: str, text: str) -> None:
    row = row_of(assignor)
    assert row["valid"] == kind
    assert text in row["error"]
    assert all(row[metric] is None for metric in METRICS)


def test_decision_is_given_up_when_it_takes_too_long() -> None:
    row = row_of(assignors.Endless, limit_s=0.05)
    assert row["valid"] == "too_slow"
    assert "0.05 s" in row["error"]


def test_row_is_invalid_and_scored_when_a_task_is_given_to_nobody() -> None:
    row = row_of(assignors.ForgetsATask)
    assert row["valid"] == "unassigned"
    assert row["unassigned"] == 1
    assert "1 tasks" in row["error"]
    assert row["moved_active"] is not None


def test_only_the_rows_with_an_error_have_no_scores_when_one_of_many_situations_raises() -> None:
    found: list[Row] = []
    for number in range(1, 100):
        found += rows(
            replay(client(A, "0:0-3"), subs=[sub(ends=(number,) * 4)]),
            "m=tests.support.backtest.assignors:RaisesForThree",
        )
    found += rows(replay(client(A), client(B), client(C)), "m=tests.support.backtest.assignors:RaisesForThree")
    assert sum(row["valid"] == OK for row in found) == 99
    (bad,) = [row for row in found if row["valid"] != OK]
    assert "three is too many" in bad["error"]
    summary = summarise(found, ["m"], [""])
    assert summary.has_errors
    assert summary.findings[0].times == 1
    assert summary.findings[0].example == bad["input_hash"]


def test_situation_is_untouched_when_a_candidate_changes_what_it_is_given() -> None:
    situation = situation_of(SITUATION)
    before = situation.fresh_problem()
    rows(SITUATION, Candidate("bad", assignors.ChangesItsInput), "builtin:sticky", rounds=False)
    assert situation_of(SITUATION).fresh_problem() == before
    (bad, good) = rows(SITUATION, Candidate("bad", assignors.ChangesItsInput), "builtin:sticky", rounds=False)
    (alone,) = rows(SITUATION, "builtin:sticky", rounds=False)
    assert {k: v for k, v in good.items() if not k.startswith("ns_")} == {
        k: v for k, v in alone.items() if not k.startswith("ns_")
    }
    assert bad["valid"] == "changes_input"


def test_chance_is_the_same_when_a_candidate_takes_it_from_the_module_random() -> None:
    def decision(seed: int) -> str:
        (row,) = rows(SITUATION, Candidate("dice", assignors.Rolls), rounds=False, keep_decisions=True, seed=seed)
        assert row["valid"] == OK, row["error"]
        return str(row["decision"])

    assert decision(1) == decision(1)
    assert len({decision(seed) for seed in range(8)}) > 1


def test_chance_of_the_caller_is_left_alone_when_situations_are_evaluated() -> None:
    random.seed(7)
    expected = random.random()
    random.seed(7)
    rows(SITUATION, "builtin:sticky")
    assert random.random() == expected


@pytest.mark.parametrize("name", ["high_availability", "legacy_sticky"])
def test_client_that_drains_keeps_only_what_nobody_has_caught_up_on(name: str) -> None:
    draining = client(A, "0:0-1", tags={DRAINING_TAG: "true"})
    situation = situation_of(replay(draining, client(B, "0:2-3", {"0:0": 950})))
    answer = ask(chosen(name), situation, seed=1, limit_s=0)
    assert {task: name for name, placed in answer.placed.items() for task in placed.active} == {
        TaskId.parse("0_0"): B, TaskId.parse("0_1"): A, TaskId.parse("0_2"): B, TaskId.parse("0_3"): B,
    }  # fmt: skip
    assert answer.placed[B].warmup == (TaskId.parse("0_1"),)


def test_recorded_decision_has_no_scores_when_nobody_decided() -> None:
    (row,) = rows(SITUATION, "recorded")
    assert row["valid"] == "not_recorded"


def test_every_candidate_gets_a_row_when_the_input_is_damaged() -> None:
    from streams_py.backtest.kernel import Bench, Orders

    bench = Bench(Orders([Candidate("a", "builtin:sticky"), Candidate("b", "recorded")]))
    found = list(bench.rows('{"v":1}', input_hash="x"))
    assert [row["valid"] for row in found] == ["damaged", "damaged"]
    assert not summarise(found, ["a", "b"], [""]).has_errors


def test_input_is_damaged_when_no_leader_would_have_accepted_its_settings() -> None:
    found = rows(replay(client(A), probing_rebalance_interval_ms=1), "sticky")
    assert found[0]["valid"] == "damaged"
    assert "60000" in found[0]["error"]


def test_class_of_the_users_is_asked_twice_when_it_is_slow_and_ours_once() -> None:
    from streams_py.backtest.deciding import _repeats  # the property of an answer that others rely on

    assert mine(assignors.InTurn).is_ours is False
    assert _repeats(1_000_000, is_ours=True) == _repeats(1_000_000, is_ours=False) == 2
    assert _repeats(50_000_000, is_ours=True) == 0
    assert _repeats(50_000_000, is_ours=False) == 1
