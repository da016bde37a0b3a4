"""Records in asynchronous calls when a commit is due, or when their task is revoked."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from streams_py import StreamsBuilder, serdes
from streams_py.errors import BrokerUnavailableError, TaskCorruptedError, TimeoutExceededError
from streams_py.topology.declare.nodes import Punctuation
from streams_py.topology.declare.processor import Processor, Record
from streams_py.topology.topology import Topology
from tests.support.runtime.async_kit import Service
from tests.support.runtime.task_kit import Kit, record
from tests.support.runtime.world import Steps, World, task, tp
from tests.support.waiting import until

A = task("0_0")
TEXT: dict[str, Any] = {"key": serdes.STRING, "value": serdes.STRING}
EXACTLY_ONCE = {
    "processing_guarantee": "exactly_once_v2",
    "commit_interval_ms": 100,
    "producer_transaction_timeout_ms": 10_000,
}


@pytest.fixture
def world() -> World:
    return World(**{"in": 1, "out": 1, "app-counts-changelog": 1})


@pytest.fixture
def service() -> Service:
    return Service()


def asking(service: Service, **options: Any) -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", **TEXT).map_values_async(service.ask, **options).to("out", **TEXT)
    return builder.build()


def asking_for_counts(service: Service) -> Topology:
    async def ask(count: int) -> str:
        return await service.ask(str(count))

    builder = StreamsBuilder()
    counts = builder.stream("in", **TEXT).group_by_key(**TEXT).count(store="counts").to_stream()
    counts.map_values_async(ask).to("out", **TEXT)
    return builder.build()


def said(world: World) -> list[str]:
    return [(one.value() or b"").decode() for one in world.records(tp("out-0"))]


def offset(world: World) -> int | None:
    at = world.committed.get(tp("in-0"))
    return None if at is None else at.offset


def turn_until_committed(steps: Steps, wanted: int) -> None:
    def committed() -> bool:
        steps.turn()
        steps.world.clock.advance(20)
        return offset(steps.world) == wanted

    until(committed, f"offset {wanted} to be committed")


# -- in transactions -----------------------------------------------------------------------------------------------


def test_transaction_waits_for_calls_that_begin_when_its_caches_are_flushed(
    world: World, service: Service, tmp_path: Path
) -> None:
    steps = Steps(world, asking_for_counts(service), tmp_path, **EXACTLY_ONCE)
    steps.run({A: [tp("in-0")]})
    world.write("in", b"a", b"b")
    steps.turn()
    world.clock.advance(101)
    steps.turn(3)
    until(lambda: service.asked == ["2"], "the service to be asked")
    assert (offset(world), said(world)) == (None, [])
    service.answer("2")
    turn_until_committed(steps, 2)
    assert said(world) == ["2"]


def test_no_more_records_are_taken_until_a_due_transaction_is_committed(
    world: World, service: Service, tmp_path: Path
) -> None:
    steps = Steps(world, asking(service), tmp_path, **EXACTLY_ONCE)
    steps.run({A: [tp("in-0")]})
    world.write("in", b"a")
    steps.turn()
    world.clock.advance(101)
    steps.turn()
    world.write("in", b"b")
    steps.turn(3)
    assert (steps.thread.control.processed_records, offset(world)) == (1, None)
    service.answer("a", "b")
    turn_until_committed(steps, 2)
    assert said(world) == ["A", "B"]


def test_task_that_drained_with_its_neighbour_takes_records_again(service: Service, tmp_path: Path) -> None:
    world = World(**{"in": 2, "out": 2})
    steps = Steps(world, asking(service), tmp_path, **EXACTLY_ONCE)
    steps.run({A: [tp("in-0")], task("0_1"): [tp("in-1")]})
    world.write("in", b"a")
    steps.turn()
    world.clock.advance(101)
    steps.turn()
    world.write("in", b"b", partition=1)
    steps.turn(2)
    assert steps.thread.control.processed_records == 1
    service.answer("a", "b")
    turn_until_committed(steps, 1)
    until(lambda: steps.turn() or steps.thread.control.processed_records == 4, "the neighbour's record and its answer")


def test_calls_that_outlast_a_transaction_begin_again_fewer_at_a_time(
    world: World, service: Service, tmp_path: Path
) -> None:
    steps = Steps(world, asking(service), tmp_path, **EXACTLY_ONCE)
    steps.run({A: [tp("in-0")]})
    world.write("in", *[b"%d" % number for number in range(9)])  # of one key: each waits for the previous one
    steps.turn()
    world.clock.advance(101)
    steps.turn()
    service.answer("0", "1", "2", "3")
    until(lambda: steps.turn() or service.asked[-1:] == ["4"], "four to be answered")
    steps.turn()
    world.clock.advance(7_399)
    steps.turn()
    assert service.cancelled == []
    world.clock.advance(1)
    steps.turn()
    until(lambda: service.cancelled == ["4"], "the call that takes too long to be cancelled")
    assert (steps.errors, offset(world), said(world)) == ([], None, [])
    until(lambda: steps.turn() or service.asked.count("4") == 2, "the same to be asked again")
    steps.turn(3)
    left = steps.parts.table.running()[0].buffered_records
    assert 9 - 4 - left == 2, "half of the four that were answered in time are under way"
    service.answer(*map(str, range(9)))
    turn_until_committed(steps, 9)
    assert said(world) == [str(number) for number in range(9)]


def test_calls_that_never_end_within_a_transaction_end_the_thread_after_the_task_timeout(
    world: World, service: Service, tmp_path: Path
) -> None:
    steps = Steps(world, asking(service, timeout=600_000), tmp_path, **EXACTLY_ONCE, task_timeout_ms=20_000)
    steps.run({A: [tp("in-0")]})
    world.write("in", b"a", key=b"a")
    world.write("in", b"b", key=b"b")
    service.answer("a")

    def turns() -> None:
        while True:
            until(lambda: steps.turn() or world.producers[steps.thread.name].in_transaction, "an answer to be sent on")
            world.clock.advance(1_000)

    with pytest.raises(TimeoutExceededError, match=r"asynchronous calls of task 0_0 are still running.*timeout="):
        turns()
    assert (offset(world), said(world)) == (None, [])


def test_answer_that_was_half_sent_on_takes_the_transaction_back(service: Service) -> None:
    builder = StreamsBuilder()
    answers = builder.stream("in", **TEXT).map_values_async(service.ask)
    answers.to("out", **TEXT)
    answers.to("full", **TEXT)
    kit = Kit(builder.build(), exactly_once=True)
    produce = kit.producer.produce

    def refuse(topic: str, *rest: Any) -> None:
        if topic == "full":
            raise BrokerUnavailableError("the queue is full")
        produce(topic, *rest)

    kit.producer.produce = refuse
    kit.add(record("a"))
    service.answer("a")
    with pytest.raises(TaskCorruptedError, match="the queue is full"):
        kit.task.process(1) and kit.task.await_answers(60_000)


# -- at least once -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["revoked", "closed"])
def test_results_out_of_a_cache_are_waited_for_when_their_task_is_taken_away(
    world: World, service: Service, tmp_path: Path, end: str
) -> None:
    """Otherwise the changelog would be ahead of the offsets after every ordinary restart."""
    steps = Steps(world, asking_for_counts(service), tmp_path)
    steps.run({A: [tp("in-0")]})
    world.write("in", b"a", b"b")
    service.answer("2")
    steps.turn(2)
    world.clock.sleep_ms = world.clock.advance = lambda duration_ms: None  # type: ignore[method-assign]
    if end == "revoked":
        steps.membership.round({})
    else:
        steps.close()
    assert (offset(world), said(world)) == (2, ["2"])


class Ticking(Processor[str, str, str, str]):
    """Creates a record every 100 ms, in addition to the input."""

    def init(self, context: Any) -> None:
        super().init(context)
        context.schedule(100, Punctuation.WALL_CLOCK_TIME, lambda now: context.forward(Record("k", "tick", now)))

    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record)


def test_punctuators_wait_while_a_task_drains_so_that_it_comes_to_its_commit(world: World, tmp_path: Path) -> None:
    clock = world.clock

    async def ask(value: str) -> str:
        until_ms = clock.now_ms() + 150  # longer than a punctuator's interval
        while clock.now_ms() < until_ms:
            await asyncio.sleep(0.001)
        return value

    builder = StreamsBuilder()
    builder.stream("in", **TEXT).process(Ticking).map_values_async(ask).to("out", **TEXT)
    steps = Steps(world, builder.build(), tmp_path, commit_interval_ms=200)
    steps.run({A: [tp("in-0")]})
    written = 0

    def come_through() -> bool:
        nonlocal written
        if written < 5:
            written += 1
            world.write("in", b"v")
        clock.advance(50)
        steps.turn()
        return offset(world) == 5

    until(come_through, "all records to be committed")
    assert said(world).count("v") == 5
