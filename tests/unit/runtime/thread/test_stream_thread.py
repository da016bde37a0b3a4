"""The loop of a stream thread, iteration by iteration, and rebalances."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import Mock

import pytest

from streams_protocol import AssignmentInfo, encode_assignment_info
from streams_py.errors import (
    BrokerUnavailableError,
    OffsetOutOfRangeError,
    ProductionError,
    StreamsError,
    TaskMigratedError,
)
from streams_py.ports import OffsetAndMetadata
from streams_py.runtime.group.inbox import Inbox
from streams_py.runtime.group.transport import TaskListener
from streams_py.runtime.restore.listener import StandbyUpdateListener, SuspendReason
from streams_py.runtime.thread.states import ThreadState
from streams_py.runtime.thread.stream_thread import StreamThread
from streams_py.state.directory.checkpoint import CHECKPOINT_FILE
from tests.support.runtime.outcomes import offsets, outputs
from tests.support.runtime.world import Steps, World, copying, counting, task, tp
from tests.support.waiting import PATIENCE_S

A, B = task("0_0"), task("0_1")
BOTH = {A: [tp("in-0")], B: [tp("in-1")]}
CHANGELOG = tp("app-counts-changelog-0")


# -- processing ----------------------------------------------------------------------------------------------------


def test_records_are_processed_and_committed_by_interval(world: World, tmp_path: Path) -> None:
    steps = Steps(world, copying(), tmp_path)
    steps.run(BOTH)
    world.write("in", b"a", b"b")
    world.write("in", b"c", partition=1)
    steps.turn()
    assert sorted(filter(None, outputs(world))) == [b"A", b"B", b"C"]
    assert world.committed == {}
    world.clock.advance(1001)
    steps.turn()
    assert offsets(world) == {tp("in-0"): 2, tp("in-1"): 1}
    assert world.names() == ["flush", "commit"]
    world.clock.advance(1001)
    steps.turn()
    assert world.names() == ["flush", "commit"]  # nothing new


def test_running_tasks_process_and_commit_while_the_state_updater_is_held_up(world: World, tmp_path: Path) -> None:
    steps = Steps(world, copying(), tmp_path)
    steps.run(BOTH)
    world.write("in", b"a")
    with ThreadPoolExecutor() as pool, steps.updater._lock:  # held while a batch is written
        pool.submit(steps.loop.iterate).result(PATIENCE_S)
        world.clock.advance(1001)
        pool.submit(steps.loop.iterate).result(PATIENCE_S)
    assert offsets(world) == {tp("in-0"): 1}


def test_reading_starts_at_the_committed_offset_else_by_the_reset_policy(world: World, steps: Steps) -> None:
    world.write("in", b"a", b"b", b"c")
    world.write("in", b"d", partition=1)
    world.committed[tp("in-0")] = committed(2)
    steps.run(BOTH)
    assert steps.consumer.assigned[-1] == {tp("in-0"): 2, tp("in-1"): -2}


def committed(offset: int) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset)


def test_partition_is_paused_when_its_buffer_is_full_and_resumed_when_there_is_room(
    world: World, tmp_path: Path
) -> None:
    steps = Steps(world, copying(), tmp_path, buffered_records_per_partition=2)
    steps.run({A: [tp("in-0")]})
    world.write("in", *[b"x"] * 5)
    steps.thread.pause(True)
    steps.turn()
    assert steps.consumer.paused == {tp("in-0")}
    steps.thread.pause(False)
    steps.turn(2)
    assert steps.consumer.paused == set()
    assert len(outputs(world)) == 5


def test_thread_that_is_paused_while_it_opens_restores_nothing(world: World) -> None:
    class Updater:
        paused = False

        def pause(self, paused: bool) -> None:
            if not paused:  # which is the state at its start
                pausing.start()
                pausing.join(0.1)
            self.paused = paused

    updater = Updater()
    loop: Any = SimpleNamespace(parts=SimpleNamespace(updater=updater))
    thread = StreamThread("thread", 1, clock=world.clock, open_loop=lambda _: loop, owner=Mock())
    pausing = threading.Thread(target=thread.pause, args=(True,))
    thread._open()  # without starting it
    pausing.join()
    assert updater.paused


def test_thread_that_cannot_be_started_is_dead(world: World) -> None:
    """The close of the client waits for that."""
    thread = StreamThread("thread", 1, clock=world.clock, open_loop=Mock(), owner=Mock())
    # The operating system refuses a thread only when it is exhausted.
    thread._thread.start = Mock(side_effect=RuntimeError("can't start new thread"))  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="new thread"):
        thread.start()
    assert thread.state is ThreadState.DEAD
    assert thread.wait(None)


def test_paused_thread_neither_processes_nor_punctuates_but_stays_a_member(world: World, steps: Steps) -> None:
    steps.run(BOTH)
    world.write("in", b"a")
    steps.thread.pause(True)
    steps.turn(3)
    assert outputs(world) == []
    assert steps.thread.state is ThreadState.RUNNING
    steps.membership.round(BOTH)
    steps.thread.pause(False)
    steps.turn(3)
    world.clock.advance(2000)
    steps.turn()
    assert len(outputs(world)) == 1


@pytest.mark.parametrize("interval_ms", [60_000, 0])
def test_log_says_now_and_then_what_was_done(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture, interval_ms: int
) -> None:
    caplog.set_level(logging.INFO, logger="streams_py.runtime.thread.summary")
    steps = Steps(world, copying(), tmp_path, log_summary_interval_ms=interval_ms)
    steps.run(BOTH)
    world.write("in", b"a", b"b")
    steps.turn()
    world.clock.advance(60_001)
    steps.turn(3)
    world.clock.advance(60_001)
    steps.turn()
    logged = [record.getMessage() for record in caplog.records]
    if not interval_ms:
        assert logged == []
        return
    name = steps.thread.name
    assert logged == [
        f"{name}: processed 2 records, ran 0 punctuators, and committed 1 tasks in the last 60 s",
        f"{name}: processed 0 records, ran 0 punctuators, and committed 0 tasks in the last 60 s",
    ]


def test_position_is_reset_when_its_offset_is_gone(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    steps = Steps(world, copying(), tmp_path)
    world.write("in", *[b"x"] * 10)
    world.committed[tp("in-0")] = committed(2)
    world.starts[tp("in-0")] = 5
    steps.run({A: [tp("in-0")]})
    steps.turn(2)
    assert len(outputs(world)) == 5
    assert "offset out of range for in-0 (deleted by retention?); resuming at the beginning" in caplog.text


def test_partition_whose_log_was_replaced_by_a_shorter_one_is_read_from_its_beginning(
    world: World, tmp_path: Path
) -> None:
    steps = Steps(world, copying(), tmp_path)
    world.write("in", *[b"x"] * 10)
    steps.run({A: [tp("in-0")]})
    steps.turn(2)
    world.log.records[tp("in-0")] = []
    world.write("in", *[b"y"] * 3)
    consumer = steps.loop.parts.consumer
    deliver, consumer.poll = consumer.poll, Mock(side_effect=OffsetOutOfRangeError([tp("in-0")]))  # type: ignore[method-assign]
    steps.loop.iterate()
    consumer.poll = deliver  # type: ignore[method-assign]
    steps.turn(2)
    assert outputs(world)[10:] == [b"Y"] * 3


def test_task_runs_while_another_one_restores(world: World, steps: Steps) -> None:
    steps.run({A: [tp("in-0")]})
    world.log.produce("app-counts-changelog", bytes(8), b"k", 1, None, 1, None)
    world.committed[tp("in-1")] = OffsetAndMetadata(0)
    steps.membership.round(BOTH)
    world.write("in", b"a")
    steps.loop.iterate()  # without the updater, the other one cannot become ready
    assert steps.thread.state is ThreadState.PARTITIONS_ASSIGNED
    assert steps.tasks == {"0_0": "RUNNING", "0_1": "RESTORING"}
    assert steps.thread.control.processed_records == 1
    steps.turn(3)
    assert steps.thread.state is ThreadState.RUNNING


# -- rebalances ----------------------------------------------------------------------------------------------------


def test_nothing_is_committed_during_a_rebalance(world: World, steps: Steps) -> None:
    steps.run(BOTH)
    world.write("in", b"a", partition=1)
    steps.membership.join()
    world.clock.advance(5000)
    steps.turn(3)
    assert steps.thread.control.processed_records == 1  # processing continues
    assert world.names() == []
    steps.membership.finish(BOTH)
    steps.turn(3)
    assert world.names() == ["flush", "commit"]


def test_revocation_commits_the_others_too_when_a_revoked_task_has_offsets(world: World, steps: Steps) -> None:
    steps.run(BOTH)
    world.write("in", b"a")
    world.write("in", b"b", partition=1)
    steps.turn()
    steps.membership.round({A: [tp("in-0")]})
    assert world.diary == [("flush",), ("flush",), ("revocation commit", {tp("in-0"): 1, tp("in-1"): 1})]
    steps.turn()
    assert steps.tasks == {"0_0": "RUNNING"}
    world.clock.advance(5000)
    steps.turn()
    assert world.names().count("commit") == 0  # it is all committed


def test_revocation_commits_nothing_when_the_revoked_tasks_have_no_offsets(world: World, steps: Steps) -> None:
    steps.run(BOTH)
    world.write("in", b"a")
    steps.turn()
    steps.membership.round({A: [tp("in-0")]})
    assert world.names() == []
    assert steps.tasks == {"0_0": "RUNNING"}
    steps.turn()
    assert steps.thread.control.processed_records == 1


def test_untouched_task_keeps_its_records_and_position_while_another_is_revoked(world: World, tmp_path: Path) -> None:
    steps = Steps(world, copying(), tmp_path)
    steps.run(BOTH)
    kept = next(one for one in steps.parts.table.all() if one.id == A)
    steps.membership.round({A: [tp("in-0")]})
    assert steps.parts.table.all() == [kept]
    assert all(positions[tp("in-0")] is None for positions in steps.consumer.assigned[-2:])
    world.write("in", b"a")
    steps.turn()
    assert outputs(world) == [b"A"]


def test_revoked_tasks_are_given_up_without_a_checkpoint_when_their_offsets_were_refused(
    world: World, tmp_path: Path
) -> None:
    steps = Steps(world, counting(), tmp_path, dsl_store_suppliers_class="rocksdb")
    steps.run(BOTH)
    world.write("in", b"a")
    steps.turn()
    steps.membership.commit_error = BrokerUnavailableError("no answer")
    steps.membership.round({B: [tp("in-1")]})
    assert steps.tasks == {"0_1": "RUNNING"}
    checkpoint = Path(steps.instance.directory.task_path(A)) / CHECKPOINT_FILE
    assert checkpoint.read_text() == "0\n1\napp-counts-changelog 0 -4\n"  # as it was before the record
    steps.turn()
    assert steps.errors == []
    steps.membership.commit_error = None
    steps.run(BOTH)
    steps.turn()
    assert steps.thread.control.processed_records == 2  # the record whose offset was refused, again
    steps.close()


def test_revoked_tasks_do_not_count_as_committed_when_they_could_not_be_flushed(world: World, steps: Steps) -> None:
    steps.run(BOTH)
    world.write("in", b"a")
    steps.turn()
    steps.producer.flush_error = ProductionError("too large", topic="out", partition=0)
    steps.membership.round({B: [tp("in-1")]})
    assert steps.tasks == {"0_1": "RUNNING"}
    assert offsets(world) == {}
    assert world.names() == ["flush"]
    with pytest.raises(ProductionError):
        steps.turn()


@pytest.mark.parametrize(
    "error", [BrokerUnavailableError("its queue stays full"), ProductionError("too large", topic="out", partition=0)]
)
def test_revoked_tasks_that_are_flushed_are_committed_although_the_others_fail(
    error: Exception, world: World, steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps.run(BOTH)
    world.write("in", b"a")
    world.write("in", b"b", partition=1)
    steps.turn()
    flush, flushes = steps.producer.flush, 0

    def second_one_fails(timeout_ms: int) -> int:
        nonlocal flushes
        flushes += 1
        if flushes == 2:
            raise error
        return flush(timeout_ms)

    monkeypatch.setattr(steps.producer, "flush", second_one_fails)
    steps.membership.round({A: [tp("in-0")]})
    assert flushes == 2
    assert offsets(world) == {tp("in-1"): 1}
    assert steps.tasks == {"0_0": "RUNNING"}
    if isinstance(error, ProductionError):
        with pytest.raises(ProductionError):
            steps.turn()
    else:
        world.clock.advance(5000)
        steps.turn()
        assert offsets(world) == {tp("in-0"): 1, tp("in-1"): 1}


def test_migration_found_in_a_revocation_makes_the_thread_join_again(world: World, steps: Steps) -> None:
    steps.run(BOTH)
    world.write("in", b"a")
    steps.turn()
    steps.membership.commit_error = TaskMigratedError("not a member")
    steps.membership.round({B: [tp("in-1")]})
    steps.turn()
    assert world.names()[-1] == "join as a new member"
    assert steps.tasks == {}
    assert steps.errors == []


def test_lost_partitions_are_dropped_without_a_commit_and_standbys_stay(world: World, steps: Steps) -> None:
    steps.run({A: [tp("in-0")]}, standby={B: [tp("in-1")]})
    standby = next(one for one in steps.parts.table.all() if not one.is_active)
    world.write("in", b"a")
    steps.turn()
    active = steps.parts.table.running()[0]
    steps.membership.lose()
    assert world.diary == []
    assert active.state.value == "CLOSED"
    assert steps.parts.table.all() == [standby]
    assert standby.state.value == "RUNNING"
    assert steps.consumer.positions == {}
    steps.run(BOTH)
    assert steps.tasks == {"0_0": "RUNNING", "0_1": "RUNNING"}
    assert steps.thread.control.processed_records == 2  # the record that was not committed, again


def test_thread_reports_running_tasks_as_such_and_others_by_their_offsets(world: World, steps: Steps) -> None:
    for _ in range(3):
        world.log.produce("app-counts-changelog", bytes(8), b"k", 1, None, 1, None)
    steps.run({A: [tp("in-0")]}, standby={B: [tp("in-1")]})
    assert steps.membership.join().task_offset_sums == {A: -2, B: 3}


def test_subscription_of_a_new_thread_reports_what_an_earlier_one_left_on_disk(world: World, tmp_path: Path) -> None:
    first = Steps(world, counting(), tmp_path, dsl_store_suppliers_class="rocksdb")
    first.run({A: [tp("in-0")]})
    world.write("in", b"a", b"b")
    first.turn()
    first.close()
    first.instance.close()
    second = Steps(world, counting(), tmp_path, dsl_store_suppliers_class="rocksdb")
    # The last count of one key is changelog offset 0 with a cache in front, and a checkpoint holds last offsets.
    assert second.membership.join().task_offset_sums == {A: len(world.records(CHANGELOG)) - 1}
    assert second.instance.directory.owner_of(A) == second.thread.name
    second.membership.finish({B: [tp("in-1")]})
    assert second.instance.directory.owner_of(A) is None
    second.close()
    second.instance.close()


def test_follow_up_rebalance_is_asked_for_when_it_is_due(world: World, steps: Steps) -> None:
    steps.membership.round(BOTH, next_rebalance_ms=world.clock.now_ms() + 500)
    steps.turn(3)
    assert "rejoin" not in world.names()
    world.clock.advance(501)
    steps.turn(2)
    assert world.names().count("rejoin") == 1


@pytest.mark.parametrize(
    ("code", "error", "words"), [(1, "MissingSourceTopicError", "source topic"), (3, "TaskAssignmentError", "code 3")]
)
def test_error_code_of_an_assignment_fails_the_thread_after_the_rebalance(
    steps: Steps, code: int, error: str, words: str
) -> None:
    steps.membership.round({}, error_code=code)
    with pytest.raises(StreamsError, match=words) as caught:
        steps.turn()
    assert type(caught.value).__name__ == error


def test_error_code_keeps_running_tasks_until_the_thread_has_failed(world: World, steps: Steps) -> None:
    steps.run(BOTH)
    steps.membership.join()
    listener = steps.membership.listener
    listener.on_assignment((), encode_assignment_info(AssignmentInfo(error_code=3)), 2)
    assert steps.tasks == {"0_0": "RUNNING", "0_1": "RUNNING"}


def test_thread_waits_for_user_code_of_a_rebalance_only_as_long_as_a_poll_may_take(world: World, steps: Steps) -> None:
    busy = Inbox[TaskListener]()  # which is not read
    calls = steps.membership.listener._thread  # where the polling thread waits
    calls._inbox = busy  # its own inbox is read by the test's steps
    calls.wait_ms = 1
    with pytest.raises(TaskMigratedError, match=r"max\.poll\.interval\.ms"):
        steps.membership.listener.on_revoked((tp("in-0"),))


# -- names ---------------------------------------------------------------------------------------------------------


def test_names_of_threads_and_clients_are_kafkas(world: World, tmp_path: Path) -> None:
    process_id = str(Steps(world, copying(), tmp_path).instance.directory.process_id)
    assert list(world.consumers) == [f"app-{process_id}-StreamThread-1"]
    other = World(**{"in": 1, "out": 1})
    named = Steps(other, counting(), tmp_path / "other", client_id="mine")
    assert named.thread.name == "mine-StreamThread-1"
    assert named.updater.name == "mine-StateUpdater-1"


def test_commit_comes_early_when_uncommitted_writes_fill_their_share_of_memory(world: World, tmp_path: Path) -> None:
    steps = Steps(
        world,
        counting(),
        tmp_path,
        dsl_store_suppliers_class="rocksdb",
        statestore_cache_max_bytes=0,
        statestore_uncommitted_max_bytes=1 << 20,
        commit_interval_ms=3_600_000,
    )
    steps.run({A: [tp("in-0")]})
    for number in range(6_000):
        world.write("in", b"x", key=b"%d" % number)
    task = steps.parts.table.running()[0]
    while task.buffered_records or steps.consumer.lag(tp("in-0")):
        steps.turn()
        assert task.stores.uncommitted_bytes < 2 << 20
    assert world.committed[tp("in-0")].offset > 4_000
    assert len(world.records(CHANGELOG)) == 6_000


@pytest.mark.parametrize("here", [True, False], ids=["here", "elsewhere"])
def test_standby_listener_hears_whether_the_copy_continues_as_the_active_task(
    world: World, tmp_path: Path, here: bool
) -> None:
    class Listener(StandbyUpdateListener):
        reasons: ClassVar[list[SuspendReason]] = []

        def on_update_suspended(self, *told: Any) -> None:
            self.reasons.append(told[-1])

    Listener.reasons.clear()
    steps = Steps(world, counting(), tmp_path)
    calls = steps.updater._listener_calls  # the updater has no thread here
    calls._standby_listener = Listener()  # `Steps` passes no listener
    steps.run({A: [tp("in-0")]}, standby={B: [tp("in-1")]})
    steps.turn(2)
    steps.membership.round({A: [tp("in-0")], B: [tp("in-1")]} if here else {A: [tp("in-0")]})
    steps.turn(2)
    calls.deliver()
    assert Listener.reasons == [SuspendReason.PROMOTED if here else SuspendReason.MIGRATED]
