"""The stream thread waits for no single task: other tasks continue while committed offsets are fetched.

A full queue is retried, and an error of one task does not affect the others.

"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streams_py import serdes
from streams_py.errors import BrokerUnavailableError, TaskCorruptedError, TaskMigratedError, TimeoutExceededError
from streams_py.ports import BEGINNING, OffsetAndMetadata
from streams_py.runtime.thread.states import ThreadState
from streams_py.topology.declare.nodes import Punctuation
from streams_py.topology.declare.processor import Processor, Record
from streams_py.topology.declare.stores import key_value_store
from streams_py.topology.dsl.builder import StreamsBuilder
from streams_py.topology.topology import Topology
from tests.support.runtime.world import Steps, World, copying, counting, task, tp

A, B = task("0_0"), task("0_1")
BOTH = {A: [tp("in-0")], B: [tp("in-1")]}


@pytest.fixture
def world() -> World:
    return World(**{"in": 2, "out": 2, "app-counts-changelog": 2})


# -- committed offsets ---------------------------------------------------------------------------------------------


def test_other_tasks_continue_while_committed_offsets_of_a_new_one_are_on_their_way(
    world: World, tmp_path: Path
) -> None:
    steps = Steps(world, copying(), tmp_path)
    steps.run({A: [tp("in-0")]})
    steps.membership.answers = False
    steps.membership.round(BOTH)
    steps.turn(2)
    world.write("in", b"a", b"b")
    steps.turn(2)
    assert steps.thread.control.processed_records == 2
    assert steps.tasks == {"0_0": "RUNNING", "0_1": "RESTORING"}
    world.committed[tp("in-1")] = OffsetAndMetadata(0)
    steps.membership.answer()
    steps.turn()
    assert steps.tasks == {"0_0": "RUNNING", "0_1": "RUNNING"}
    assert steps.consumer.assigned[-1] == {tp("in-0"): None, tp("in-1"): 0}


def test_running_task_continues_and_reads_a_partition_that_it_gets_from_where_the_group_has_committed(
    world: World, tmp_path: Path
) -> None:
    """A new topic matches the pattern that the task reads."""
    steps = Steps(world, copying(), tmp_path)
    steps.run({A: [tp("in-0")]})
    steps.membership.answers = False
    steps.membership.round({A: [tp("in-0"), tp("in-1")]})
    world.write("in", b"a")
    world.write("in", b"b", partition=1)
    steps.turn(2)
    assert steps.thread.control.processed_records == 1
    assert steps.tasks == {"0_0": "RUNNING"}
    steps.membership.answer()
    steps.turn(2)
    assert steps.consumer.assigned[-1] == {tp("in-0"): None, tp("in-1"): BEGINNING}
    assert steps.thread.control.processed_records == 2
    assert steps.thread.state is ThreadState.RUNNING


def test_answer_from_before_a_revocation_is_not_used_when_the_task_comes_back(world: World, tmp_path: Path) -> None:
    world.write("in", *[b"x"] * 9)
    steps = Steps(world, copying(), tmp_path)
    steps.membership.answers = False
    steps.membership.round({A: [tp("in-0")]})
    steps.turn(2)
    world.committed[tp("in-0")] = OffsetAndMetadata(3)
    steps.membership.answer()
    steps.membership.round({})
    world.committed[tp("in-0")] = OffsetAndMetadata(8)  # by another owner
    steps.membership.round({A: [tp("in-0")]})
    steps.turn(2)
    steps.membership.answer()
    steps.turn(2)
    assert steps.consumer.assigned[-1] == {tp("in-0"): 8}


def test_silence_is_told_once_in_ten_seconds_for_all_tasks_that_wait(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    steps = Steps(world, copying(), tmp_path)
    steps.membership.answers = False
    steps.membership.round(BOTH)

    def fail(times: int) -> int:
        for _ in range(times):
            steps.turn()
            world.away = True
            steps.membership.answer()
            world.away = False
            world.clock.sleep_ms(100)
        return len([line for line in caplog.messages if "tasks 0_0, 0_1 not started" in line])

    assert fail(90) == 1
    assert fail(20) == 2
    steps.turn()
    steps.membership.answer()
    steps.turn()
    assert steps.tasks == {"0_0": "RUNNING", "0_1": "RUNNING"}


def test_offsets_are_asked_again_when_no_answer_comes_at_all(world: World, tmp_path: Path) -> None:
    steps = Steps(world, copying(), tmp_path)
    steps.membership.answers = False
    steps.membership.round({A: [tp("in-0")]})
    steps.turn(2)
    steps.membership._unanswered.clear()  # the broker has lost the request
    world.clock.advance(16_000)
    steps.turn()
    world.clock.advance(200)
    steps.turn()
    steps.membership.answer()
    steps.turn()
    assert steps.tasks == {"0_0": "RUNNING"}


# -- a full queue --------------------------------------------------------------------------------------------------


class Ticking(Processor[bytes, bytes, bytes, bytes]):
    """Forwards a record every second."""

    def init(self, context: Any) -> None:
        context.schedule(
            1000, Punctuation.WALL_CLOCK_TIME, lambda now_ms: context.forward(Record(b"k", b"tick", now_ms))
        )

    def process(self, record: Record[bytes, bytes]) -> None:
        """Do nothing."""


def ticking() -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.BYTES, value=serdes.BYTES)
    stream.process(Ticking).to("out", key=serdes.BYTES, value=serdes.BYTES)
    return builder.build()


class FullQueue:
    """Rejects records while ``full``."""

    def __init__(self, steps: Steps) -> None:
        self.full = True
        produce = steps.producer.produce

        def refuse(*record: Any) -> None:
            if self.full:
                raise BrokerUnavailableError("the queue is full")
            produce(*record)

        steps.producer.produce = refuse  # type: ignore[method-assign]
        steps.producer.direct = lambda topic, partition=-1: None  # type: ignore[method-assign]


@pytest.mark.parametrize("ends", [True, False])
def test_full_queue_while_caches_are_flushed_is_tried_again_until_the_task_timeout(
    world: World, tmp_path: Path, ends: bool
) -> None:
    steps = Steps(world, counting(), tmp_path, task_timeout_ms=5000)
    queue = FullQueue(steps)
    steps.run(BOTH)
    world.write("in", b"a")
    steps.turn()
    world.clock.advance(1001)
    steps.turn(2)
    assert world.committed == {}
    world.clock.advance(4000)
    steps.turn(2)
    if ends:
        queue.full = False
        world.clock.advance(200)
        steps.turn(2)
        assert world.committed[tp("in-0")].offset == 1
        assert len(world.records(tp("out-0")) + world.records(tp("out-1"))) == 1
    else:
        world.clock.advance(1001)
        with pytest.raises(TimeoutExceededError, match="the queue is full"):
            steps.turn(2)


@pytest.mark.parametrize("ends", [True, False])
def test_full_queue_in_a_punctuator_is_tried_again_until_the_task_timeout(
    world: World, tmp_path: Path, ends: bool
) -> None:
    steps = Steps(world, ticking(), tmp_path, task_timeout_ms=5000)
    queue = FullQueue(steps)
    steps.run({A: [tp("in-0")]})
    world.clock.advance(1000)
    steps.turn(3)
    assert steps.errors == []
    world.clock.advance(4000)
    steps.turn()
    if ends:
        queue.full = False
        steps.turn()
        assert [record.value() for record in world.records(tp("out-0")) + world.records(tp("out-1"))] == [b"tick"]
    else:
        world.clock.advance(1001)
        with pytest.raises(TimeoutExceededError, match="the queue is full"):
            steps.turn()


class Greeting(Processor[bytes, bytes, bytes, bytes]):
    """Writes a record on start and on close."""

    def init(self, context: Any) -> None:
        self._context = context
        tick = b"tick"
        context.schedule(1000, Punctuation.WALL_CLOCK_TIME, lambda now: context.forward(Record(b"k", tick, now)))
        context.forward(Record(b"k", b"hello", 1))

    def process(self, record: Record[bytes, bytes]) -> None:
        """Do nothing."""

    def close(self) -> None:
        self._context.forward(Record(b"k", b"bye", 2))


def greeting() -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.BYTES, value=serdes.BYTES)
    stream.process(Greeting).to("out", key=serdes.BYTES, value=serdes.BYTES)
    return builder.build()


def said(world: World) -> list[bytes | None]:
    return [record.value() for record in world.records(tp("out-0")) + world.records(tp("out-1"))]


@pytest.mark.parametrize("ends", [True, False])
def test_full_queue_while_processors_are_initialised_is_tried_again_until_the_task_timeout(
    world: World, tmp_path: Path, ends: bool
) -> None:
    steps = Steps(world, greeting(), tmp_path, task_timeout_ms=5000)
    queue = FullQueue(steps)
    steps.membership.round({A: [tp("in-0")]})
    steps.turn(3)
    world.clock.advance(4000)
    steps.turn()
    assert steps.tasks == {"0_0": "RESTORING"}
    if ends:
        queue.full = False
        steps.turn(2)
        assert steps.tasks == {"0_0": "RUNNING"}
        world.clock.advance(1001)
        steps.turn()
        assert said(world) == [b"hello", b"tick"], "the timers of the first tries are gone"
    else:
        world.clock.advance(1001)
        with pytest.raises(TimeoutExceededError, match="could not initialise its processors"):
            steps.turn()


def test_full_queue_while_processors_are_closed_does_not_end_the_thread(world: World, tmp_path: Path) -> None:
    steps = Steps(world, greeting(), tmp_path)
    queue = FullQueue(steps)
    queue.full = False
    steps.run(BOTH)
    queue.full = True
    steps.membership.round({B: [tp("in-1")]})
    steps.turn(3)
    assert steps.tasks == {"0_1": "RUNNING"}
    assert said(world) == [b"hello", b"hello"]


class Farewell(Processor[bytes, bytes, bytes, bytes]):
    """Counts, and changes its count on close."""

    def init(self, context: Any) -> None:
        self._context = context
        self._counts = context.get_state_store("counts")

    def process(self, record: Record[bytes, bytes]) -> None:
        count = (self._counts.get("all") or 0) + 1
        self._counts.put("all", count)
        self._context.forward(Record(record.key, b"%d" % count, record.timestamp))

    def close(self) -> None:
        self._counts.put("all", 1_000)


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("is_away", [True, False])
def test_what_closing_writes_is_beyond_the_last_commit_and_leaves_state_and_changelog_equal(
    tmp_path: Path, persistent: bool, is_away: bool
) -> None:
    """As in Kafka Streams: if the broker does not answer, the task closes without the record; nothing else is lost."""
    world = World(**{"in": 2, "out": 2, "app-counts-changelog": 2})
    builder = StreamsBuilder()
    store = key_value_store("counts", key=serdes.STRING, value=serdes.INT64, persistent=persistent)
    builder.add_state_store(store)
    stream = builder.stream("in", key=serdes.BYTES, value=serdes.BYTES)
    stream.process(Farewell, stores=["counts"]).to("out", key=serdes.BYTES, value=serdes.BYTES)
    steps = Steps(world, builder.build(), tmp_path)
    queue = FullQueue(steps)
    queue.full = False
    steps.run(BOTH)
    world.write("in", b"a", b"b")
    steps.turn()
    world.clock.advance(1001)
    steps.turn(2)
    assert world.committed[tp("in-0")].offset == 2
    queue.full = is_away
    steps.membership.round({B: [tp("in-1")]})
    steps.turn(3)
    assert steps.tasks == {"0_1": "RUNNING"}
    queue.full = False
    steps.run(BOTH)
    world.write("in", b"c")
    steps.turn(2)
    assert steps.errors == []
    before = [b"1", b"2"]
    assert [record.value() for record in world.records(tp("out-0"))] == [*before, b"3" if is_away else b"1001"]


# -- one task's trouble --------------------------------------------------------------------------------------------


def test_partition_is_resumed_also_when_a_later_task_turns_out_to_be_corrupted(world: World, tmp_path: Path) -> None:
    steps = Steps(world, copying(), tmp_path, buffered_records_per_partition=2)
    steps.run(BOTH)
    world.write("in", *[b"x"] * 5)
    world.write("in", b"y", partition=1)
    steps.thread.pause(True)
    steps.turn()
    assert tp("in-0") in steps.consumer.paused
    steps.thread.pause(False)
    steps.loop._batch_size.n = 5  # it depends on measured times
    second = steps.parts.table.running()[1]
    second.process = _corrupted  # type: ignore[method-assign]
    steps.turn()
    assert tp("in-0") not in steps.consumer.paused
    assert steps.errors == []


def _corrupted(max_records: int) -> int:
    raise TaskCorruptedError("bad state", {B: ()})


def test_position_of_a_started_task_is_kept_when_the_next_one_cannot_start(world: World, tmp_path: Path) -> None:
    world.write("in", *[b"x"] * 5)
    world.committed[tp("in-0")] = OffsetAndMetadata(3)
    steps = Steps(world, copying(), tmp_path)
    steps.membership.round(BOTH)
    steps.restore()
    second = next(one for one in steps.parts.table.all() if one.id == B)
    complete = second.complete_restoration
    second.complete_restoration = lambda committed: _corrupted(0)  # type: ignore[assignment, union-attr]
    steps.turn(2)
    assert steps.consumer.positions[tp("in-0")] >= 3
    second.complete_restoration = complete  # type: ignore[union-attr]
    steps.turn(4)
    assert steps.tasks == {"0_0": "RUNNING", "0_1": "RUNNING"}
    assert steps.thread.control.processed_records == 2


def test_corrupted_standby_is_started_over_also_when_the_member_turns_out_to_have_migrated(
    world: World, tmp_path: Path
) -> None:
    for _ in range(3):
        world.log.produce("app-counts-changelog", bytes(8), b"k", 1, None, 1, None)
    steps = Steps(world, counting(), tmp_path)
    steps.run({A: [tp("in-0")]}, standby={B: [tp("in-1")]})
    world.write("in", b"a")
    steps.turn()
    standby = next(one for one in steps.parts.table.all() if not one.is_active)
    steps.fail_restoration(
        standby.restoring, TaskCorruptedError("does not reach back", {B: standby.stores.changelog_partitions})
    )
    steps.membership.commit_error = TaskMigratedError("fenced")
    steps.turn()
    assert world.names()[-1] == "join as a new member"
    steps.membership.commit_error = None
    steps.run({A: [tp("in-0")]}, standby={B: [tp("in-1")]})
    steps.turn(2)
    assert steps.tasks == {"0_0": "RUNNING", "0_1 standby": "RUNNING"}
    assert steps.thread.state is ThreadState.RUNNING


# -- a producer that cannot continue --------------------------------------------------------------------------------


def test_producer_out_of_step_with_the_broker_is_replaced_and_work_continues_from_the_last_commit(
    world: World, tmp_path: Path
) -> None:
    steps = Steps(world, counting(), tmp_path)
    steps.run({A: [tp("in-0")]})
    world.write("in", b"a")
    steps.turn()
    steps.producer.flush_error = TaskMigratedError("out of order sequence")
    world.clock.advance(1001)
    steps.turn()
    assert steps.tasks == {}
    assert steps.producer.resets == 1
    assert world.names()[-1] == "join as a new member"
    assert world.committed == {}
    steps.run({A: [tp("in-0")]})
    world.clock.advance(1001)
    steps.turn()
    assert world.committed[tp("in-0")].offset == 1
    assert steps.errors == []


def test_what_lost_tasks_have_sent_is_dropped(world: World, tmp_path: Path) -> None:
    steps = Steps(world, counting(), tmp_path)
    steps.run({A: [tp("in-0")]})
    steps.membership.lose()
    assert steps.producer.resets == 1
