"""Slow code of the application.

Batch sizes learnt from fast records, or records cached above slow nodes, must not repeatedly exceed the transaction
timeout or the poll interval.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streams_py import StreamsBuilder, serdes
from streams_py.errors import TaskCorruptedError
from streams_py.ports import OffsetAndMetadata
from streams_py.topology.declare.stores import ValueAndTimestamp
from streams_py.topology.topology import Topology
from tests.support.runtime.world import Steps, World, task, tp

ONE = {task("0_0"): [tp("in-0")]}
TRANSACTION_MS = 10_000


class Timed:
    """Ends transactions as a coordinator does: calls fail after a transaction that was open for too long."""

    def __init__(self, steps: Steps, fails_at: str) -> None:
        self._steps = steps
        self._clock = steps.world.clock
        self._fails_at = fails_at
        self._began_ms = 0
        self.failed = 0
        self.longest_ms = 0
        steps.producer.at = self  # type: ignore[attr-defined]

    def __call__(self, step: str) -> None:
        now_ms = self._clock.monotonic_ms()
        if step == "produce" and not self._steps.producer.in_transaction:  # type: ignore[attr-defined]
            self._began_ms = now_ms
        lasts_ms = now_ms - self._began_ms
        self.longest_ms = max(self.longest_ms, lasts_ms)
        if step == self._fails_at and lasts_ms > TRANSACTION_MS:
            self.failed += 1
            raise TaskCorruptedError("the transaction took too long", {})


@pytest.mark.parametrize("fails_at", ["produce", "commit"])
def test_records_that_become_slow_do_not_outlast_their_transaction_forever(tmp_path: Path, fails_at: str) -> None:
    world = World(**{"in": 1, "out": 1})
    builder = StreamsBuilder()

    def work(value: str) -> str:
        world.clock.advance(20 if value == "slow" else 0)
        return value

    stream: Any = builder.stream("in", key=serdes.BYTES, value=serdes.STRING)
    stream.map_values(work).to("out", key=serdes.BYTES, value=serdes.STRING)
    steps = Steps(world, builder.build(), tmp_path, processing_guarantee="exactly_once_v2", commit_interval_ms=100)
    steps.run(ONE)
    timed = Timed(steps, fails_at)
    for _ in range(10):
        world.write("in", *[b"quick"] * 1000)
        steps.turn(2)
        world.clock.advance(101)
    assert steps.loop._batch_size.n >= 1000  # no metric shows it
    world.write("in", *[b"slow"] * 1000)
    for _ in range(60):
        steps.turn()
    assert world.committed[tp("in-0")].offset == 11_000
    assert timed.failed <= 1, "what the thread has learnt from quick records is not used again"


def counting_above_slow(world: World, took_ms: int = 20) -> Topology:
    """Count by key. Each key that the cache flushes takes this time in the nodes below."""
    builder = StreamsBuilder()

    def work(value: int) -> int:
        world.clock.advance(took_ms)
        return value

    stream: Any = builder.stream("in", key=serdes.STRING, value=serdes.STRING)
    counts = stream.group_by_key().count(store="counts")
    counts.to_stream().map_values(work).to("out", key=serdes.STRING, value=serdes.INT64)
    return builder.build()


def write_keys(world: World, first: int, count: int, partition: int = 0) -> None:
    for number in range(first, first + count):
        world.write("in", b"v", key=b"%d" % number, partition=partition)


def work_until(world: World, steps: Steps, committed: dict[str, int]) -> None:
    """Iterate every few ms until this number is committed, for at most ten seconds without slow nodes."""
    for _ in range(1_000):
        if all(world.committed.get(tp(at), OffsetAndMetadata(0, "")).offset == end for at, end in committed.items()):
            return
        steps.turn()
        world.clock.advance(2)
    raise AssertionError(f"committed is {world.committed}, not {committed}")


@pytest.mark.parametrize("fails_at", ["produce", "commit"])
@pytest.mark.parametrize("cached_entries", [400, 100_000])
def test_slow_nodes_below_a_cache_do_not_outlast_their_transaction_forever(
    tmp_path: Path, fails_at: str, cached_entries: int
) -> None:
    world = World(**{"in": 2, "out": 2, "app_counts_changelog": 2})
    steps = Steps(
        world,
        counting_above_slow(world),
        tmp_path,
        processing_guarantee="exactly_once_v2",
        commit_interval_ms=100,
        statestore_cache_max_bytes=cached_entries * 70,
        producer_transaction_timeout_ms=TRANSACTION_MS,
    )
    steps.run({task("0_0"): [tp("in-0")], task("0_1"): [tp("in-1")]})
    timed = Timed(steps, fails_at)
    write_keys(world, 0, 2_000)
    write_keys(world, 2_000, 2_000, partition=1)
    work_until(world, steps, {"in-0": 2_000, "in-1": 2_000})
    assert timed.failed <= 1, "one flush that took too long says how long an entry takes"
    sent = [record.key() for at in ("out-0", "out-1") for record in world.records(tp(at))]
    assert sorted(sent) == sorted(b"%d" % number for number in range(4_000))


def test_entry_that_takes_as_long_as_a_transaction_is_flushed_alone(tmp_path: Path) -> None:
    world = World(**{"in": 2, "out": 2, "app_counts_changelog": 2})
    steps = Steps(
        world,
        counting_above_slow(world, took_ms=TRANSACTION_MS - 1_000),
        tmp_path,
        processing_guarantee="exactly_once_v2",
        commit_interval_ms=100,
        producer_transaction_timeout_ms=TRANSACTION_MS,
    )
    steps.run({task("0_0"): [tp("in-0")], task("0_1"): [tp("in-1")]})
    timed = Timed(steps, "commit")
    write_keys(world, 0, 10)
    write_keys(world, 10, 10, partition=1)
    work_until(world, steps, {"in-0": 10, "in-1": 10})
    assert timed.failed <= 1


def test_slow_nodes_below_a_cache_do_not_keep_the_thread_from_polling_again_and_again(tmp_path: Path) -> None:
    world = World(**{"in": 1, "out": 1, "app_counts_changelog": 1})
    steps = Steps(
        world, counting_above_slow(world), tmp_path, commit_interval_ms=1_000, main_consumer_max_poll_interval_ms=10_000
    )
    steps.run(ONE)
    too_long = 0
    for _ in range(4):
        write_keys(world, len(world.records(tp("in-0"))), 2_000)
        for _ in range(600):
            began_ms = world.clock.monotonic_ms()
            steps.turn()
            too_long += world.clock.monotonic_ms() - began_ms > 10_000
            world.clock.advance(2)
    assert world.committed[tp("in-0")].offset == 8_000
    assert too_long <= 1


def test_entries_without_a_record_do_not_keep_records_from_being_processed(tmp_path: Path) -> None:
    """Processors may put entries on start. Then there is nothing to commit, and nothing flushes the entries."""
    world = World(**{"in": 1, "out": 1, "app_counts_changelog": 1})
    steps = Steps(
        world, counting_above_slow(world, 3_000), tmp_path, commit_interval_ms=100, consumer_max_poll_interval_ms=10_000
    )
    steps.run(ONE)
    write_keys(world, 0, 1)
    work_until(world, steps, {"in-0": 1})
    store = steps.parts.table.running()[0].stores.store("counts")
    for key in ("a", "b"):
        store.put(key, ValueAndTimestamp(1, 0))
    write_keys(world, 1, 1)
    work_until(world, steps, {"in-0": 2})


def test_quick_flushes_leave_the_commit_interval_as_it_is(tmp_path: Path) -> None:
    world = World(**{"in": 1, "out": 1, "app_counts_changelog": 1})
    steps = Steps(world, counting_above_slow(world, took_ms=0), tmp_path, commit_interval_ms=1_000)
    steps.run(ONE)
    for _ in range(3):
        world.diary.clear()
        write_keys(world, 0, 1_000)
        steps.turn(8)
        assert not [entry for entry in world.diary if entry[0] == "commit"]
        world.clock.advance(1_001)
        steps.turn()
        assert len([entry for entry in world.diary if entry[0] == "commit"]) == 1
