"""Reading a topic in Spark beside a bare loop. Needs the extra `spark` and a real broker; not part of the other table,
because a session and two million records take minutes:

    python -m benchmarks.spark_read BOOTSTRAP [RECORDS] [RUNS]

Both count records by key. The loop is one confluent-kafka consumer in one process; Spark has `local[2]` and reads
through `streams-kafka`. The first run of a session pays for workers and compilation, so runs alternate and the best of
each counts.
"""

from __future__ import annotations

import sys
import time
from collections import Counter

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

_PARTITIONS = 4
_KEYS = 10_000


def _fill(bootstrap: str, records: int) -> str:
    topic = f"spark-read-{records}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    if topic in admin.list_topics(timeout=30).topics:
        return topic
    admin.create_topics([NewTopic(topic, _PARTITIONS, 1, config={"retention.ms": "-1"})])[topic].result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000})
    value = b"x" * 100
    for number in range(records):
        producer.produce(topic, value, b"key-%d" % (number % _KEYS), number % _PARTITIONS)
        if number % 10_000 == 0:
            producer.poll(0.1)
    producer.flush()
    return topic


def _loop(bootstrap: str, topic: str, records: int) -> float:
    began = time.perf_counter()
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "auto.offset.reset": "error"})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(_PARTITIONS)])
    counts: Counter[bytes | None] = Counter()
    read = 0
    while read < records:
        messages = consumer.consume(10_000, 1.0)
        for message in messages:
            counts[message.key()] += 1
        read += len(messages)
    consumer.close()
    assert len(counts) == _KEYS
    return time.perf_counter() - began


def main() -> None:
    """Print one line per run and the ratio."""
    from streams_py.spark.session import spark_session
    from streams_py.spark.source import register

    bootstrap = sys.argv[1]
    records = int(sys.argv[2]) if len(sys.argv) > 2 else 2_000_000
    runs = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    topic = _fill(bootstrap, records)
    spark = spark_session("benchmark", master="local[2]")
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    frame = spark.read.format("streams-kafka").option("kafka.bootstrap.servers", bootstrap).option("topics", topic)
    bare, ours = [], []
    for _ in range(runs):
        bare.append(_loop(bootstrap, topic, records))
        began = time.perf_counter()
        counted = frame.load().groupBy("key").count().agg({"count": "sum", "*": "count"}).first()
        assert counted is not None
        assert sorted(counted) == [_KEYS, records]
        ours.append(time.perf_counter() - began)
        print(f"loop {records / bare[-1]:>9,.0f} records/s   streams-kafka {records / ours[-1]:>9,.0f} records/s")
    print(f"streams-kafka / loop: {min(bare) / min(ours):.2f}")
    spark.stop()


if __name__ == "__main__":
    main()
