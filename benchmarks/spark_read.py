"""Reading a topic in Spark, compared with a bare loop, on a real broker.

Both count records by key. The loop is one confluent-kafka consumer in one process. It runs with the client's defaults,
which pause fetching for a second whenever its queue is full, and with two settings of the data source. Spark uses
``local[2]`` and reads through ``streams-kafka``. The first read of a session includes the start of workers and the
compilation, so a tenth of the topic is read before the first measurement. Then both take turns.

Spark runs in a separate process, which prints one line per turn: the rates of loop, tuned loop and Spark.

    python -m benchmarks.spark_read BOOTSTRAP TOPIC RECORDS RUNS
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.cluster import BenchmarkError
from benchmarks.spark_process import lines_of
from benchmarks.table import Goal, Row
from streams_py.testing.broker import JvmBroker, NoBrokerError

Tick = Callable[[str], None]

_PARTITIONS: Final = 4
_KEYS: Final = 10_000
_RECORDS: Final = 2_000_000
_RECORDS_VARIABLE: Final = "STREAMS_PY_BENCH_SPARK_RECORDS"
_RUNS_MAX: Final = 3
_TUNED: Final = {"fetch.queue.backoff.ms": 1, "queued.min.messages": 20_000}
"""Settings of the data source."""


def read_rows(runs: int, tick: Tick) -> Iterator[Row]:
    """Yield two rows. ``$STREAMS_PY_BENCH_SPARK_RECORDS`` changes the size of the topic."""
    records = int(os.environ.get(_RECORDS_VARIABLE, _RECORDS))
    try:
        broker = JvmBroker()
    except NoBrokerError as error:
        raise BenchmarkError(str(error)) from None
    try:
        tick(f"writing {records:,} records")
        topic = _fill(broker.bootstrap, records)
        bare, tuned, ours = zip(*_turns(broker.bootstrap, topic, records, min(runs, _RUNS_MAX), tick), strict=True)
    finally:
        broker.close()
    work = f"streams-kafka, batch of {records:,} x 100 B, {_PARTITIONS} partitions, local[2]"
    goal = Goal(">= 1.6", ratio_min=1.6)
    yield Row(work, "confluent-kafka loop, one process", "records/s", ours, bare, goal)
    settings = ", ".join(f"{key}={value}" for key, value in _TUNED.items())
    yield Row(work, f"the same loop with {settings}", "records/s", ours, tuned)


def _turns(bootstrap: str, topic: str, records: int, runs: int, tick: Tick) -> Iterator[tuple[float, ...]]:
    tick("streams-kafka and a loop: warming up")
    lines = lines_of("benchmarks.spark_read", bootstrap, topic, str(records), str(runs))
    for run, line in enumerate(lines, 1):
        tick(f"streams-kafka and a loop, {run} of {runs}")
        yield tuple(map(float, line.split()))


def _fill(bootstrap: str, records: int) -> str:
    topic = f"spark-read-{records}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, _PARTITIONS, 1, config={"retention.ms": "-1"})])[topic].result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000})
    value = b"x" * 100
    for number in range(records):
        while True:
            try:
                producer.produce(topic, value, b"key-%d" % (number % _KEYS), number % _PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 10_000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise BenchmarkError(f"cannot write the input to {topic} within 120 s")
    return topic


def _loop(bootstrap: str, topic: str, records: int, settings: Mapping[str, int]) -> float:
    """Read the topic with a plain loop; return the time in s."""
    began = time.perf_counter()
    common = {"bootstrap.servers": bootstrap, "group.id": "bench", "auto.offset.reset": "error"}
    consumer = Consumer({**common, **settings})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(_PARTITIONS)])
    counts: Counter[bytes | None] = Counter()
    read = 0
    while read < records:
        messages = consumer.consume(10_000, 1.0)
        for message in messages:
            counts[message.key()] += 1
        read += len(messages)
    consumer.close()
    assert len(counts) == min(_KEYS, records)
    return time.perf_counter() - began


def _measure(bootstrap: str, topic: str, records: int, runs: int) -> None:
    """Print records per second of the loop, the tuned loop and Spark, one line per run."""
    from streams_py.spark.kafka.source import register
    from streams_py.spark.session import spark_session

    spark = spark_session("benchmark", master="local[2]")
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    frame = spark.read.format("streams-kafka").option("kafka.bootstrap.servers", bootstrap).option("topics", topic)

    def read(ending: str) -> tuple[int, int]:
        counted = frame.option("ending", ending).load().groupBy("key").count().agg({"count": "sum", "*": "count"})
        row = counted.first()
        assert row is not None
        keys, total = sorted(row)
        return keys, total

    tenth = ",".join(f'"{number}":{records // _PARTITIONS // 10}' for number in range(_PARTITIONS))
    read(f'{{"{topic}":{{{tenth}}}}}')
    for _ in range(runs):
        seconds = [_loop(bootstrap, topic, records, settings) for settings in ({}, _TUNED)]
        began = time.perf_counter()
        found = read("latest")
        assert found == (min(_KEYS, records), records), found
        seconds.append(time.perf_counter() - began)
        print(*(records / each for each in seconds), flush=True)
    spark.stop()


if __name__ == "__main__":
    _measure(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
