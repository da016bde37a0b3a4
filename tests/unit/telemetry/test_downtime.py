"""Gaps of tasks: from two clocks or from one, and also if the event about the last record is late."""

from __future__ import annotations

import pytest

from tests.support.leader.kit import pid
from tests.support.telemetry.history import HOUR_MS, fold, rows
from tests.support.telemetry.long_history import P1, P2, grown


@pytest.mark.parametrize("off_ms", [0, 300_000, -300_000])
def test_gap_is_right_when_a_clock_is_wrong(off_ms: int) -> None:
    history = grown()
    history.clock_off_ms[P2] = off_ms
    for delay_ms in (30, 5, 8):  # some events before, so that the clocks are known
        history.delay_ms = delay_ms
        history.task(1, "0_0", "running")
        history.task(2, "0_2", "running")
        history.later(1_000)
    history.last_record(1, "0_2", ago_ms=400)
    history.later(2_500)
    history.delay_ms = 40
    history.task(2, "0_2", "first_record", since_assigned_us=1)
    (row,) = rows(fold(history.records), "gap")
    true_ms = 400 + 2_500 - 40 + 8
    assert abs(row["gap_ms"] - true_ms) <= row["skew_bound_ms"]
    assert 1 <= row["skew_bound_ms"] < 60
    assert (row["from_process"], row["to_process"], row["kind"]) == (P1, P2, "moved")
    assert row["rebalance_id"] == rows(fold(history.records), "rebalance")[-1]["rebalance_id"]


def test_gap_on_one_process_is_exact() -> None:
    history = grown()
    history.last_record(1, "0_0", ago_ms=100)
    history.later(50)
    history.task(1, "0_0", "first_record", since_assigned_us=1)
    (row,) = rows(fold(history.records), "gap")
    assert (row["gap_ms"], row["skew_bound_ms"]) == (150, 0)


def test_gap_is_that_of_a_frozen_process_when_it_tells_of_its_end_late() -> None:
    history = grown()
    history.task(1, "0_0", "first_record", since_assigned_us=1)
    history.later(30_000)
    history.task(2, "0_0", "first_record", since_assigned_us=1, waited_ms=29_000)
    history.later(5_000)
    history.last_record(1, "0_0", ago_ms=35_200)  # it wakes up, and hears that the task is lost
    history.later(HOUR_MS)
    history.task(3, "0_0", "first_record", since_assigned_us=1)  # the second one was killed, when is not known
    (row,) = rows(fold(history.records), "gap")
    assert (row["from_process"], row["to_process"], row["kind"]) == (P1, P2, "moved")
    assert abs(row["gap_ms"] - 30_200) <= row["skew_bound_ms"] <= 2
    assert (row["first_at"] - row["last_at"], row["paused_ms"]) == (row["gap_ms"], 29_000)


def test_end_that_is_told_late_is_not_that_of_who_processes_the_task_now() -> None:
    history = grown()
    history.last_record(1, "0_0")
    history.later(1_000)
    history.task(2, "0_0", "first_record", since_assigned_us=1)
    history.last_record(1, "0_0", ago_ms=1_000)  # once more, of another stay
    history.later(HOUR_MS)
    history.task(3, "0_0", "first_record", since_assigned_us=1)
    (row,) = rows(fold(history.records), "gap")
    assert (row["from_process"], row["to_process"], row["gap_ms"]) == (P1, P2, 1_000)


def test_end_after_a_beginning_that_was_dropped_begins_a_gap() -> None:
    history = grown()
    history.task(1, "0_0", "first_record", since_assigned_us=1)
    history.later(HOUR_MS)
    history.last_record(2, "0_0")
    history.later(1_000)
    history.task(3, "0_0", "first_record", since_assigned_us=1)
    (row,) = rows(fold(history.records), "gap")
    assert (row["from_process"], row["to_process"], row["gap_ms"]) == (P2, str(pid(3)), 1_000)


def test_task_that_stayed_has_a_gap_on_its_own_clock() -> None:
    history = grown()
    history.clock_off_ms[P1] = 300_000
    envelope = history.envelope(1)
    history.seqs[P1] -= 1
    history.later(70)
    history.task(1, "0_0", "first_record", last_mono_us=envelope.mono_us - 30_000)
    (row,) = rows(fold(history.records), "gap")
    assert (row["gap_ms"], row["skew_bound_ms"], row["kind"]) == (100, 0, "untouched")
    assert (row["from_process"], row["to_process"]) == (P1, P1)
    assert row["first_at"] - row["last_at"] == 100
    assert row["rebalance_id"] == rows(fold(history.records), "rebalance")[-1]["rebalance_id"]


@pytest.mark.parametrize(("waited_ms", "paused_ms"), [(None, 150), (40, 40), (0, 0), (9_000, 150)])
def test_pause_is_the_time_for_which_there_was_input(waited_ms: int | None, paused_ms: int) -> None:
    history = grown()
    history.last_record(1, "0_0", ago_ms=100)
    history.later(50)
    history.task(1, "0_0", "first_record", since_assigned_us=1, waited_ms=waited_ms)
    envelope = history.envelope(1)
    history.later(150)
    history.task(1, "0_2", "first_record", last_mono_us=envelope.mono_us, waited_ms=waited_ms)
    moved, untouched = rows(fold(history.records), "gap")
    assert (moved["gap_ms"], moved["paused_ms"], moved["kind"]) == (150, paused_ms, "moved")
    assert (untouched["gap_ms"], untouched["paused_ms"], untouched["kind"]) == (150, paused_ms, "untouched")
