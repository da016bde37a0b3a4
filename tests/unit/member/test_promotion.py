"""Rebalance requests of a member whose warm-ups have caught up, and their limits."""

from __future__ import annotations

import itertools

import pytest

from streams_protocol.types import TaskId
from streams_py.member.promotion import Promotion
from streams_py.member.tasks import Progress

A, B = TaskId(0, 0), TaskId(0, 1)
COLD, WARM = Progress(10, 50_000), Progress(49_000, 50_000)


class Checked:
    """A promotion and its clock."""

    def __init__(self, *standbys: TaskId) -> None:
        self.promotion = Promotion(10_000)
        self.now_ms = 1_000_000
        self.rejoined({}, *standbys)

    def rejoined(self, sums: dict[TaskId, int], *standbys: TaskId) -> None:
        self.promotion.subscribed(sums)
        self.promotion.assigned(standbys)

    def asks(self, after_ms: int = 0, **progress: Progress) -> bool:
        self.now_ms += after_ms
        known = {{"a": A, "b": B}[name]: at for name, at in progress.items()}
        return self.promotion.reason(self.now_ms, known) is not None


def test_member_asks_once_all_of_its_warm_ups_have_caught_up() -> None:
    member = Checked(A, B)
    assert not member.asks(a=COLD, b=COLD)
    assert not member.asks(a=WARM, b=COLD)
    assert member.asks(a=WARM, b=WARM)
    assert not member.asks(60_000, a=WARM, b=WARM)


def test_member_with_a_warm_up_that_never_catches_up_asks_for_the_others_after_a_minute_and_once() -> None:
    member = Checked(A, B)
    assert not member.asks(a=WARM, b=COLD)
    assert not member.asks(59_999, a=WARM, b=COLD)
    assert member.asks(1, a=WARM, b=COLD)
    member.rejoined({A: 49_000, B: 10}, A, B)
    assert not any(member.asks(60_000, a=WARM, b=COLD) for _ in range(100))


def test_member_never_asks_when_nothing_catches_up() -> None:
    member = Checked(A)
    assert not any(member.asks(60_000, a=COLD) for _ in range(1_000))
    assert not any(member.asks(60_000) for _ in range(1_000))


def test_member_does_not_ask_when_the_leader_was_told_already() -> None:
    member = Checked()
    member.rejoined({A: 45_000}, A)
    assert not any(member.asks(1_000, a=WARM) for _ in range(100))


def test_member_does_not_ask_for_a_task_that_it_ran_itself() -> None:
    member = Checked()
    member.rejoined({A: -2}, A)
    assert not member.asks(a=WARM)


def test_member_asks_for_state_that_was_behind_when_it_was_reported() -> None:
    member = Checked()
    member.rejoined({A: 39_999}, A)
    assert member.asks(a=Progress(49_000, 50_000))


def test_member_does_not_ask_when_the_log_has_grown_since_it_told_that_it_has_caught_up() -> None:
    member = Checked(A)
    assert member.asks(a=WARM)
    member.rejoined({A: 49_000}, A)
    assert not any(member.asks(1_000, a=Progress(n, n)) for n in range(50_000, 900_000, 20_000))


def test_pause_doubles_while_requests_move_nothing_and_ends_at_ten_minutes() -> None:
    member = Checked(A)
    asked = []
    for _ in range(7_200):  # for an hour the task falls behind at every rebalance and catches up immediately
        if member.asks(500, a=WARM):
            asked.append(member.now_ms)
            member.asks(0, a=COLD)
            member.rejoined({A: 10}, A)
    gaps = [late - early for early, late in itertools.pairwise(asked)]
    assert gaps[:10] == [1_000 << n for n in range(10)]
    assert set(gaps[10:]) == {600_000}


@pytest.mark.parametrize("behind_ms", [2_000, 5_000, 30_000])
def test_requests_that_move_nothing_end_nearly_also_when_it_takes_a_while_to_catch_up_each_time(behind_ms: int) -> None:
    member = Checked(A)
    asked = 0
    warm_from_ms = 0
    for _ in range(7_200):  # an hour
        if member.asks(500, a=WARM if member.now_ms >= warm_from_ms else COLD):
            asked += 1
            warm_from_ms = member.now_ms + behind_ms
            member.asks(0, a=COLD)
            member.rejoined({A: 10}, A)
    assert 10 < asked < 20
    member.asks(1_300_000, a=COLD)
    assert member.asks(500, a=WARM)
    member.asks(0, a=COLD)
    member.rejoined({A: 10}, A)
    assert member.asks(1_000, a=WARM)


def test_pause_stays_short_while_requests_move_tasks() -> None:
    member = Checked(A)
    assert member.asks(a=WARM)
    for standby, other in ((B, A), (A, B)) * 5:
        member.rejoined({other: -2}, standby)
        assert not member.asks(999, **{"a" if standby == A else "b": WARM})
        assert member.asks(1, **{"a" if standby == A else "b": WARM})


@pytest.mark.parametrize("progress", [Progress(0, 10_000), Progress(10_000, 10_000)])
def test_task_within_the_lag_from_the_beginning_is_no_news(progress: Progress) -> None:
    assert not Checked(A).asks(a=progress)
