"""Progress of restores, and calls of their listeners."""

from __future__ import annotations

import threading

import pytest

from streams_protocol.types import TopicPartition
from streams_py.runtime.restore.listener import RestoreListener, SuspendReason
from streams_py.runtime.restore.progress import ACTIVITIES, RestoreMeter, RestoreProgress
from streams_py.runtime.restore.settings import RestoreListeners
from streams_py.runtime.restore.updater import StateUpdater
from tests.support.clocks import FakeClock
from tests.support.runtime.fakes import FakeAdmin, FakeConsumer, FakeLog, FakeRecord
from tests.support.runtime.stepped_updater import (
    LOG,
    OTHER,
    SETTINGS,
    Listener,
    StandbyListener,
    Stepped,
    active,
    standby,
)
from tests.support.waiting import PATIENCE_S, until


def test_remaining_records_shrink_to_nothing(log: FakeLog) -> None:
    log.write(LOG, 8)
    updater, task = Stepped(log), active(LOG, checkpoint={LOG: 1})
    updater.add(task)
    updater.request_ends()
    updater.assign_changelogs()
    updater.add(standby(OTHER))
    assert updater.remaining_records()[task.id] == 6
    assert sum(updater.remaining_records().values()) == 6
    updater.turn()
    assert sum(updater.remaining_records().values()) == 0


def test_progress_says_what_is_done_and_left_at_which_rate(log: FakeLog, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    log.write(LOG, 100)
    updater = Stepped(log)
    updater.consumer.delivers_max = 32
    updater.add(active(LOG))
    assert updater.progress() == RestoreProgress()
    updater.turn()
    assert updater.progress() == RestoreProgress(records=32, bytes=64, remaining=68)
    assert updater.progress().seconds_left is None
    updater.clock.now += 11_000
    updater.turn()
    assert updater.progress() == RestoreProgress(records=64, bytes=128, remaining=36, rate=32 / 11)
    assert "restores: 64 records (0.0 MB), 36 to go, 3 records/s, about 12 s left" in caplog.text
    updater.turn(2)
    assert updater.progress() == RestoreProgress()
    assert updater.progress().seconds_left == 0
    assert "restored 100 records (0.0 MB) in 11.0 s, 9 records/s" in caplog.text
    assert updater.metrics["restore-records-total"] == 100


def test_updater_says_what_it_spends_its_time_on() -> None:
    meter = RestoreMeter("updater", dict)
    meter.spent("idle", 1_000)  # the start time is unknown
    for activity, now_ms in (
        ("active-restore", 1_300),
        ("checkpoint", 1_400),
        ("idle", 1_900),
        ("standby-update", 2_000),
    ):
        meter.spent(activity, now_ms)
    meter.count([FakeRecord(LOG, offset) for offset in range(5)], 2_000)
    metrics = meter.metrics
    assert {name: of for name, of in metrics.items() if name.endswith("-ratio")} == {
        "idle-ratio": 0.5,
        "active-restore-ratio": 0.3,
        "standby-update-ratio": 0.1,
        "checkpoint-ratio": 0.1,
    }
    assert (metrics["restore-records-total"], metrics["restore-call-total"], metrics["restore-call-rate"]) == (5, 1, 1)


def test_rounds_of_the_updater_are_counted_for_what_they_are(log: FakeLog) -> None:
    log.write(LOG, 3)
    updater = Stepped(log)
    updater.add(active(LOG))
    updater.turn(3)
    assert updater.metrics["restore-call-total"] == 1
    assert set(updater.metrics) >= {f"{activity}-ratio" for activity in ACTIVITIES}


def test_progress_begins_again_when_the_task_was_taken_away(log: FakeLog) -> None:
    log.write(LOG, 100)
    updater, task = Stepped(log), active(LOG)
    updater.consumer.delivers_max = 32
    updater.add(task)
    updater.turn()
    updater.remove(task.id)
    assert updater.progress() == RestoreProgress()


def test_standbys_are_no_restoration(log: FakeLog) -> None:
    log.write(LOG, 100)
    updater = Stepped(log)
    updater.add(standby(LOG))
    updater.turn()
    assert updater.progress() == RestoreProgress()


class Waiting(RestoreListener):
    """Blocks its callers until the test releases them."""

    def __init__(self) -> None:
        self.called, self.go_on = threading.Event(), threading.Event()

    def on_batch_restored(self, changelog: TopicPartition, store: str, batch_end: int, count: int) -> None:
        self.called.set()
        assert self.go_on.wait(PATIENCE_S)


def test_nobody_waits_for_a_restore_listener(log: FakeLog) -> None:
    log.write(LOG, 2)
    listener, consumer = Waiting(), FakeConsumer(log)
    updater = StateUpdater(
        "updater", lambda: consumer, FakeAdmin(log), FakeClock(), SETTINGS, RestoreListeners(listener)
    )  # fmt: skip
    task = active(LOG)
    updater.add(task)
    try:
        assert listener.called.wait(PATIENCE_S)
        for ask in (updater.tasks, updater.drain_restored, updater.remaining_records):
            thread = threading.Thread(target=ask, daemon=True)
            thread.start()
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), f"{ask.__name__} waits for the listener"
        updater.close(timeout_ms=50)  # does not wait for it either
        assert updater.remove(task.id) is task
    finally:
        listener.go_on.set()
    until(lambda: consumer.closed, "the updater's thread to stop")


def test_end_of_a_restoration_is_told_before_the_task_is_handed_over_and_once(log: FakeLog) -> None:
    log.write(LOG, 2)
    updater, task = Stepped(log), active(LOG)
    notified = []
    updater.listener.on_restore_end = lambda *_: notified.append(updater.drain_restored())  # type: ignore[method-assign]
    updater.add(task)
    updater.turn(3)
    assert notified == [[]]
    assert updater.drain_restored() == [task]


def test_restoration_that_a_close_interrupts_is_reported_as_suspended(log: FakeLog) -> None:
    log.write(LOG, 2)
    log.write(OTHER, 1, skip=5)
    log.ends[OTHER] = 10
    listener, consumer = Listener(), FakeConsumer(log)
    consumer.position = lambda partition: None  # type: ignore[method-assign]
    updater = StateUpdater(
        "updater", lambda: consumer, FakeAdmin(log), FakeClock(), SETTINGS, RestoreListeners(listener)
    )  # fmt: skip
    task = active(LOG, OTHER)
    updater.add(task)
    until(lambda: ("batch", OTHER, 0, 1) in listener.events, "a part of it to be restored")
    updater.close(timeout_ms=int(PATIENCE_S * 1000))
    assert listener.events[-1] == ("suspended", OTHER, 1)
    assert updater.remove(task.id) is task


@pytest.mark.parametrize(
    ("promoted", "reason"), [(True, SuspendReason.PROMOTED), (False, SuspendReason.MIGRATED)], ids=["here", "away"]
)
def test_standby_listener_hears_where_a_copy_begins_how_it_grows_and_why_it_ends(
    log: FakeLog, promoted: bool, reason: SuspendReason
) -> None:
    log.write(LOG, 10)
    updater, task = Stepped(log), standby(LOG, checkpoint={LOG: 3})
    updater.consumer.delivers_max = 4
    updater.add(task)
    updater.turn(2)
    updater.remove(task.id, promoted=promoted)
    updater.call_listeners()
    assert updater.standby_listener.events == [
        ("start", LOG, task.store_of(LOG), 4),
        ("batch", LOG, str(task.id), 7, 4, 10),
        ("batch", LOG, str(task.id), 9, 2, 10),
        ("suspended", LOG, 10, 10, reason),
    ]
    assert updater.listener.events == []


def test_standby_listener_hears_of_a_copy_that_turns_out_to_be_corrupted(log: FakeLog) -> None:
    """Its task starts over, together with the copy."""
    log.write(LOG, 10)
    updater, task = Stepped(log), standby(LOG, checkpoint={LOG: 3})
    updater.add(task)
    updater.turn(2)
    updater.find_corrupted(LOG)
    updater.call_listeners()
    assert updater.standby_listener.events[-1] == ("suspended", LOG, 10, 10, SuspendReason.MIGRATED)
    assert updater.remove(task.id) is task
    updater.call_listeners()
    assert [event[0] for event in updater.standby_listener.events].count("suspended") == 1


def test_restoration_is_no_news_of_a_copy(log: FakeLog) -> None:
    log.write(LOG, 2)
    updater, task = Stepped(log), active(LOG)
    updater.add(task)
    updater.turn(3)
    updater.remove(task.id)
    assert updater.standby_listener.events == []


def test_copies_that_a_close_ends_are_reported_once(log: FakeLog) -> None:
    log.write(LOG, 2)
    listener, task = StandbyListener(), standby(LOG)
    updater = StateUpdater(
        "updater", lambda: FakeConsumer(log), FakeAdmin(log), FakeClock(), SETTINGS, RestoreListeners(standby=listener)
    )  # fmt: skip
    updater.add(task)
    until(lambda: ("batch", LOG, str(task.id), 1, 2, 2) in listener.events, "the copy to be current")
    updater.close(timeout_ms=int(PATIENCE_S * 1000))
    assert updater.remove(task.id) is task
    assert listener.events[2:] == [("suspended", LOG, 2, 2, SuspendReason.MIGRATED)]
