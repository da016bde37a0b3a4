"""Batch, stream, history and recount read exactly the records of a plain consumer, for each kind of topic."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from streams_protocol.types import TopicPartition
from streams_py.spark.history.fixed_ranges import fixed_options, newest_ms, ranges_in, ranges_of
from streams_py.spark.history.portions import OfRanges
from streams_py.spark.history.recounted import recount_results
from tests.support.spark.cluster import Cluster
from tests.support.spark.plain import Plain, as_plain, await_decided, plain_records, transactional
from tests.support.spark.planned_topics import run_stream
from tests.support.spark.source import Options, numbered, produce, read, stream

pytestmark = [pytest.mark.broker, pytest.mark.timeout(900)]

PARTITIONS = 2


def in_transactions(cluster: Cluster, topic: str, outcomes: str, producers: int = 1, records: int = 40) -> None:
    """One transaction for each letter: c is committed, a is aborted. Several producers take turns within each."""
    writing = [transactional(cluster.bootstrap, f"{topic}-{number}") for number in range(producers)]
    for turn, outcome in enumerate(outcomes):
        for producer in writing:
            producer.begin_transaction()
        for number in range(records):
            producer = writing[number % producers]
            producer.produce(topic, outcome.encode(), b"k%d" % number, number % PARTITIONS, timestamp=1_000 + turn)
        for producer in writing:
            assert producer.flush(60) == 0
            producer.commit_transaction(60) if outcome == "c" else producer.abort_transaction(60)
    await_decided(cluster.bootstrap, topic, PARTITIONS)


def plain(cluster: Cluster) -> str:
    topic = cluster.topic(PARTITIONS)
    produce(cluster, topic, *numbered(70), *numbered(50, 1), (0, None, None), (1, b"", b""), timestamp=5_000)
    return topic


def committed(cluster: Cluster) -> str:
    topic = cluster.topic(PARTITIONS)
    in_transactions(cluster, topic, "ccc")
    return topic


def markers_at_the_end(cluster: Cluster) -> str:
    topic = cluster.topic(PARTITIONS)
    in_transactions(cluster, topic, "cacaa")
    return topic


def interleaved(cluster: Cluster) -> str:
    topic = cluster.topic(PARTITIONS)
    in_transactions(cluster, topic, "caacac", producers=3)
    return topic


def only_aborted(cluster: Cluster) -> str:
    topic = cluster.topic(PARTITIONS)
    in_transactions(cluster, topic, "aaa")
    return topic


def transactional_and_not(cluster: Cluster) -> str:
    topic = cluster.topic(PARTITIONS)
    for _ in range(3):
        produce(cluster, topic, *numbered(5), *numbered(5, 1), timestamp=9_000)
        in_transactions(cluster, topic, "ca", records=10)
    return topic


def log_start_above_0(cluster: Cluster) -> str:
    topic = cluster.topic(PARTITIONS)
    in_transactions(cluster, topic, "cac")
    cluster.delete_before(topic, 0, 15)
    cluster.delete_before(topic, 1, 45)
    return topic


def emptied(cluster: Cluster) -> str:
    topic = cluster.topic(PARTITIONS)
    produce(cluster, topic, *numbered(20), *numbered(20, 1))
    for partition in range(PARTITIONS):
        cluster.delete_before(topic, partition, 20)
    return topic


def never_written(cluster: Cluster) -> str:
    return cluster.topic(PARTITIONS)


def compressed(cluster: Cluster) -> str:
    topic = cluster.topic(PARTITIONS)
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "compression.type": codec, "linger.ms": 100})
        for number in range(60):
            producer.produce(topic, codec.encode() * 200, b"%d" % number, number % PARTITIONS, timestamp=number)
        assert producer.flush(60) == 0
    return topic


def large_and_small(cluster: Cluster) -> str:
    topic = cluster.topic(PARTITIONS)
    sizes = random.Random(7)
    records = [(n % 2, b"k" * sizes.choice((0, 9, 90_000)), b"v" * sizes.choice((0, 5, 300_000))) for n in range(60)]
    produce(cluster, topic, *records, timestamp=7)
    return topic


KINDS = [
    plain, committed, markers_at_the_end, interleaved, only_aborted, transactional_and_not, log_start_above_0, emptied,
    never_written, compressed, large_and_small,
]  # fmt: skip


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def topic(request: pytest.FixtureRequest, cluster: Cluster) -> str:
    make: Callable[[Cluster], str] = request.param
    return make(cluster)


@pytest.fixture(params=["read_committed", "read_uncommitted"])
def isolation(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def history(topic: str, given: dict[str, str]) -> list[Plain]:
    options, planned = ranges_in(topic, fixed_options(topic, given), None)
    tasks = [of.partition for of in planned.ranges]
    ranges = {of.partition: (of.start, of.end) for of in planned.ranges}
    epochs = {at.partition: epoch for at, epoch in planned.leader_epochs.items()}
    reader = OfRanges(topic, tasks, ranges, options, None, None, planned.topic_ids[topic], epochs)
    row = pa.RecordBatch.from_pydict({"id": pa.array(range(len(tasks)), pa.int64())})
    return [
        Plain(record.partition(), record.offset(), record.timestamp()[1], record.key(), record.value())
        for portion in reader([row])
        for record in portion.records
    ]


def test_every_reader_gives_what_a_plain_consumer_gets(
    topic: str, isolation: str, cluster: Cluster, options: Options
) -> None:
    expected = plain_records(cluster.bootstrap, topic, PARTITIONS, committed=isolation == "read_committed")
    given = options(topics=topic, isolation=isolation)
    assert [as_plain(row) for row in read(given)] == expected
    for pieces in (options(split_records=7), options(batch_records=3), options(batch_bytes=1_000, min_partitions=9)):
        assert [as_plain(row) for row in read(given | pieces)] == expected

    rows = 1 + len(expected) // 6
    begun = stream(given).initialOffset()
    found, _ = run_stream(given, rows, begun, [])  # restarted before and after each micro-batch
    assert sorted(found) == expected

    assert history(topic, options(isolation=isolation)) == expected
    newest = newest_ms(topic, options(isolation=isolation))
    assert newest == max((record.timestamp_ms for record in expected), default=None)

    fixed = fixed_options(topic, options(isolation=isolation))
    counts = {TopicPartition(topic, n): sum(each.partition == n for each in expected) for n in range(PARTITIONS)}
    counted = recount_results(_Results(topic, fixed, counts), "seed", whole=True, until_ms=None)
    assert counted is not None
    assert counted.records == len(expected)
    assert counted.of_partitions == sum(start < end for _, _, start, end in ranges_of(topic, fixed))


class _Results:
    """The part of a run's results that :func:`recount_results` needs."""

    def __init__(self, topic: str, fixed: Any, read: dict[TopicPartition, int]) -> None:
        self.inputs = {topic: fixed}
        self.read_of_tables: dict[TopicPartition, int] = {}
        self.plan = self
        self.stages = [self]  # a stage has inputs, too
        self._read = read

    def read(self) -> dict[TopicPartition, int]:
        return self._read
