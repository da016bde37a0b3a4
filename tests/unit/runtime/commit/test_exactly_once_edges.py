"""Exactly-once without a current record: processors that write on start, punctuators, rebalances during commits."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from streams_protocol.types import TaskId
from streams_py import Punctuation, StreamsBuilder, Topology, key_value_store, serdes
from streams_py.errors import BrokerUnavailableError, RegistryUnavailableError, TaskCorruptedError, TimeoutExceededError
from streams_py.topology.declare.processor import Processor, Record
from tests.support.runtime.world import Steps, World, task, tp

A, B = task("0_0"), task("0_1")
BOTH = {A: [tp("in-0")], B: [tp("in-1")]}


class Counting(Processor[bytes, bytes, bytes, bytes]):
    """Counts its starts and punctuations, and writes the counts; can be stopped."""

    then: Any = staticmethod(lambda: None)

    def init(self, context: Any) -> None:
        self._context, self._store = context, context.get_state_store("starts")
        context.schedule(1000, Punctuation.WALL_CLOCK_TIME, lambda now_ms: self._count(b"ticks", now_ms))
        self._count(b"starts", 1)
        type(self).then()

    def _count(self, what: bytes, now_ms: int) -> None:
        count = (self._store.get(what) or 0) + 1
        self._store.put(what, count)
        self._context.forward(Record(what, b"%d" % count, now_ms))

    def process(self, record: Record[bytes, bytes]) -> None:
        self._count(b"records", record.timestamp)


class Closing(Counting):
    """Also writes on close."""

    def close(self) -> None:
        self._count(b"ends", 1)


def starting(processor: type[Counting] = Counting) -> Topology:
    builder = StreamsBuilder()
    builder.add_state_store(key_value_store("starts", key=serdes.BYTES, value=serdes.INT64))
    stream = builder.stream("in", key=serdes.BYTES, value=serdes.BYTES).process(processor, stores="starts")
    stream.to("out", key=serdes.BYTES, value=serdes.BYTES)
    return builder.build()


@pytest.fixture
def world() -> World:
    return World(**{"in": 2, "out": 2, "app_starts_changelog": 2, "app_counts_changelog": 2})


def steps_of(world: World, topology: Topology, folder: Path, **config: Any) -> Steps:
    return Steps(
        world,
        topology,
        folder,
        dsl_store_suppliers_class="rocksdb",
        statestore_cache_max_bytes=0,
        processing_guarantee="exactly_once_v2",
        **config,
    )


def said(world: World, what: bytes) -> list[bytes | None]:
    found = [*world.records(tp("out-0")), *world.records(tp("out-1"))]
    return [record.value() for record in found if record.key() == what]


def work(steps: Steps, turns: int = 6) -> None:
    for _ in range(turns):
        steps.world.clock.sleep_ms(1_001)
        steps.turn()


def stopping(*errors: Exception | None) -> type[Counting]:
    """Return a processor whose first calls of ``init`` fail with these errors, after they have written."""
    left = list(errors)

    def then() -> None:
        error = left.pop(0) if left else None
        if error is not None:
            raise error

    return type("Stopping", (Counting,), {"then": staticmethod(then)})


INTERRUPTIONS = {
    "away": BrokerUnavailableError("the queue is full"),
    "aborted": TaskCorruptedError("outcome unknown", {}),
    "registry away": RegistryUnavailableError("no broker answers"),
}


@pytest.mark.parametrize("error", INTERRUPTIONS.values(), ids=INTERRUPTIONS.keys())
def test_what_an_interrupted_init_has_written_is_not_there_twice(
    world: World, tmp_path: Path, error: Exception
) -> None:
    steps = steps_of(world, starting(stopping(error)), tmp_path)
    steps.membership.round({A: [tp("in-0")]})
    work(steps)
    steps.close()
    assert said(world, b"starts") == [b"1"]


@pytest.mark.parametrize("error", INTERRUPTIONS.values(), ids=INTERRUPTIONS.keys())
def test_running_tasks_whose_transaction_an_interrupted_init_has_joined_start_over(
    world: World, tmp_path: Path, error: Exception
) -> None:
    steps = steps_of(world, starting(stopping(None, error)), tmp_path)
    steps.run({B: [tp("in-1")]})
    world.write("in", b"x", partition=1)
    steps.turn()
    steps.membership.round(BOTH)
    steps.turn(3)
    assert world.committed == {}
    work(steps)
    steps.close()
    assert said(world, b"records") == [b"1"]
    assert sorted(said(world, b"starts")) == [b"1", b"1"]
    assert world.committed[tp("in-1")].offset == 1


def test_init_that_is_stopped_for_longer_than_the_task_timeout_ends_the_thread(world: World, tmp_path: Path) -> None:
    away = stopping(*(RegistryUnavailableError("no broker answers") for _ in range(100)))
    steps = steps_of(world, starting(away), tmp_path, task_timeout_ms=20_000)
    steps.membership.round({A: [tp("in-0")]})
    with pytest.raises(TimeoutExceededError, match="could not initialise its processors"):
        work(steps, 60)


# -- transactions without an input record --------------------------------------------------------------------------


def test_what_a_punctuator_has_written_is_fenced_by_the_generation(world: World, tmp_path: Path) -> None:
    """A broker checks the generation only if the member sends offsets: a zombie that sends none is not fenced."""
    steps = steps_of(world, starting(), tmp_path)
    steps.run({A: [tp("in-0")]})
    work(steps)
    ticks = len(said(world, b"ticks"))
    assert ticks
    world.group_generation = steps.membership.generation + 1  # other members have its partitions now
    work(steps, 2)
    assert len(said(world, b"ticks")) == ticks
    assert world.names().count("initialize") == 2  # it starts over


@pytest.mark.parametrize(("one", "partition", "offset"), [(A, "in-0", 2), (B, "in-1", 0)], ids=["read", "never read"])
def test_position_that_fences_a_transaction_is_that_of_the_next_record(
    world: World, tmp_path: Path, one: TaskId, partition: str, offset: int
) -> None:
    world.write("in", b"x", b"y")
    steps = steps_of(world, starting(), tmp_path)
    steps.run({A: [tp("in-0")]})
    work(steps)
    steps.close()
    world.diary.clear()
    again = steps_of(world, starting(), tmp_path)
    again.run({one: [tp(partition)]})
    work(again)
    again.close()
    assert world.committed[tp(partition)].offset == offset
    sent = [entry[1] for entry in world.diary if entry[0] == "transaction"]
    assert sent
    assert all(offsets == {tp(partition): offset} for offsets in sent)


def test_what_nobody_can_fence_is_aborted(world: World, tmp_path: Path) -> None:
    """Processors that write on close do so after the last commit of their task."""
    steps = steps_of(world, starting(Closing), tmp_path)
    steps.run({A: [tp("in-0")]})
    work(steps)
    steps.membership.round({})
    work(steps)
    assert not steps.producer.in_transaction  # type: ignore[attr-defined]
    assert said(world, b"ends") == []
    steps.close()


# -- a rebalance that begins in the middle of a commit -------------------------------------------------------------


def test_member_joins_again_only_after_a_commit_under_way(world: World, tmp_path: Path) -> None:
    """With the next generation the transaction would be rejected, and all tasks would start over."""
    steps = steps_of(world, starting(), tmp_path)
    steps.run({A: [tp("in-0")]})
    world.write("in", b"x")
    joins: list[threading.Thread] = []

    def join() -> None:
        steps.membership.join()
        world.group_generation = steps.membership.generation + 1

    def at(step: str) -> None:
        if step == "commit" and not joins:
            joins.append(threading.Thread(target=join))
            joins[0].start()
            joins[0].join(0.2)

    steps.producer.at = at  # type: ignore[attr-defined]  # transactional ones have it
    work(steps)
    joins[0].join()
    assert world.committed[tp("in-0")].offset == 1
    assert ("join as a new member",) not in world.diary


def test_commit_waits_for_a_rebalance_that_has_begun_while_it_was_prepared(world: World, tmp_path: Path) -> None:
    steps = steps_of(world, starting(), tmp_path)
    steps.run({A: [tp("in-0")]})
    world.write("in", b"x")
    flush = steps.producer.flush

    def flush_slowly(timeout_ms: int) -> int:
        if not steps.parts.transport.rebalancing:
            steps.membership.join()
            world.group_generation = steps.membership.generation + 1
        return flush(timeout_ms)

    steps.producer.flush = flush_slowly  # type: ignore[method-assign]
    work(steps, 2)
    assert world.names().count("initialize") == 1
    assert world.committed == {}
    steps.producer.flush = flush  # type: ignore[method-assign]
    steps.membership.finish({A: [tp("in-0")]})
    work(steps)
    assert world.committed[tp("in-0")].offset == 1
    assert said(world, b"records") == [b"1"]


def test_thread_that_cannot_begin_transactions_says_so_now_and_again_and_ends_after_the_task_timeout(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    steps = steps_of(world, starting(), tmp_path, task_timeout_ms=60_000)

    def nobody_answers(timeout_ms: int) -> None:
        raise BrokerUnavailableError("the coordinator is not there")

    with monkeypatch.context() as away:
        away.setattr(steps.producer, "initialize", nobody_answers)
        steps.membership.round({A: [tp("in-0")]})
        for _ in range(6):
            steps.turn()
            world.clock.sleep_ms(10_000)
        assert caplog.text.count("the coordinator is not there; retrying") == 6
    steps.turn(4)
    assert steps.tasks == {"0_0": "RUNNING"}
    monkeypatch.setattr(steps.producer, "initialize", nobody_answers)
    steps.loop.moves.lose_everything()
    steps.membership.round({A: [tp("in-0")]})
    steps.turn()
    world.clock.sleep_ms(60_001)
    with pytest.raises(TimeoutExceededError, match=r"task\.timeout\.ms is 60000.*the coordinator is not there"):
        steps.turn()


def test_thread_whose_producer_is_given_up_again_and_again_before_it_can_write_ends_after_the_task_timeout(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client library ignores a timeout, so not even the error of an unavailable broker is reported."""
    steps = steps_of(world, starting(), tmp_path, task_timeout_ms=60_000)

    def overdue(timeout_ms: int) -> None:
        raise TaskCorruptedError("librdkafka has not answered within 3.0 s", {})

    monkeypatch.setattr(steps.producer, "initialize", overdue)
    steps.membership.round({A: [tp("in-0")]})
    for _ in range(7):
        steps.turn()
        world.clock.sleep_ms(10_000)
    with pytest.raises(TimeoutExceededError, match=r"task\.timeout\.ms is 60000.*librdkafka has not answered"):
        steps.turn()
