"""Topics written in transactions, and the records that a plain consumer of another client library reads.

Nothing here is shared with the readers of the product: they use confluent-kafka, this one is kafka-python's.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from confluent_kafka import Producer
from kafka import KafkaConsumer, TopicPartition

_PATIENCE_S: Final = 120


class Plain(NamedTuple):
    """A record as a plain consumer sees it."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


def plain_records(bootstrap: str, topic: str, *, read_committed: bool = True) -> list[Plain]:
    """All records of a topic up to its present end, by partition and offset."""
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap.split(","),
        isolation_level="read_committed" if read_committed else "read_uncommitted",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    give_up_s = time.monotonic() + _PATIENCE_S
    try:
        partitions = [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic))]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        ends = consumer.end_offsets(partitions)
        found: list[Plain] = []
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            assert time.monotonic() < give_up_s, f"{topic}: {len(found)} records, ends {ends}"
            for records in consumer.poll(timeout_ms=200).values():
                found += [Plain(r.partition, r.offset, r.timestamp, r.key, r.value) for r in records]
    finally:
        consumer.close()
    return sorted(record for record in found if record.offset < ends[TopicPartition(topic, record.partition)])


class _Writer:
    """Transactions of several producers on partition 0 (and, spread, on partition 1)."""

    def __init__(self, bootstrap: str, topic: str, value: Callable[[int], bytes]) -> None:
        self._bootstrap, self._topic, self._value = bootstrap, topic, value
        self._producers: dict[str, Producer] = {}
        self._written = 0
        self._open: dict[str, set[int]] = {}  # partitions of transactions that are not ended
        self._ends = Counter({0: 0, 1: 0})

    def begin(self, name: str) -> None:
        if name not in self._producers:
            given = {"bootstrap.servers": self._bootstrap, "transactional.id": f"{self._topic}-{name}", "linger.ms": 0}
            self._producers[name] = Producer(given)
            self._producers[name].init_transactions(60)
        self._producers[name].begin_transaction()
        self._open[name] = set()

    def put(self, name: str, count: int) -> None:
        producer = self._producers[name]
        for _ in range(count):
            at = self._written
            self._written += 1
            value, key = self._value(at), b"k%d" % (at % 50)
            partition = int(at % 10 == 9)
            producer.produce(self._topic, value, key, partition, timestamp=1_700_000_000_000 + at)
            self._open[name].add(partition)
            self._ends[partition] += 1
        assert producer.flush(60) == 0

    def commit(self, name: str) -> None:
        self._producers[name].commit_transaction(60)
        self._ends.update(self._open.pop(name))

    def abort(self, name: str) -> None:
        self._producers[name].abort_transaction(60)
        self._ends.update(self._open.pop(name))

    def whole(self, name: str, count: int, *, aborted: bool = False) -> None:
        self.begin(name)
        self.put(name, count)
        self.abort(name) if aborted else self.commit(name)

    def wait_for_markers(self) -> None:
        """The coordinator answers before it has written the markers that end a transaction."""
        give_up_s = time.monotonic() + _PATIENCE_S
        levels = ["read_uncommitted"] if self._open else ["read_uncommitted", "read_committed"]
        for level in levels:
            consumer = KafkaConsumer(bootstrap_servers=self._bootstrap.split(","), isolation_level=level)
            partitions = [TopicPartition(self._topic, number) for number in self._ends]
            while {at.partition: end for at, end in consumer.end_offsets(partitions).items()} != dict(self._ends):
                assert time.monotonic() < give_up_s, self._ends
            consumer.close()


def _markers_at_the_end(to: _Writer, size: int) -> None:
    for number in range(5):
        to.whole(f"p{number}", size // 5)


def _aborted_between(to: _Writer, size: int) -> None:
    for number in range(6):
        to.whole(f"p{number % 2}", size // 6, aborted=number % 3 == 1)


def _aborted_at_the_end(to: _Writer, size: int) -> None:
    to.whole("p0", size // 2)
    to.whole("p1", size // 2, aborted=True)


def _interleaved(to: _Writer, size: int) -> None:
    for name in ("p0", "p1", "p2"):
        to.begin(name)
    for number in range(9):
        to.put(f"p{number % 3}", size // 9)
    to.commit("p2")
    to.abort("p0")
    to.commit("p1")


def _many_small(to: _Writer, size: int) -> None:
    for number in range(40):
        to.whole("p0", size // 40, aborted=number % 7 == 3)


def _nothing_but_aborted(to: _Writer, size: int) -> None:
    to.whole("p0", size, aborted=True)


def _open_at_the_end(to: _Writer, size: int) -> None:
    to.whole("p0", size // 2)
    to.begin("p1")
    to.put("p1", size // 4)
    to.whole("p0", size // 4)


KINDS: Final = {
    "markers at the end": _markers_at_the_end,
    "aborted between": _aborted_between,
    "aborted at the end": _aborted_at_the_end,
    "interleaved producers": _interleaved,
    "many small transactions": _many_small,
    "nothing but aborted": _nothing_but_aborted,
    "open at the end": _open_at_the_end,
}


@contextmanager
def written(bootstrap: str, topic: str, kind: str, size: int, value: Callable[[int], bytes]) -> Iterator[None]:
    """A topic with two partitions and records of the given ``kind``. Open transactions are aborted at the end."""
    to = _Writer(bootstrap, topic, value)
    KINDS[kind](to, size)
    to.wait_for_markers()
    yield
    if kind == "open at the end":
        to.abort("p1")
