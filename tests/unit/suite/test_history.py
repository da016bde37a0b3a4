"""The check of histories finds every planted error, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.broker.history import Place, judge

WRITTEN = {"a": 6, "b": 4}
WHOLE: list[Place] = [
    ("a", 0),
    ("b", 0),
    ("a", 1),
    ("a", 2),
    ("b", 1),
    ("a", 3),
    ("a", 4),
    ("b", 2),
    ("b", 3),
    ("a", 5),
]


def test_whole_history_is_exact() -> None:
    verdict = judge(WRITTEN, WHOLE)
    assert verdict.is_exact
    assert str(verdict) == "exact"


@pytest.mark.parametrize("at", range(len(WHOLE)))
def test_every_missing_record_is_lost_and_nothing_else(at: int) -> None:
    verdict = judge(WRITTEN, WHOLE[:at] + WHOLE[at + 1 :])
    assert verdict.lost == [WHOLE[at]]
    assert not verdict.is_at_least_once
    assert verdict.reordered + verdict.duplicated + verdict.invented == []


def test_key_without_any_record_is_lost_whole() -> None:
    assert judge({"a": 2, "b": 1}, [("a", 0), ("a", 1)]).lost == [("b", 0)]


def test_record_that_nobody_wrote_is_invented() -> None:
    verdict = judge(WRITTEN, [*WHOLE, ("a", 6), ("c", 0)])
    assert verdict.invented == [("a", 6), ("c", 0)]
    assert not verdict.is_at_least_once


def test_two_records_of_a_key_that_changed_places_are_reordered() -> None:
    verdict = judge({"a": 3}, [("a", 0), ("a", 2), ("a", 1)])
    assert verdict.reordered == [("a", 1)]
    assert not verdict.is_at_least_once


@given(st.integers(0, 20), st.integers(0, 20))
def test_replay_from_a_committed_offset_is_duplication_only(crash: int, committed: int) -> None:
    crash, committed = max(crash, committed), min(crash, committed)
    seen = [("a", n) for n in [*range(crash), *range(committed, 21)]]
    verdict = judge({"a": 21}, seen)
    assert verdict.is_at_least_once
    assert verdict.duplicated == [("a", n) for n in range(committed, crash)]
    assert verdict.is_exact == (crash == committed)


def test_late_writes_of_a_frozen_owner_among_those_of_the_next_are_duplication_only() -> None:
    seen = [("a", n) for n in (0, 1, 2, 1, 2, 3, 2, 4, 3)]
    assert judge({"a": 5}, seen).is_at_least_once


def test_start_behind_the_first_unacknowledged_record_is_loss_even_if_what_follows_is_whole() -> None:
    assert judge({"a": 6}, [("a", n) for n in (0, 1, 4, 5)]).lost == [("a", 2), ("a", 3)]
