"""The broker and the topics that the record benchmarks work on."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

__all__ = ["Span", "end_offsets", "fill", "make_topic", "output_span", "wait_until_quiet"]

# Records keep their age: with time-based retention, old timestamps would vanish while the benchmark is being set up.
_KEEP = {"retention.ms": "-1"}
KEYS = 10_000


@dataclass(frozen=True, slots=True)
class Span:
    """When the first and the last record of a topic were appended by the broker, and how many there are."""

    records: int
    seconds: float


def make_topic(bootstrap: str, name: str, partitions: int, *, append_time: bool = False) -> None:
    """Create a topic; ``append_time`` lets the broker stamp records, which is how output is timed for every peer alike."""
    config = {**_KEEP, **({"message.timestamp.type": "LogAppendTime"} if append_time else {})}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(30)


def record_value(number: int) -> bytes:
    """A JSON object of about 100 bytes."""
    return json.dumps(
        {
            "n": number,
            "user": f"user-{number % KEYS:05d}",
            "page": "/articles/streams",
            "agent": "benchmark/1.0",
            "ok": True,
        }
    ).encode()


def fill(bootstrap: str, topic: str, records: int) -> None:
    """Write the input: keys ``user-00000`` .. ``user-09999`` in turn."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "partitioner": "murmur2_random"})
    for number in range(records):
        while True:
            try:
                producer.produce(topic, record_value(number), f"user-{number % KEYS:05d}".encode())
                break
            except BufferError:
                producer.poll(0.05)
    if producer.flush(60):
        raise SystemExit("the benchmark's input could not be written")


def end_offsets(bootstrap: str, topic: str) -> list[tuple[int, int]]:
    """(first, end) offset of each partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "benchmark-watch"})
    try:
        partitions = consumer.list_topics(topic, 10).topics[topic].partitions
        return [consumer.get_watermark_offsets(TopicPartition(topic, number), 10) for number in sorted(partitions)]
    finally:
        consumer.close()


def wait_until_quiet(bootstrap: str, topic: str, *, at_least: int, quiet_s: float, timeout_s: float) -> None:
    """Until ``topic`` has ``at_least`` records and has not grown for ``quiet_s``."""
    last, since, limit = -1, time.monotonic(), time.monotonic() + timeout_s
    while time.monotonic() < limit:
        total = sum(end - first for first, end in end_offsets(bootstrap, topic))
        if total != last:
            last, since = total, time.monotonic()
        elif total >= at_least and time.monotonic() - since > quiet_s:
            return
        time.sleep(0.25)
    raise SystemExit(f"{topic} has {last} records after {timeout_s:.0f} s; {at_least} were expected")


def output_span(bootstrap: str, topic: str) -> Span:
    """Time between the first and the last record appended to ``topic`` (its records carry the broker's clock)."""
    stamps, records = [], 0
    for partition, (first, end) in enumerate(end_offsets(bootstrap, topic)):
        if end > first:
            records += end - first
            stamps += [
                _timestamp_at(bootstrap, topic, partition, first),
                _timestamp_at(bootstrap, topic, partition, end - 1),
            ]
    return Span(records, (max(stamps) - min(stamps)) / 1000)


def _timestamp_at(bootstrap: str, topic: str, partition: int, offset: int) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "benchmark-watch", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, partition, offset)])
        message = consumer.poll(20)
        if message is None or message.error():
            raise SystemExit(f"cannot read {topic}-{partition} at {offset}")
        return int(message.timestamp()[1])
    finally:
        consumer.close()
