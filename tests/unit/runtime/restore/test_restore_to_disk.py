"""The state updater without its thread: restored records reach the disk."""

from __future__ import annotations

from streams_protocol.types import TaskId
from streams_py.errors import StateError
from tests.support.runtime.fakes import FakeLog, FakeTask
from tests.support.runtime.stepped_updater import LOG, OTHER, Stepped, active


def test_what_was_restored_is_flushed_once_at_the_end(log: FakeLog) -> None:
    log.write(LOG, 3)
    log.write(OTHER, 9_000)
    updater, task = Stepped(log), active(LOG, OTHER)
    updater.add(task)
    updater.turn(5)
    assert updater.drain_restored() == [task]
    assert task.flushed_after == [9_003]
    assert task.is_ready  # the other thread works on others meanwhile


def test_others_are_restored_while_a_task_comes_to_the_disk(log: FakeLog) -> None:
    log.write(LOG, 3)
    updater, slow = Stepped(log), active(LOG)
    slow.is_flushed = False
    updater.add(slow)
    updater.turn(3)
    assert updater.drain_restored() == []
    log.write(OTHER, 5)
    other = FakeTask(TaskId(2, 0), [OTHER], is_active=True)
    updater.add(other)
    updater.turn(3)
    assert updater.drain_restored() == [other]
    slow.is_flushed = True
    updater.turn()
    assert updater.drain_restored() == [slow]


def test_nothing_is_polled_while_a_disk_has_to_catch_up(log: FakeLog) -> None:
    log.write(LOG, 9)
    updater, task = Stepped(log), active(LOG)
    task.awaits_disk = True
    updater.add(task)
    before_ms = updater.clock.monotonic_ms()
    updater.turn(5)
    assert task.restored == []
    assert updater.clock.monotonic_ms() > before_ms
    task.awaits_disk = False
    updater.turn(5)
    assert updater.drain_restored() == [task]
    assert len(task.restored) == 9


def test_only_the_task_fails_when_it_cannot_be_flushed(log: FakeLog) -> None:
    log.write(LOG, 1)
    log.write(OTHER, 1)
    updater, bad, good = Stepped(log), active(LOG), FakeTask(TaskId(2, 0), [OTHER], is_active=True)
    bad.flush_error = StateError("disk full")
    updater.add(bad)
    updater.add(good)
    updater.turn(2)
    assert updater.drain_failed() == [(bad, bad.flush_error)]
    assert updater.drain_restored() == [good]
