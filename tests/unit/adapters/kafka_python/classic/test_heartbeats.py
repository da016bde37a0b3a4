"""The schedule of heartbeats after a rebalance."""

from __future__ import annotations

import time

import pytest

from streams_py.adapters.kafka_python.classic.heartbeats import AFTER_REBALANCE_S, SOON_MS, Heartbeats


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(time, "monotonic", made)
    return made


def schedule(interval_ms: int) -> Heartbeats:
    made = Heartbeats(group_id="group", heartbeat_interval_ms=interval_ms, session_timeout_ms=45_000)
    made.reset_timeouts()
    made.sent_heartbeat()
    return made


def test_heartbeats_are_frequent_for_some_time_after_a_rebalance(clock: Clock) -> None:
    heartbeats = schedule(3_000)
    assert heartbeats.time_to_next_heartbeat() == 3.0
    heartbeats.expect_rebalance()
    assert heartbeats.time_to_next_heartbeat() == SOON_MS / 1_000
    clock.now += AFTER_REBALANCE_S - 0.001
    heartbeats.sent_heartbeat()
    assert heartbeats.time_to_next_heartbeat() == SOON_MS / 1_000
    clock.now += 0.001
    heartbeats.sent_heartbeat()
    assert heartbeats.time_to_next_heartbeat() == 3.0


def test_shorter_interval_of_the_user_stays(clock: Clock) -> None:
    heartbeats = schedule(100)
    heartbeats.expect_rebalance()
    assert heartbeats.time_to_next_heartbeat() == 0.1


def test_failed_heartbeat_is_repeated_as_usual(clock: Clock) -> None:
    heartbeats = schedule(3_000)
    heartbeats.expect_rebalance()
    heartbeats.fail_heartbeat()
    assert heartbeats.time_to_next_heartbeat() == heartbeats.config["retry_backoff_ms"] / 1_000
