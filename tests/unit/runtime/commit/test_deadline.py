"""The time limit of a shutdown."""

from __future__ import annotations

from streams_py.runtime.commit.deadline import Deadline
from streams_py.testing.memory_clients import ManualClock


def test_without_a_time_limit_the_caller_s_limit_counts() -> None:
    deadline = Deadline(ManualClock())
    assert deadline.left_ms(10_000) == 10_000
    assert deadline.left_ms(0) == 0
    assert not deadline.has_passed


def test_time_limit_elapses_and_is_never_negative() -> None:
    clock = ManualClock()
    deadline = Deadline(clock)
    deadline.set(300)
    assert deadline.left_ms(10_000) == 300
    clock.advance(299)
    assert not deadline.has_passed
    clock.advance(1)
    assert deadline.has_passed
    clock.advance(1_000)
    assert deadline.left_ms(10_000) == 0


def test_last_time_limit_counts() -> None:
    clock = ManualClock()
    deadline = Deadline(clock)
    deadline.set(0)
    deadline.set(500)
    assert not deadline.has_passed
    assert deadline.left_ms(1) == 500
