"""When punctuators fire."""

from __future__ import annotations

import pytest

from streams_py.runtime.tasks.punctuation import PunctuationQueue, Schedule


@pytest.fixture
def queue() -> PunctuationQueue:
    return PunctuationQueue()


def test_fire_calls_back_with_the_time_of_the_clock(queue: PunctuationQueue) -> None:
    seen: list[int] = []
    queue.schedule(0, 10, seen.append)
    for now in (3, 5, 10, 12, 20):
        queue.fire(now)
    assert seen == [3, 10, 20]


def test_fire_skips_missed_firings(queue: PunctuationQueue) -> None:
    seen: list[int] = []
    queue.schedule(0, 10, seen.append)
    assert [queue.fire(now) for now in (0, 47, 49, 50, 59, 60)] == [1, 1, 0, 1, 0, 1]
    assert seen == [0, 47, 50, 60]


def test_fire_calls_each_schedule_once_in_order_of_due_time(queue: PunctuationQueue) -> None:
    seen: list[str] = []
    queue.schedule(5, 1, lambda now: seen.append("late"))
    queue.schedule(3, 100, lambda now: seen.append("early"))
    queue.schedule(3, 100, lambda now: seen.append("early too"))
    assert queue.fire(5) == 3
    assert seen == ["early", "early too", "late"]


def test_cancel_inside_the_callback_ends_the_schedule(queue: PunctuationQueue) -> None:
    calls: list[int] = []

    def once(now: int) -> None:
        calls.append(now)
        schedule.cancel()

    schedule: Schedule = queue.schedule(0, 1, once)
    assert [queue.fire(now) for now in (1, 2, 3)] == [1, 0, 0]
    assert calls == [1]
    assert len(queue) == 0


def test_fire_keeps_the_schedule_when_the_callback_raises(queue: PunctuationQueue) -> None:
    def fail(now: int) -> None:
        raise ValueError("no")

    queue.schedule(0, 10, fail)
    with pytest.raises(ValueError, match="no"):
        queue.fire(1)
    assert not queue.is_due(9)
    assert queue.is_due(10)


def test_schedule_inside_a_callback_waits_for_its_own_time(queue: PunctuationQueue) -> None:
    seen: list[int] = []
    queue.schedule(0, 1_000, lambda now: queue.schedule(now + 5, 5, seen.append))
    queue.fire(10)
    assert seen == []
    queue.fire(15)
    assert seen == [15]


def test_schedule_refuses_an_interval_below_one_millisecond(queue: PunctuationQueue) -> None:
    with pytest.raises(ValueError, match="at least 1 ms, not 0"):
        queue.schedule(0, 0, lambda now: None)
