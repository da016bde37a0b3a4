"""Restore of a store from its changelog, compared with Kafka Streams.

The changelog is written first: each key once, with the count 1, in two orders. Random order is what compaction leaves,
because keys are in the order of their last change. Key order is the result of an initial load of a table, and fastest
for RocksDB.

The time is measured from the start of the application, with an empty disk, to the first output of every partition. The
same time with an empty changelog, which is everything except the restore, is subtracted. The outputs must be 2, which
shows that counting continues from the restored values.
"""

from __future__ import annotations

import os
import random
import struct
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from statistics import median

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.cluster import BenchmarkError, delete_topics, end_filling, make_topic, numbered_key, put
from benchmarks.jobs import Order
from benchmarks.peers import JAVA, OURS, Peer, Running, command_of
from benchmarks.table import Goal, Row, reason_of
from streams_py.testing.broker import JvmBroker, NoBrokerError

_KEYS_VARIABLE = "STREAMS_PY_BENCH_RESTORE_KEYS"
_KEYS = 2_000_000
_PARTITIONS = 4
_MARKERS = 64
"""Number of keys that are counted after the restore, so that each partition has some."""
_LIMIT_S = 300.0
_ONE = struct.pack(">q", 1)
_TWO = struct.pack(">q", 2)
_ORDERS = ("in no order", "in the order of the keys")


def restore_rows(runs: int, tick: Callable[[str], None], *, with_jvm: bool = True) -> Iterator[Row]:
    """Measure restored records per second. ``$STREAMS_PY_BENCH_RESTORE_KEYS`` changes the size of the store."""
    keys = int(os.environ.get(_KEYS_VARIABLE, _KEYS))
    peers = (OURS, JAVA) if with_jvm else (OURS,)
    try:
        broker = JvmBroker(heap="1g")
    except NoBrokerError as error:
        yield Row("restore", "", "/s", (), note=f"no broker: {str(error).splitlines()[0]}", failed=True)
        return
    with closing(broker), tempfile.TemporaryDirectory(prefix="streams-py-bench-") as folder:
        scene = _Scene(broker.bootstrap, Path(folder), tick)
        for order in _ORDERS:
            rates: dict[str, list[float]] = {peer.name: [] for peer in peers}
            notes: dict[str, str] = {}
            for _ in range(runs):
                for peer in peers:
                    try:
                        rates[peer.name].append(scene.rate(peer, keys, order))
                    except Exception as error:  # an error of one peer must not stop the other
                        notes[peer.name] = f"{peer.title}: {reason_of(error)}"
            work = f"restore a store of {keys:,} keys from a changelog {order}"
            ours, java = tuple(rates[OURS.name]), tuple(rates.get(JAVA.name, ()))
            compared_with, goal = JAVA.title if with_jvm else "", Goal(">= 0.8", ratio_min=0.8)
            yield Row(work, compared_with, "/s", ours, java, goal, "; ".join(notes.values()), failed=bool(notes))


class _Scene:
    def __init__(self, bootstrap: str, folder: Path, tick: Callable[[str], None]) -> None:
        self._bootstrap = bootstrap
        self._folder = folder
        self._tick = tick
        self._without: dict[str, float] = {}
        """Seconds with an empty changelog, by peer."""

    def rate(self, peer: Peer, keys: int, order: str) -> float:
        """Return the restored records per second."""
        if peer.name not in self._without:
            self._tick(f"restore: {peer.title}, empty changelogs")
            self._without[peer.name] = median(self._seconds(peer, ()) for _ in range(3))
        self._tick(f"restore {keys:,} keys {order}: {peer.title}")
        numbers = list(range(keys))
        if order == _ORDERS[0]:
            random.Random(7).shuffle(numbers)
        restored_s = self._seconds(peer, numbers) - self._without[peer.name]
        if restored_s < 1:
            raise BenchmarkError(f"finished too early to be timed: use more keys (${_KEYS_VARIABLE})")
        return keys / restored_s

    def _seconds(self, peer: Peer, numbers: Sequence[int]) -> float:
        """Return the seconds from the start of the peer's process to the first output of every partition."""
        command = command_of(peer, self._folder)
        application = f"restore-{peer.name}-{uuid.uuid4().hex[:6]}"
        source, sink = f"{application}-in", f"{application}-out"
        for topic in (source, sink, f"{application}-counts-changelog"):
            make_topic(self._bootstrap, topic, _PARTITIONS)
        try:
            producer = Producer(
                {"bootstrap.servers": self._bootstrap, "linger.ms": 50, "partitioner": "murmur2_random"}
            )
            for number in numbers:
                put(producer, f"{application}-counts-changelog", _ONE, numbered_key(number))
            for number in range(_MARKERS):
                put(producer, source, b"v", numbered_key(number))
            end_filling(producer)
            watcher = Consumer(
                {"bootstrap.servers": self._bootstrap, "group.id": application, "enable.auto.commit": False}
            )
            try:
                # Without committed offsets, the application would wait some seconds to check its state.
                watcher.commit(
                    offsets=[TopicPartition(source, number, 0) for number in range(_PARTITIONS)], asynchronous=False
                )
                with tempfile.TemporaryDirectory(prefix="state-", dir=self._folder) as state_dir:
                    order = Order("count", self._bootstrap, application, source, sink, "0", "1000", state_dir)
                    began = time.monotonic()
                    with Running(peer, command, order) as running:
                        seconds = self._first_outputs(watcher, sink, running) - began
                        self._check(watcher, sink, _TWO if numbers else _ONE)
            finally:
                watcher.close()
        finally:
            delete_topics(self._bootstrap, containing=application)
        return seconds

    def _first_outputs(self, watcher: Consumer, sink: str, running: Running) -> float:
        """Wait until every partition has output; return the time."""
        silent = set(range(_PARTITIONS))
        limit = time.monotonic() + _LIMIT_S
        while silent:
            running.check()
            if time.monotonic() > limit:
                raise BenchmarkError(f"no output of partition {min(silent)} within {_LIMIT_S:.0f} s")
            time.sleep(0.05)
            silent = {
                number for number in silent if not watcher.get_watermark_offsets(TopicPartition(sink, number), 10)[1]
            }
        return time.monotonic()

    def _check(self, watcher: Consumer, sink: str, wanted: bytes) -> None:
        watcher.assign([TopicPartition(sink, number, 0) for number in range(_PARTITIONS)])
        for message in watcher.consume(_PARTITIONS, 10):
            if message.error() is None and message.value() != wanted:
                raise BenchmarkError(f"{message.key()!r} was counted {message.value()!r} times: it was not restored")
        watcher.unassign()
