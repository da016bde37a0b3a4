"""Shortening of a failing schedule."""

from __future__ import annotations

import pytest

from streams_py.testing.checkers import Violation
from streams_py.testing.simulator import Fault, RunResult, Schedule, run_schedule
from streams_py.testing.simulator.campaign import schedule_of
from streams_py.testing.simulator.shrink import shrink


def test_shortest_history_still_fails_and_says_which_actions_were_kept() -> None:
    schedule = schedule_of(3, mutant="lose a task")
    shortest, result = shrink(schedule, runs_max=60)
    assert len(shortest.actions) <= 2 < len(schedule.actions)
    assert result.violations[0].promise == "A1"
    again = run_schedule(schedule.keeping(shortest.kept or ()))
    assert again.fingerprint == result.fingerprint


def test_shrinking_finds_the_two_actions_that_matter() -> None:
    schedule = schedule_of(3)
    needed = {5, len(schedule.actions) - 2}

    def run(candidate: Schedule) -> RunResult:
        kept = set(candidate.kept if candidate.kept is not None else range(len(candidate.actions)))
        return RunResult(candidate, [Violation("A1", 0, "planted")] if needed <= kept else [])

    shortest, _ = shrink(schedule, run=run)
    assert set(shortest.kept or ()) == needed


def test_shrinking_refuses_a_schedule_without_a_failure() -> None:
    with pytest.raises(ValueError, match="the schedule of seed 1 does not fail"):
        shrink(schedule_of(1))


def test_history_tells_actions_and_assignments_in_sentences() -> None:
    schedule = schedule_of(1)
    history = run_schedule(schedule, history=True).history
    assert any("assigns to" in line for line in history)
    assert any("faults end" in line for line in history)
    assert not run_schedule(schedule).history
    assert all(fault.value for fault in Fault)
