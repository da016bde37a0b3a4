"""The loop of a stream thread after errors, and at its end."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from streams_py import serdes
from streams_py.errors import (
    BrokerUnavailableError,
    ProcessingError,
    StateError,
    StreamsError,
    TaskCorruptedError,
    TaskMigratedError,
    TimeoutExceededError,
)
from streams_py.ports import OffsetAndMetadata
from streams_py.runtime.group.transport import Leave
from streams_py.runtime.thread.states import ThreadState
from streams_py.topology.declare.processor import Processor, Record
from streams_py.topology.dsl.builder import StreamsBuilder
from streams_py.topology.topology import Topology
from tests.support.runtime.outcomes import offsets
from tests.support.runtime.world import Steps, World, copying, counting, task, tp

A, B = task("0_0"), task("0_1")
BOTH = {A: [tp("in-0")], B: [tp("in-1")]}
CHANGELOG = tp("app-counts-changelog-0")


# -- trouble -------------------------------------------------------------------------------------------------------


def test_migrated_tasks_are_dropped_and_the_thread_joins_again(world: World, steps: Steps) -> None:
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
    world.committed[tp("in-0")] = OffsetAndMetadata(0)
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
    # Its input continues at the committed offset, not at the consumer's position: the record is processed again.
    assert steps.consumer.assigned[-1] == {tp("in-0"): 0, tp("in-1"): None}
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
    """Otherwise the restore would end before them, and the store would lack records that the changelog contains."""
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
    steps.fail_restoration(steps.parts.table.all()[0].restoring, StateError("disk on fire"))
    with pytest.raises(StateError, match="disk on fire"):
        steps.turn()


def test_committed_offsets_are_asked_again_until_the_task_timeout(world: World, tmp_path: Path) -> None:
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


def test_refused_commit_is_tried_again_after_a_pause_not_immediately(world: World, steps: Steps) -> None:
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
    assert world.diary == [("flush",), ("commit", {tp("in-0"): 1}), ("stay until the session expires",)]
    assert steps.ended
    assert steps.states[-2:] == [ThreadState.PENDING_SHUTDOWN, ThreadState.DEAD]
    assert steps.parts.table.all() == []
    clients = {type(client).__name__ for client in world.open_clients} - {"WorldAdmin"}
    assert clients == {"WorldConsumer"}  # the restore consumer of this test


@pytest.mark.parametrize("how", ["removed", "failed"])
def test_removed_or_failed_thread_leaves_the_group_immediately(world: World, steps: Steps, how: str) -> None:
    steps.run(BOTH)
    if how == "removed":
        steps.thread.shut_down(Leave.FOR_GOOD)
    else:
        steps.fail(ProcessingError("user code"))
    steps.end()
    assert world.names()[-1] == "leave"
    assert steps.ended


@pytest.mark.parametrize("how", ["removed", "closed", "failed"])
def test_static_member_is_removed_from_the_group_when_its_thread_ends_for_good(
    world: World, tmp_path: Path, how: str
) -> None:
    """It does not leave automatically, so a member that returns with its name gets its tasks again."""
    steps = Steps(world, counting(), tmp_path, group_instance_id="me")
    steps.run(BOTH)
    was = []
    admin = steps.instance.admin
    remove = admin.remove_member  # type: ignore[union-attr]
    admin.remove_member = lambda *who: (was.append(steps.thread.state), remove(*who))  # type: ignore[union-attr,assignment,method-assign]
    if how == "failed":
        steps.fail(ProcessingError("user code"))
    else:
        steps.thread.shut_down(Leave.FOR_GOOD if how == "removed" else Leave.STAY, timeout_ms=1)
        world.clock.advance(100)  # also if that takes longer than the caller wanted to wait
    steps.end()
    assert steps.ended
    assert world.diary.count(("remove member", "app", "me-1", "me")) == (how == "removed")
    if how == "removed":
        assert world.diary[-2:] == [("leave",), ("remove member", "app", "me-1", "me")]
        assert was == [ThreadState.PENDING_SHUTDOWN], "no other thread has its number yet"


def test_thread_ends_though_its_static_member_cannot_be_removed(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    steps = Steps(world, counting(), tmp_path, group_instance_id="me")
    steps.run(BOTH)

    def away(group: str, instance_id: str, member_id: str) -> None:
        raise BrokerUnavailableError("no broker answers")

    steps.instance.admin.remove_member = away  # type: ignore[union-attr,method-assign]
    steps.thread.shut_down(Leave.FOR_GOOD)
    steps.end()
    assert steps.ended
    assert steps.thread.state is ThreadState.DEAD
    assert "keeps its tasks until the session timeout: no broker answers" in caplog.text


def test_everything_else_is_closed_when_the_state_updater_cannot_be(world: World, steps: Steps) -> None:
    steps.run(BOTH)
    steps.updater.close = Mock(side_effect=RuntimeError("cannot join thread before it is started"))  # type: ignore[method-assign]
    steps.close()
    assert world.names()[-1] == "stay until the session expires"
    assert steps.parts.table.all() == []


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


def test_end_waits_for_a_rebalance_in_progress_but_not_forever(world: World, steps: Steps) -> None:
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


class Exiting(Processor[bytes, bytes, bytes, bytes]):
    """A processor that calls sys.exit() in ``close``."""

    def process(self, record: Record[bytes, bytes]) -> None:
        """Do nothing."""

    def close(self) -> None:
        raise SystemExit(3)


@pytest.mark.parametrize("how", ["closed", "lost", "revoked"])
def test_exit_of_the_program_asked_for_by_a_processor_that_is_closed_leaves_nothing_open(
    world: World, tmp_path: Path, how: str
) -> None:
    """On a stream thread, sys.exit() stops only the thread.

    The client would wait for it forever, and its files would stay open.
    """
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.BYTES, value=serdes.BYTES)
    stream.group_by_key().count(store="counts")
    stream.process(Exiting)
    steps = Steps(world, builder.build(), tmp_path, dsl_store_suppliers_class="rocksdb")
    steps.run(BOTH)
    world.write("in", b"a")
    steps.turn()
    if how == "lost":
        steps.membership.lose()
    elif how == "revoked":
        steps.membership.round({B: [tp("in-1")]})
    steps.close()
    assert steps.ended
    assert steps.instance.directory.owner_of(A) is None
    assert {type(client).__name__ for client in world.open_clients} == {"WorldAdmin", "WorldConsumer"}
    assert (offsets(world) == {}) is (how == "lost")


class ExitingAtOnce(Processor[bytes, int, bytes, bytes]):
    """Calls sys.exit() for a record."""

    def process(self, record: Record[bytes, int]) -> None:
        raise SystemExit(3)


def test_exit_of_the_program_asked_for_while_caches_are_flushed_at_the_end_leaves_nothing_open(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.BYTES, value=serdes.BYTES)
    stream.group_by_key().count(store="counts").to_stream().process(ExitingAtOnce)
    options = {"dsl_store_suppliers_class": "rocksdb", "statestore_cache_max_bytes": 1 << 20}
    steps = Steps(world, builder.build(), tmp_path, **options)
    steps.run(BOTH)
    world.write("in", b"a")
    steps.turn()
    steps.close()
    assert "last commit failed (sys.exit(3) was called); its records will be processed again" in caplog.text
    assert steps.ended
    assert steps.instance.directory.owner_of(A) is None
    assert offsets(world) == {}


class ExitingForOneKey(Processor[bytes, int, bytes, bytes]):
    """Calls sys.exit() for some records."""

    def process(self, record: Record[bytes, int]) -> None:
        if record.key == b"exit":
            raise SystemExit(3)


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
@pytest.mark.parametrize("exiting", [0, 1], ids=["of what is revoked", "of what stays"])
def test_exit_of_the_program_asked_for_in_a_revocation_ends_the_thread_and_not_the_membership(
    world: World, tmp_path: Path, guarantee: str, exiting: int
) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.BYTES, value=serdes.BYTES)
    stream.group_by_key().count(store="counts").to_stream().process(ExitingForOneKey)
    options = {"statestore_cache_max_bytes": 1 << 20, "processing_guarantee": guarantee}
    steps = Steps(world, builder.build(), tmp_path, **options)
    steps.run(BOTH)
    for partition in (0, 1):
        world.write("in", b"a", partition=partition, key=b"exit" if partition == exiting else b"other")
    steps.turn(2)
    steps.membership.round({B: [tp("in-1")]})  # on the membership's own thread, which also sends the heartbeats
    with pytest.raises(StreamsError, match=r"sys.exit\(3\) was called"):
        steps.turn()
    own_is_committed = guarantee == "at_least_once" and exiting == 1
    assert offsets(world) == ({tp("in-0"): 1} if own_is_committed else {})


def test_client_hears_of_a_thread_that_ends_whatever_its_end_meets(world: World, steps: Steps) -> None:
    steps.run(BOTH)

    def give_up(*, clean: bool) -> None:
        raise SystemExit(3)

    steps.loop.close = give_up  # type: ignore[method-assign]
    steps.close()
    assert steps.ended
    assert steps.states[-1] is ThreadState.DEAD


class Failing(Processor[bytes, bytes, bytes, bytes]):
    """Fails on ``bad``; records that it was closed."""

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
    steps.fail(caught.value)
    steps.end()
    assert steps.errors == [caught.value]
    assert Failing.closed == before + 2
    assert world.names()[-1] == "leave"


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_nothing_keeps_a_thread_that_has_ended(world: World, tmp_path: Path, guarantee: str) -> None:
    """A thread that fails repeatedly is replaced each time."""
    steps = Steps(world, counting(), tmp_path, processing_guarantee=guarantee)
    steps.run(BOTH)
    world.write("in", b"a")
    steps.turn()
    steps.close()
    instance, factory, ended = steps.instance, steps.factory, weakref.ref(steps.thread)
    del steps
    for made in (world.memberships, world.consumers, world.producers):
        made.clear()
    factory.share_cache(1)
    gc.collect()
    assert ended() is None
    instance.close()
