"""While the group may have removed this member, nothing is processed, flushed or written: others may own the tasks."""

from __future__ import annotations

from pathlib import Path

import pytest

from streams_protocol.types import TopicPartition
from streams_py import serdes
from streams_py.errors import BrokerUnavailableError, TimeoutExceededError
from streams_py.runtime.thread.states import ThreadState
from streams_py.topology.declare.processor import Processor, Record
from streams_py.topology.dsl.builder import StreamsBuilder
from streams_py.topology.topology import Topology
from tests.support.runtime.world import Steps, World, counting, task, tp

A, B = task("0_0"), task("0_1")
BOTH = {A: [tp("in-0")], B: [tp("in-1")]}
CHANGELOG = tp("app-counts-changelog-0")


@pytest.fixture
def world() -> World:
    return World(**{"in": 2, "out": 2, "app-counts-changelog": 2})


@pytest.fixture
def steps(world: World, tmp_path: Path) -> Steps:
    """With a cache, so that counts are written only by a commit."""
    steps = Steps(world, counting(), tmp_path)
    steps.run(BOTH)
    world.write("in", b"a", b"b")
    steps.turn()
    assert steps.thread.control.processed_records == 2
    assert world.records(CHANGELOG) == []
    return steps


def test_nothing_is_processed_flushed_or_committed_until_the_group_has_answered(world: World, steps: Steps) -> None:
    steps.membership.counted = False
    world.write("in", b"c")
    world.clock.advance(2000)
    steps.turn(5)
    assert steps.thread.control.processed_records == 2
    assert world.diary == []
    assert world.records(CHANGELOG) == world.records(tp("out-0")) == []
    steps.membership.counted = True
    world.clock.advance(200)
    steps.turn(2)
    assert steps.thread.control.processed_records == 3
    assert world.committed[tp("in-0")].offset == 3


def test_nothing_is_written_when_the_group_answers_that_it_has_dropped_the_member(world: World, steps: Steps) -> None:
    steps.membership.counted = False
    world.clock.advance(2000)
    steps.turn(2)
    steps.membership.lose()
    steps.turn(2)
    assert world.diary == []
    assert world.records(CHANGELOG) == []
    assert steps.tasks == {}


def test_last_commit_writes_nothing_of_a_member_that_may_be_out(world: World, steps: Steps) -> None:
    steps.membership.counted = False
    steps.close()
    assert world.names() == ["stay until the session expires"]
    assert world.records(CHANGELOG) == []
    assert steps.ended


def test_revoked_tasks_of_a_member_that_may_be_out_are_given_up(world: World, steps: Steps) -> None:
    steps.membership.join()
    steps.membership.counted = False
    steps.membership.finish({B: [tp("in-1")]})
    assert world.diary == []
    assert world.records(CHANGELOG) == []
    steps.membership.counted = True
    steps.turn(3)
    assert steps.tasks == {"0_1": "RUNNING"}
    assert steps.errors == []


def test_doubt_that_lasts_longer_than_the_task_timeout_ends_the_thread(world: World, tmp_path: Path) -> None:
    steps = Steps(world, counting(), tmp_path, task_timeout_ms=3000)
    steps.run(BOTH)
    world.write("in", b"a")
    steps.turn()
    steps.membership.counted = False
    world.clock.advance(1001)
    steps.turn()
    world.clock.advance(3001)
    with pytest.raises(TimeoutExceededError, match="may have removed this member"):
        steps.turn()


def test_work_stops_after_the_record_that_took_too_long(world: World, tmp_path: Path) -> None:
    held: list[Steps] = []

    class Slow(Processor[bytes, bytes, bytes, bytes]):
        def init(self, context: object) -> None:
            self._context = context

        def process(self, record: Record[bytes, bytes]) -> None:
            if record.value == b"slow":
                world.clock.advance(400_000)
                held[0].membership.counted = False

    def topology() -> Topology:
        builder = StreamsBuilder()
        builder.stream("in", key=serdes.BYTES, value=serdes.BYTES).process(Slow)
        return builder.build()

    steps = Steps(world, topology(), tmp_path)
    held.append(steps)
    steps.run(BOTH)
    world.write("in", b"slow", *[b"more"] * 50)
    world.write("in", b"other", partition=1)
    steps.turn(3)
    assert steps.thread.control.processed_records == 1
    assert world.names() == []


def test_record_that_took_too_long_writes_neither_its_output_nor_its_state(world: World, tmp_path: Path) -> None:
    held: list[Steps] = []

    def slow(value: str) -> str:
        if value == "slow":
            world.clock.advance(400_000)
            held[0].membership.counted = False
            held[0].membership.listener.on_stuck()
        return value

    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.STRING, value=serdes.STRING).map_values(slow)
    stream.to("out", key=serdes.STRING, value=serdes.STRING)
    stream.group_by_key(key=serdes.STRING, value=serdes.STRING).count(store="counts")
    steps = Steps(world, builder.build(), tmp_path, statestore_cache_max_bytes=0)
    held.append(steps)
    steps.run(BOTH)
    world.write("in", b"fast", b"slow", b"more")
    steps.turn(3)
    written = [
        record
        for topic in ("out", "app-counts-changelog")
        for p in range(2)
        for record in world.records(TopicPartition(topic, p))
    ]
    assert [record.value() for record in written] == [b"fast", b"\0\0\0\0\0\0\0\x01"]
    assert world.committed == {}
    assert steps.tasks == {}
    assert steps.errors == []
    assert world.names() == ["join as a new member"]
    steps.membership.lose()
    steps.membership.counted = True
    world.clock.advance(2000)
    world.write("in", b"other", partition=1)
    steps.run({B: [tp("in-1")]})
    steps.turn(2)
    assert [record.value() for p in range(2) for record in world.records(TopicPartition("out", p))] == [
        b"fast",
        b"other",
    ]


def test_record_that_was_frozen_writes_nothing_while_its_member_is_in_doubt_and_is_processed_again_after(
    world: World, tmp_path: Path
) -> None:
    held: list[Steps] = []
    freezes = [True]

    def frozen_once(value: str) -> str:
        if value == "frozen" and freezes.pop():
            freezes.append(False)
            held[0].membership.counted = False
            held[0].membership.listener.on_doubt(True)
        return value

    builder = StreamsBuilder()
    stream = builder.stream("in", key=serdes.STRING, value=serdes.STRING).map_values(frozen_once)
    stream.to("out", key=serdes.STRING, value=serdes.STRING)
    steps = Steps(world, builder.build(), tmp_path)
    held.append(steps)
    steps.run(BOTH)
    world.write("in", b"first", b"frozen", b"last")
    steps.turn(3)

    def written() -> list[bytes | None]:
        return [record.value() for p in range(2) for record in world.records(TopicPartition("out", p))]

    assert written() == [b"first"]
    assert steps.tasks == {"0_0": "RUNNING", "0_1": "RUNNING"}
    steps.membership.counted = True
    steps.membership.listener.on_doubt(False)
    steps.turn(3)
    assert written() == [b"first", b"frozen", b"last"]
    assert steps.errors == []


def test_records_of_one_turn_are_taken_in_slices_that_do_not_change_what_is_done(world: World, tmp_path: Path) -> None:
    steps = Steps(world, counting(), tmp_path)
    steps.run(BOTH)
    world.write("in", *[b"x"] * 700)
    steps.turn(3)
    assert steps.thread.control.processed_records == 700
    assert steps.thread.state is ThreadState.RUNNING


def test_refusal_of_the_broker_while_revoking_does_not_end_the_thread(world: World, steps: Steps) -> None:
    steps.producer.flush_error = BrokerUnavailableError("the queue is full")
    steps.membership.round({B: [tp("in-1")]})
    steps.turn(3)
    assert steps.tasks == {"0_1": "RUNNING"}
    assert world.committed == {}
    steps.run(BOTH)
    steps.turn(2)
    assert steps.thread.control.processed_records == 4  # those two again
