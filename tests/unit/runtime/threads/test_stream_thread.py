"""The loop of a stream thread, turn by turn, rebalances and trouble."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from streams_protocol import AssignmentInfo, encode_assignment_info
from streams_protocol.types import TopicPartition
from streams_py import serdes
from streams_py.errors import (
    BrokerUnavailableError,
    ProcessingError,
    ProductionError,
    StateError,
    StreamsError,
    TaskCorruptedError,
    TaskMigratedError,
    TimeoutExceededError,
)
from streams_py.ports import OffsetAndMetadata
from streams_py.runtime.states import ThreadState
from streams_py.runtime.threads.inbox import Inbox
from streams_py.runtime.threads.rebalance import TaskSide
from streams_py.topology.dsl.builder import StreamsBuilder
from streams_py.topology.processor import Processor, Record
from streams_py.topology.topology import Topology
from tests.unit.runtime.world import Steps, World, copying, counting, task, tp

A, B = task("0_0"), task("0_1")
BOTH = {A: [tp("in-0")], B: [tp("in-1")]}
CHANGELOG = tp("app-counts-changelog-0")


@pytest.fixture
def world() -> World:
    return World(**{"in": 2, "out": 2, "app-counts-changelog": 2})


@pytest.fixture
def steps(world: World, tmp_path: Path) -> Steps:
    return Steps(world, counting(), tmp_path)


def outputs(world: World) -> list[bytes | None]:
    return [record.value() for number in (0, 1) for record in world.records(TopicPartition("out", number))]


def offsets(world: World) -> dict[TopicPartition, int]:
    return {partition: at.offset for partition, at in world.committed.items()}


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
    caplog.set_level(logging.INFO, logger="streams_py.runtime.threads.summary")
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
    assert "offset of in-0 is gone from the broker; starting at the beginning" in caplog.text


def test_task_runs_while_another_one_restores(world: World, steps: Steps) -> None:
    steps.run({A: [tp("in-0")]})
    world.log.produce("app-counts-changelog", bytes(8), b"k", 1, None, 1, None)
    steps.membership.round(BOTH)
    world.write("in", b"a")
    steps.loop.iterate()  # without the updater: the other one cannot get ready
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
    assert steps.thread.control.processed_records == 1  # work goes on
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
    checkpoint = Path(steps.instance.directory.task_path(A)) / ".checkpoint"
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


def test_migration_found_in_a_revocation_makes_the_thread_join_anew(world: World, steps: Steps) -> None:
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
    busy = Inbox[TaskSide]()  # nobody serves it
    steps.parts.rebalance._inbox = busy
    steps.parts.rebalance._wait_ms = 1
    with pytest.raises(TaskMigratedError, match=r"max\.poll\.interval\.ms"):
        steps.membership.listener.on_revoked((tp("in-0"),))


# -- trouble -------------------------------------------------------------------------------------------------------


def test_migrated_tasks_are_dropped_and_the_thread_joins_anew(world: World, steps: Steps) -> None:
    steps.run(BOTH)
    world.write("in", b"a")
    steps.membership.commit_error = TaskMigratedError("fenced")
    world.clock.advance(2000)
    steps.turn()
    assert steps.tasks == {}
    assert world.names() == ["flush", "commit", "join as a new member"]
    assert steps.consumer.positions == {}
    assert steps.errors == []


def test_healthy_tasks_are_committed_before_a_corrupted_one_is_revived(world: World, steps: Steps) -> None:
    world.log.produce("app-counts-changelog", bytes(8), b"old", 0, None, 1, None)
    steps.run(BOTH)
    world.write("in", b"a")
    world.write("in", b"b", partition=1)
    steps.turn()
    steps.membership.problem = TaskCorruptedError("bad state", {A: [CHANGELOG]})
    world.diary.clear()
    steps.turn()
    assert world.diary == [("flush",), ("commit", {tp("in-1"): 1}), ("flush",)]
    assert steps.tasks == {"0_0": "CREATED", "0_1": "RUNNING"}
    assert steps.thread.state is ThreadState.PARTITIONS_ASSIGNED
    steps.turn(3)
    assert steps.tasks == {"0_0": "RUNNING", "0_1": "RUNNING"}
    # Its input goes on at the committed offset, not at the consumer's position: the record comes again.
    assert steps.consumer.assigned[-1] == {tp("in-0"): -2, tp("in-1"): None}
    steps.turn()
    assert steps.thread.control.processed_records == 3


def test_corruption_during_a_rebalance_commits_nothing(world: World, steps: Steps) -> None:
    steps.run(BOTH)
    world.write("in", b"b", partition=1)
    steps.turn()
    steps.membership.join()
    steps.membership.problem = TaskCorruptedError("bad state", {A: [CHANGELOG]})
    steps.turn()
    assert world.names() == ["flush"]
    assert steps.tasks["0_0"] == "CREATED"


@pytest.mark.parametrize("in_rebalance", [True, False])
def test_changelog_records_on_their_way_arrive_before_a_corrupted_task_is_restored(
    world: World, tmp_path: Path, in_rebalance: bool
) -> None:
    """Its restoration would end before them, and the store would miss them although the changelog has them."""
    steps = Steps(world, counting(), tmp_path, statestore_cache_max_bytes=0)
    on_their_way: list[tuple[Any, ...]] = []
    arrive = steps.producer.produce

    def flush(timeout_ms: int) -> int:
        while on_their_way:
            arrive(*on_their_way.pop(0))
        return 0

    steps.producer.produce = lambda *record: on_their_way.append(record)
    steps.producer.flush = flush  # type: ignore[method-assign]  # the broker takes its time
    steps.run({A: [tp("in-0")]})
    world.write("in", b"a")
    steps.turn()
    assert len(on_their_way) == 2
    if in_rebalance:
        steps.membership.join()
    steps.membership.problem = TaskCorruptedError("bad state", {A: [CHANGELOG]})
    steps.turn()
    assert steps.tasks == {"0_0": "CREATED"}
    assert on_their_way == []
    assert len(world.records(CHANGELOG)) == 1


def test_migration_met_while_reviving_is_handled_too(world: World, steps: Steps) -> None:
    steps.run(BOTH)
    world.write("in", b"b", partition=1)
    steps.turn()
    steps.membership.problem = TaskCorruptedError("bad state", {A: [CHANGELOG]})
    steps.membership.commit_error = TaskMigratedError("fenced")
    steps.turn()
    assert world.names()[-1] == "join as a new member"
    assert steps.tasks == {}


def test_error_of_the_state_updater_ends_the_thread(world: World, steps: Steps) -> None:
    steps.membership.round(BOTH)
    steps.loop.iterate()
    steps.updater._fail(steps.parts.table.all()[0], StateError("disk on fire"))
    with pytest.raises(StateError, match="disk on fire"):
        steps.turn()


def test_committed_offsets_are_asked_again_until_the_task_time_out(world: World, tmp_path: Path) -> None:
    steps = Steps(world, copying(), tmp_path, task_timeout_ms=3000)
    world.away = True
    steps.membership.round({A: [tp("in-0")]})
    steps.turn(3)
    assert steps.thread.state is ThreadState.PARTITIONS_ASSIGNED
    world.clock.advance(2000)
    steps.turn(2)
    world.away = False
    world.clock.advance(200)
    steps.turn(2)
    assert steps.thread.state is ThreadState.RUNNING
    steps.membership.lose()
    world.away = True
    steps.membership.round({A: [tp("in-0")]})
    steps.turn()
    world.clock.advance(3001)
    with pytest.raises(TimeoutExceededError, match=r"task\.timeout\.ms is 3000"):
        steps.turn()


def test_refused_commit_is_tried_again_after_a_pause_not_at_once(world: World, steps: Steps) -> None:
    steps.run({A: [tp("in-0")]})
    world.write("in", b"a")
    steps.membership.commit_error = BrokerUnavailableError("the group is rebalancing")
    world.clock.advance(2000)
    steps.turn(5)
    assert world.names().count("commit") == 1
    world.clock.advance(100)
    steps.turn(5)
    assert world.names().count("commit") == 2
    steps.membership.commit_error = None
    world.clock.advance(100)
    steps.turn()
    assert offsets(world) == {tp("in-0"): 1}


# -- purging -------------------------------------------------------------------------------------------------------


def repartitioned() -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.BYTES, value=serdes.BYTES)
    stream.repartition(name="step", partitions=1, key=serdes.BYTES, value=serdes.BYTES).to(
        "out", key=serdes.BYTES, value=serdes.BYTES
    )
    return builder.build()


def test_repartition_records_are_deleted_up_to_the_committed_offset_after_the_interval(
    world: World, tmp_path: Path
) -> None:
    world.topics["app-step-repartition"] = 1
    steps = Steps(world, repartitioned(), tmp_path, repartition_purge_interval_ms=5000)
    steps.run({A: [tp("in-0")], task("1_0"): [tp("app-step-repartition-0")]})
    world.write("in", b"a", b"b")
    for _ in range(6):
        world.clock.advance(1100)
        steps.turn(2)
    deleted = [entry for entry in world.diary if entry[0] == "delete records"]
    assert deleted == [("delete records", {tp("app-step-repartition-0"): 2})]


# -- the end -------------------------------------------------------------------------------------------------------


def test_clean_end_commits_closes_and_keeps_the_place_in_the_group(world: World, steps: Steps) -> None:
    steps.run(BOTH)
    world.write("in", b"a")
    steps.turn()
    steps.close()
    assert world.diary == [("flush",), ("commit", {tp("in-0"): 1}), ("stay until the session is over",)]
    assert steps.ended
    assert steps.states[-2:] == [ThreadState.PENDING_SHUTDOWN, ThreadState.DEAD]
    assert steps.parts.table.all() == []
    clients = {type(client).__name__ for client in world.open_clients} - {"WorldAdmin"}
    assert clients == {"WorldConsumer"}  # the restore consumer of this test


@pytest.mark.parametrize("how", ["removed", "failed"])
def test_removed_or_failed_thread_leaves_the_group_at_once(world: World, steps: Steps, how: str) -> None:
    steps.run(BOTH)
    if how == "removed":
        steps.thread.shut_down(leave_group=True)
    else:
        steps.thread._fail(ProcessingError("user code"))
    steps.end()
    assert world.names()[-1] == "leave"
    assert steps.ended


def test_last_commit_is_skipped_and_tasks_are_closed_dirty_when_it_fails(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    steps = Steps(world, counting(), tmp_path, dsl_store_suppliers_class="rocksdb")
    steps.run({A: [tp("in-0")]})
    world.write("in", b"a")
    steps.turn()
    steps.membership.commit_error = BrokerUnavailableError("no answer")
    steps.close()
    assert "its records will be processed again" in caplog.text
    assert steps.ended
    assert offsets(world) == {}
    assert steps.instance.directory.owner_of(A) is None


def test_end_waits_for_a_rebalance_in_progress_but_not_for_ever(world: World, steps: Steps) -> None:
    steps.run(BOTH)
    steps.membership.join()
    before = world.clock.now_ms()
    steps.close()
    assert 10_000 <= world.clock.now_ms() - before <= 10_100
    assert steps.ended


def test_end_keeps_the_time_given_for_it(world: World, steps: Steps) -> None:
    steps.run(BOTH)
    steps.membership.join()
    before = world.clock.now_ms()
    steps.thread.shut_down(timeout_ms=2_000)
    steps.end()
    assert world.clock.now_ms() - before <= 2_100


@pytest.mark.parametrize("problem", [TaskMigratedError("fenced"), TaskCorruptedError("bad", {A: ()})])
def test_control_errors_of_an_end_are_no_errors_of_the_application(
    world: World, steps: Steps, problem: StreamsError
) -> None:
    steps.run(BOTH)
    steps.loop.moves.deferred.add(problem)
    steps.close()
    assert steps.errors == []
    assert not steps.thread.failed
    assert steps.ended


def test_directories_locked_for_a_report_are_released_when_the_thread_ends_in_a_rebalance(
    world: World, tmp_path: Path
) -> None:
    first = Steps(world, counting(), tmp_path, dsl_store_suppliers_class="rocksdb")
    first.run(BOTH)
    first.close()
    first.instance.close()
    second = Steps(world, counting(), tmp_path, dsl_store_suppliers_class="rocksdb")
    second.membership.join()
    assert second.instance.directory.owner_of(A) == second.thread.name
    second.close()
    assert second.instance.directory.owner_of(A) is None
    second.instance.close()


class Failing(Processor[bytes, bytes, bytes, bytes]):
    """Fails on ``bad``; notes that it was closed."""

    closed = 0

    def process(self, record: Record[bytes, bytes]) -> None:
        if record.value == b"bad":
            raise ZeroDivisionError("user code")

    def close(self) -> None:
        Failing.closed += 1


def test_error_of_user_code_names_everything_and_ends_the_thread(world: World, tmp_path: Path) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=serdes.BYTES, value=serdes.BYTES).process(Failing, name="picky")
    steps = Steps(world, builder.build(), tmp_path)
    steps.run(BOTH)
    world.write("in", b"good", b"bad", partition=1)
    with pytest.raises(StreamsError, match="picky") as caught:
        steps.turn()
    for word in ("task 0_1", "in-1", "offset 1", "ZeroDivisionError: user code"):
        assert word in str(caught.value)
    assert caught.value.task_id == B
    before = Failing.closed
    steps.thread._fail(caught.value)
    steps.end()
    assert steps.errors == [caught.value]
    assert Failing.closed == before + 2
    assert world.names()[-1] == "leave"


# -- names ---------------------------------------------------------------------------------------------------------


def test_names_of_threads_and_clients_are_kafkas(world: World, tmp_path: Path) -> None:
    process_id = str(Steps(world, copying(), tmp_path).instance.directory.process_id)
    assert list(world.consumers) == [f"app-{process_id}-StreamThread-1"]
    other = World(**{"in": 1, "out": 1})
    named = Steps(other, counting(), tmp_path / "other", client_id="mine")
    assert named.thread.name == "mine-StreamThread-1"
    assert named.updater._name == "mine-StateUpdater-1"


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
        assert task.uncommitted_bytes < 2 << 20
    assert world.committed[tp("in-0")].offset > 4_000
    assert len(world.records(CHANGELOG)) == 6_000
