"""Every planted bug is found, by the right checker."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from streams_py.testing.checkers import ALL_CHECKERS
from streams_py.testing.simulator import MUTANTS
from streams_py.testing.simulator.campaign import run_campaign, schedule_of
from streams_py.testing.simulator.run import run_schedule

SEEDS = range(1, 41)
SHOWN_BY = {
    "accept every commit": 7,
    "half an assignment": 7,
    "late to rejoin": 16,
    "believe every answer": 28,
    "checkpoint before the flush": 24,
}
"""Mutants that only few schedules reveal: a seed that does, which is tried first."""

FOUND_BY_ONE = {
    "lose a task",
    "standby forgotten",
    "hand over too early",
    "accept every commit",
    "never at rest",
    "chance decides",
    "move for nothing",
    "wrong version",
    "half an assignment",
    "late to rejoin",
    "punish the neighbour",
    "give up for nothing",
    "believe every answer",
    "checkpoint before the flush",
}
"""Mutants that in some schedule only one checker finds, so that checker is needed."""


def runs(mutant: str) -> Iterator[set[str]]:
    """Yield the promises that each schedule breaks."""
    for seed in itertools.chain([SHOWN_BY[mutant]] if mutant in SHOWN_BY else (), SEEDS):
        yield {violation.promise for violation in run_schedule(schedule_of(seed, mutant=mutant)).violations}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_planted_bug_is_found_by_the_checker_of_its_promise(mutant: str) -> None:
    promise = MUTANTS[mutant].promise
    if mutant in FOUND_BY_ONE:
        assert any(broken == {promise} for broken in runs(mutant))
    else:
        assert any(promise in broken for broken in runs(mutant))


def test_every_checker_has_a_planted_bug_that_it_alone_finds() -> None:
    assert {MUTANTS[name].promise for name in FOUND_BY_ONE} == {make().promise for make in ALL_CHECKERS}


def test_campaign_with_a_planted_bug_fails_and_tells_safety_from_liveness() -> None:
    unsafe = run_campaign(range(1, 5), mutant="lose a task", processes=1)
    assert (unsafe.exit_code, unsafe.findings[0].safe) == (1, False)
    late = run_campaign(range(1, 5), mutant="never at rest", processes=1)
    assert (late.exit_code, late.findings[0].safe) == (4, True)


def test_campaign_stops_early_when_it_has_found_enough() -> None:
    campaign = run_campaign(range(1, 100), mutant="lose a task", processes=1, findings_max=3)
    assert len(campaign.findings) >= 3
    assert campaign.schedules < 99
