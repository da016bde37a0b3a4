"""The state updater without its thread: the test calls every round."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from streams_protocol.types import TaskId, TopicPartition
from streams_py.errors import StateError, TaskCorruptedError, TimeoutExceededError
from streams_py.member.tasks import Progress
from tests.support.runtime.fakes import FakeLog, FakeTask
from tests.support.runtime.stepped_updater import LOG, OTHER, Stepped, active, standby
from tests.support.waiting import PATIENCE_S


def test_active_is_restored_from_the_beginning_when_it_has_no_checkpoint(log: FakeLog) -> None:
    log.write(LOG, 3)
    updater, task = Stepped(log), active(LOG)
    updater.add(task)
    updater.turn(2)
    assert updater.drain_restored() == [task]
    assert task.restored == [(LOG, 0), (LOG, 1), (LOG, 2)]
    assert task.checkpoints == [True]
    assert updater.listener.events == [("start", LOG, 0, 3), ("batch", LOG, 2, 3), ("end", LOG, 3)]
    assert updater.tasks() == []


def test_active_is_restored_after_its_checkpoint_when_it_has_one(log: FakeLog) -> None:
    log.write(LOG, 5)
    updater, task = Stepped(log), active(LOG, checkpoint={LOG: 2})
    updater.add(task)
    updater.turn(2)
    assert task.restored == [(LOG, 3), (LOG, 4)]
    assert updater.drain_restored() == [task]


def test_running_tasks_wait_for_nothing_that_is_done_for_others(log: FakeLog) -> None:
    """Its thread's calls in each iteration must not wait while a batch or a checkpoint is written to disk."""
    updater = Stepped(log)
    updater.add(active(LOG))
    with ThreadPoolExecutor() as pool, updater._lock:  # held while a batch is written
        assert pool.submit(updater.has_restoring_actives).result(PATIENCE_S)
        assert pool.submit(updater.drain_failed).result(PATIENCE_S) == []
        assert pool.submit(updater.drain_restored).result(PATIENCE_S) == []


def test_active_is_done_immediately_when_its_changelog_is_empty(log: FakeLog) -> None:
    updater, task = Stepped(log), active(LOG)
    updater.add(task)
    updater.turn()
    assert updater.drain_restored() == [task]


def test_active_is_done_immediately_when_its_checkpoint_is_at_the_end(log: FakeLog) -> None:
    log.write(LOG, 2)
    updater, task = Stepped(log), active(LOG, checkpoint={LOG: 1})
    updater.add(task)
    updater.turn()
    assert updater.drain_restored() == [task]
    assert task.restored == []


def test_end_before_the_checkpoint_is_not_believed_when_it_is_right_again_soon(log: FakeLog) -> None:
    log.write(LOG, 8)
    updater, task = Stepped(log), active(LOG, checkpoint={LOG: 4})
    log.ends[LOG] = 0
    updater.add(task)
    updater.turn(3)
    assert updater.drain_restored() == []
    assert updater.listener.events == []
    log.ends[LOG] = 8
    updater.turn(2)
    assert task.restored == [(LOG, 5), (LOG, 6), (LOG, 7)]
    assert updater.drain_restored() == [task]


def test_task_is_corrupted_when_its_changelog_stays_shorter_than_its_checkpoint(log: FakeLog) -> None:
    log.write(LOG, 2)
    updater, task = Stepped(log), active(LOG, checkpoint={LOG: 7})
    updater.add(task)
    updater.turn(50)
    assert updater.drain_failed() == []
    updater.clock.now += 1_000
    updater.turn()
    [(failed, error)] = updater.drain_failed()
    assert failed is task
    assert isinstance(error, TaskCorruptedError)
    assert error.tasks == {task.id: frozenset({LOG})}
    assert "ends at 2, before the checkpoint" in str(error)


def test_source_changelog_is_not_rewound_when_the_group_has_committed_less_than_the_checkpoint(log: FakeLog) -> None:
    log.write(LOG, 9)
    updater, task = Stepped(log), active(LOG, checkpoint={LOG: 6}, source_changelogs=[LOG])
    updater.add(task)  # nothing is committed: suspect, but possible after a reset of the group's offsets
    updater.turn(5)
    assert updater.drain_restored() == []
    updater.clock.now += 1_000
    updater.turn(2)
    assert updater.drain_restored() == [task]
    assert task.restored == []


def test_other_tasks_are_restored_while_an_end_is_in_doubt(log: FakeLog) -> None:
    log.write(OTHER, 2)
    updater, doubtful = Stepped(log), active(LOG, checkpoint={LOG: 7})
    other = FakeTask(TaskId(0, 1), [OTHER], is_active=True)
    updater.add(doubtful)
    updater.add(other)
    updater.turn(2)
    assert updater.drain_restored() == [other]


def test_active_ends_by_position_when_the_log_ends_in_a_gap(log: FakeLog) -> None:
    log.write(LOG, 2, skip=3)
    updater, task = Stepped(log), active(LOG)
    updater.add(task)
    updater.turn(3)
    assert updater.drain_restored() == [task]
    assert len(task.restored) == 2


def test_active_waits_for_all_of_its_changelogs(log: FakeLog) -> None:
    log.write(LOG, 1)
    log.write(OTHER, 1)
    updater, task = Stepped(log), active(LOG, OTHER)
    updater.add(task)
    updater.turn(2)
    assert updater.drain_restored() == [task]
    assert sorted(task.restored) == [(LOG, 0), (OTHER, 0)]


def test_records_written_after_the_start_are_left_to_the_running_task(log: FakeLog) -> None:
    log.write(LOG, 2)
    updater, task = Stepped(log), active(LOG)
    updater.add(task)
    updater.request_ends()
    log.write(LOG, 5)
    updater.turn(2)
    assert task.restored == [(LOG, 0), (LOG, 1)]


def test_standby_waits_while_an_active_restores(log: FakeLog) -> None:
    log.write(LOG, 1)
    log.write(OTHER, 4)
    updater, first, second = Stepped(log), active(LOG), standby(OTHER)
    updater.add(second)
    updater.add(first)
    updater.turn()
    assert second.restored == []
    updater.turn(2)
    assert updater.drain_restored() == [first]
    assert len(second.restored) == 4


def test_standby_follows_forever(log: FakeLog) -> None:
    updater, task = Stepped(log), standby(LOG)
    updater.add(task)
    for count in (1, 2, 3):
        log.write(LOG, count)
        updater.turn(2)
    assert [offset for _, offset in task.restored] == list(range(6))


def test_standby_tells_how_far_it_is_and_once_that_it_has_caught_up(log: FakeLog) -> None:
    log.write(LOG, 10)
    updater, task = Stepped(log), standby(LOG, OTHER)
    updater.add(task)
    updater.consumer.delivers_max = 4
    updater.turn()
    assert updater.standbys == {task.id: Progress(4, 10)}
    assert updater.warm == []
    for _ in range(3):
        updater.clock.now += 200
        updater.turn()
    assert updater.standbys == {task.id: Progress(10, 10)}
    assert updater.warm == [(task.id, 2, 200)]


def test_standby_is_not_measured_while_an_active_restores(log: FakeLog) -> None:
    log.write(LOG, 10)
    log.write(OTHER, 10)
    updater = Stepped(log)
    updater.consumer.delivers_max = 4
    updater.add(active(LOG))
    updater.add(standby(OTHER))
    updater.turn()
    assert updater.standbys == {}


def test_standby_of_a_source_changelog_counts_as_caught_up_at_the_committed_offset(log: FakeLog) -> None:
    log.write(LOG, 10)
    updater, task = Stepped(log), standby(LOG, source_changelogs=[LOG])
    updater.admin.committed = {LOG: 6}
    updater.add(task)
    updater.turn()
    updater.clock.now += 200
    updater.turn()
    assert updater.standbys == {task.id: Progress(6, 6)}


def test_standby_of_a_source_changelog_never_passes_the_committed_offset(log: FakeLog) -> None:
    log.write(LOG, 10)
    updater, task = Stepped(log), standby(LOG, source_changelogs=[LOG])
    updater.admin.committed[LOG] = 4
    updater.add(task)
    updater.turn(3)
    assert [offset for _, offset in task.restored] == [0, 1, 2, 3]
    updater.admin.committed[LOG] = 7
    updater.clock.now += 2000
    updater.turn(3)
    assert [offset for _, offset in task.restored] == [0, 1, 2, 3, 4, 5, 6]


def test_active_of_a_source_changelog_ends_at_the_committed_offset(log: FakeLog) -> None:
    log.write(LOG, 10)
    updater, task = Stepped(log), active(LOG, source_changelogs=[LOG])
    updater.admin.committed[LOG] = 4
    updater.add(task)
    updater.turn(3)
    assert [offset for _, offset in task.restored] == [0, 1, 2, 3]
    assert updater.drain_restored() == [task]


def test_removed_task_gets_no_more_records(log: FakeLog) -> None:
    log.write(LOG, 3)
    updater, task = Stepped(log), standby(LOG)
    updater.add(task)
    updater.turn(2)
    assert updater.remove(task.id) is task
    log.write(LOG, 3)
    updater.add(FakeTask(TaskId(2, 0), [OTHER], is_active=False))
    updater.turn(2)
    assert len(task.restored) == 3
    assert updater.remove(task.id) is None


def test_removed_active_is_reported_as_suspended_when_it_was_not_done(log: FakeLog) -> None:
    log.write(LOG, 3)
    log.write(OTHER, 1, skip=1)
    updater, task = Stepped(log), active(LOG, OTHER)
    updater.add(task)
    updater.request_ends()
    log.ends[OTHER] = 1  # the gap is not detected yet
    updater.turn()
    assert updater.remove(task.id) is task
    assert updater.listener.events[-1][0] == "batch"  # the caller may hold a lock: the updater's thread calls it
    updater.call_listeners()
    assert updater.listener.events[-1] == ("suspended", OTHER, 1)


def test_end_offsets_are_asked_again_when_the_broker_does_not_answer(log: FakeLog) -> None:
    log.write(LOG, 1)
    updater, task = Stepped(log), active(LOG)
    updater.admin.failures = 2
    updater.add(task)
    updater.turn(4)
    assert updater.drain_restored() == [task]


def test_task_is_corrupted_when_its_position_is_gone_from_the_broker(log: FakeLog) -> None:
    log.write(LOG, 10)
    log.starts[LOG] = 5
    updater, task = Stepped(log), active(LOG, checkpoint={LOG: 1})
    updater.add(task)
    updater.turn()
    [(failed, error)] = updater.drain_failed()
    assert failed is task
    assert isinstance(error, TaskCorruptedError)
    assert error.tasks == {task.id: frozenset({LOG})}


def test_only_the_task_fails_when_its_store_fails(log: FakeLog) -> None:
    log.write(LOG, 1)
    log.write(OTHER, 1)
    updater, bad, good = Stepped(log), standby(LOG), FakeTask(TaskId(2, 0), [OTHER], is_active=False)
    bad.error = StateError("disk full")
    updater.add(bad)
    updater.add(good)
    updater.turn(2)
    assert updater.drain_failed() == [(bad, bad.error)]
    assert good.restored == [(OTHER, 0)]
    assert updater.drain_failed() == []


def test_tasks_are_checkpointed_once_per_commit_interval(log: FakeLog) -> None:
    updater, task = Stepped(log), standby(LOG)
    updater.add(task)
    updater.turn(3)
    assert task.checkpoints == []
    updater.clock.now += 1001
    updater.turn(3)
    assert task.checkpoints == [False]


def test_restoration_starts_with_its_end_known_when_a_task_is_added_in_the_middle_of_a_round(log: FakeLog) -> None:
    log.write(LOG, 3)
    updater = Stepped(log)
    late = FakeTask(TaskId(0, 0), [LOG], is_active=True)
    updater.request_ends()
    updater.add(late)  # after the end offsets were requested, before the partitions are assigned
    updater.assign_changelogs()
    assert updater.listener.events == []
    assert updater.consumer.assignments == [{}]
    updater.turn(2)
    assert [event[0] for event in updater.listener.events] == ["start", "batch", "end"]
    assert updater.drain_restored() == [late]


def test_standby_of_a_source_topic_never_passes_the_committed_offset_when_added_in_the_middle_of_a_round(
    log: FakeLog,
) -> None:
    log.write(LOG, 5)
    updater = Stepped(log)
    standby = FakeTask(TaskId(0, 0), [LOG], is_active=False, source_changelogs=[LOG])
    updater.admin.committed[LOG] = 2
    updater.request_ends()
    updater.add(standby)
    updater.assign_changelogs()
    assert updater.consumer.assignments == [{}]
    updater.turn(3)
    assert standby.restored == [(LOG, 0), (LOG, 1)]


def test_changelog_without_a_leader_holds_up_its_own_task_only_until_the_task_timeout(log: FakeLog) -> None:
    log.write(LOG, 2)
    log.write(OTHER, 1)
    updater, stuck, other = Stepped(log), active(LOG), FakeTask(TaskId(2, 0), [OTHER], is_active=True)
    follower = FakeTask(TaskId(3, 0), [TopicPartition("third", 0)], is_active=False)
    log.write(TopicPartition("third", 0), 1)
    updater.admin.leaderless.add(LOG)
    for task in (stuck, other, follower):
        updater.add(task)
    updater.turn(2)
    assert updater.drain_restored() == [other]
    assert updater.admin.asked == [{OTHER}]  # a request for both would wait for the leader of the other one
    updater.clock.now += 5001
    updater.turn()
    [(failed, error)] = updater.drain_failed()
    assert failed is stuck
    assert isinstance(error, TimeoutExceededError)
    assert "no leader" in str(error)
    assert error.task_id == stuck.id
    updater.turn(2)
    assert len(follower.restored) == 1


def test_changelog_that_gets_a_leader_is_restored_after_all(log: FakeLog) -> None:
    log.write(LOG, 2)
    updater, task = Stepped(log), active(LOG)
    updater.admin.leaderless.add(LOG)
    updater.add(task)
    updater.turn()
    updater.clock.now += 4000
    updater.turn()
    updater.admin.leaderless.clear()
    updater.turn(2)
    assert updater.drain_restored() == [task]


def test_changelog_longer_than_one_poll_is_restored_whole_and_in_order(log: FakeLog) -> None:
    log.write(LOG, 1_700)
    updater, task = Stepped(log), active(LOG)
    updater.add(task)
    updater.turn(6)
    assert task.restored == [(LOG, offset) for offset in range(1_700)]
    assert updater.drain_restored() == [task]


def test_records_that_are_there_are_taken_before_anything_else_is_asked(log: FakeLog) -> None:
    log.write(LOG, 3_000)
    updater, task = Stepped(log), active(LOG)
    updater.add(task)
    updater.turn()
    assert task.restored == [(LOG, offset) for offset in range(3_000)]
    assert len(updater.consumer.assignments) == 1


def test_consumer_hears_immediately_of_a_changelog_that_has_ended(log: FakeLog) -> None:
    """Otherwise it would continue reading: a source topic may have more records than its table may contain."""
    log.write(LOG, 10_000)
    log.write(OTHER, 10_000)
    updater, first = Stepped(log), active(LOG, source_changelogs=[LOG])
    second = FakeTask(TaskId(1, 1), [OTHER], is_active=True)
    updater.admin.committed[LOG] = 700
    updater.add(first)
    updater.add(second)
    updater.turn(2)
    assert updater.drain_restored() == [first]
    assert [LOG in positions for positions in updater.consumer.assignments] == [True, False]
    assert len(first.restored) == 700
    assert second.restored == [(OTHER, offset) for offset in range(len(second.restored))]


def test_short_changelog_ends_while_a_long_one_continues(log: FakeLog) -> None:
    """The last record of the shorter log is a transaction marker, which no consumer delivers."""
    log.write(LOG, 100_000)
    log.write(OTHER, 3)
    log.ends[OTHER] = 4
    updater, long, short = Stepped(log), active(LOG), FakeTask(TaskId(1, 1), [OTHER], is_active=True)
    updater.add(long)
    updater.add(short)
    updater.turn(3)
    updater.clock.now += 50
    updater.turn()
    assert updater.drain_restored() == [short]
    assert updater.has_restoring_actives()


def test_topics_that_others_write_are_not_among_those_that_only_a_former_owner_may_hold_up(log: FakeLog) -> None:
    """An open transaction in a changelog belongs to a dead member, and is ended.

    In a source topic it may belong to a member that is writing now.
    """
    log.write(LOG, 3)
    log.write(OTHER, 3)
    updater = Stepped(log)
    updater.add(active(LOG, OTHER, source_changelogs=[OTHER]))
    assert updater.restoring() == {LOG}
    updater.turn(2)
    assert updater.restoring() == set()


@pytest.mark.parametrize("kind", [active, standby])
def test_task_is_corrupted_when_its_position_is_in_a_topic_that_was_recreated_since(
    kind: Callable[..., FakeTask], log: FakeLog
) -> None:
    log.write(LOG, 9)
    updater, task = Stepped(log), kind(LOG, checkpoint={LOG: 4})
    task.topic_ids, updater.admin.topic_ids = {LOG.topic: "before"}, {LOG.topic: "now"}
    updater.add(task)
    updater.turn(2)
    [(failed, error)] = updater.drain_failed()
    assert failed is task
    assert isinstance(error, TaskCorruptedError)
    assert error.tasks == {task.id: frozenset({LOG})}
    assert "is another topic than that of the checkpoint" in str(error)
    assert task.restored == []


def test_copies_that_come_together_are_asked_about_once_and_not_again_before_long(log: FakeLog) -> None:
    log.write(LOG, 2)
    log.write(OTHER, 2)
    updater, task = Stepped(log), standby(LOG, OTHER)
    updater.admin.topic_ids = {LOG.topic: "a", OTHER.topic: "b"}
    updater.add(task)
    updater.turn(20)
    assert sorted(task.restored) == [(LOG, 0), (LOG, 1), (OTHER, 0), (OTHER, 1)]
    assert updater.admin.described == [{LOG.topic, OTHER.topic}]
    assert updater.admin.asked == []  # their end offsets are not needed
    updater.admin.topic_ids[LOG.topic] = "recreated, and longer than its position"
    updater.clock.now += 300_000
    updater.turn()
    assert [failed for failed, _ in updater.drain_failed()] == [task]


def test_copy_waits_forever_while_nobody_says_which_topic_its_changelog_is(log: FakeLog) -> None:
    log.write(LOG, 1)
    updater, task = Stepped(log), standby(LOG)
    updater.admin.unknown_topics.add(LOG.topic)
    updater.add(task)
    updater.turn()
    updater.clock.now += 100_000
    updater.turn()
    assert updater.drain_failed() == []
    assert task.restored == []
    updater.admin.unknown_topics.clear()
    updater.turn()
    assert task.restored == [(LOG, 0)]
