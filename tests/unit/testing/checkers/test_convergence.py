"""A5, L1 and A8: which outcomes of a run violate liveness."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streams_py.assignment.configs import AssignmentConfigs
from streams_py.testing.checkers import Checker, Convergence, Outcome, Running, Versions

GOOD = Outcome(
    at_ms=100_000,
    assignor="legacy_sticky",
    configs=AssignmentConfigs(),
    stateful=2,
    tasks=2,
    quiet=True,
    rebalances=60,
    running_after_ms=10_000,
    last_move_after=5,
    catch_up_rounds=1,
    membership_changes=0,
    final_version=11,
    highest_common_version=11,
    version_after=0,
)
BOUND = 3 * 2 + 6


def texts(checker: Checker, outcome: Outcome) -> list[str]:
    checker.ended(outcome)
    assert all(violation.liveness for violation in checker.violations)
    return [violation.text for violation in checker.violations]


def test_good_outcome_violates_nothing() -> None:
    for checker in (Convergence(), Running(), Versions()):
        assert not texts(checker, GOOD)


def test_tasks_that_move_too_long_violate_convergence() -> None:
    [text] = texts(Convergence(), replace(GOOD, last_move_after=BOUND + 1))
    assert text == "tasks still moved in rebalance 13 after the last fault; at most 12 allowed"


def test_bound_of_an_oscillation_that_ended_counts_from_its_end() -> None:
    outcome = replace(GOOD, oscillated_until=40, last_move_after=40 + BOUND)
    assert not texts(Convergence(), outcome)
    [text] = texts(Convergence(), replace(outcome, last_move_after=41 + BOUND))
    assert text == "tasks still moved in rebalance 13 after the end of the oscillation; at most 12 allowed"


def test_group_that_stopped_oscillating_must_still_run_every_task() -> None:
    late = replace(GOOD, running_after_ms=60_001)
    assert texts(Running(), late) == ["every task was active only 60001 ms after the last fault"]
    oscillated = replace(late, oscillated_until=30)
    assert not texts(Running(), oscillated)
    assert texts(Running(), replace(oscillated, running_after_ms=None)) == ["at no time was every task active"]


@pytest.mark.parametrize("final", [1, 2, 10])
def test_group_that_stays_in_an_old_version_violates_the_agreement_on_versions(final: int) -> None:
    [text] = texts(Versions(), replace(GOOD, final_version=final))
    assert text == f"the group uses version {final}, but all support 11"
