"""The broker's side of the record benchmarks: topics, input, and the measurement of the output.

All peers are timed by the same clock: the broker stamps the records of the output topic (LogAppendTime). A peer's speed
is the input that it processed after its first output, divided by the time from its first to its last output. So
start-up, group joins and shutdown are not included. "First output" means all records of the first half commit interval,
because a cache writes one burst per commit, and the measurement must not start within a burst. The results are checked
too: a map must have written every record once, and the last counts must add up to the input.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import orjson
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

# Records keep their age: with time-based retention, old timestamps could vanish while the benchmark is being set up.
_KEEP = {"retention.ms": "-1", "file.delete.delay.ms": "1000"}
_QUIET_S = 1.0
_TIMEOUT_S = 600.0


class BenchmarkError(Exception):
    """A measurement failed; the message says why."""


@dataclass(frozen=True, slots=True)
class Output:
    """The output of one peer. ``worked_off``: input records processed after its first output, in ``seconds``."""

    records: int
    worked_off: int
    seconds: float

    @property
    def rate(self) -> float:
        """Input records per second."""
        return self.worked_off / self.seconds if self.seconds else 0.0


def make_topic(bootstrap: str, name: str, partitions: int, *, append_time: bool = False) -> None:
    """Create a topic; with ``append_time`` the broker stamps its records."""
    config = {**_KEEP, **({"message.timestamp.type": "LogAppendTime"} if append_time else {})}
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(30)
    limit = time.monotonic() + 30
    while len(admin.list_topics(name, timeout=10).topics[name].partitions) < partitions:
        if time.monotonic() > limit:
            raise BenchmarkError(f"topic {name} has no partitions 30 s after its creation")
        time.sleep(0.02)


def delete_topics(bootstrap: str, *, containing: str) -> None:
    """Delete all topics of a peer, including internal ones, before the next peer is measured."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    names = [name for name in admin.list_topics(timeout=10).topics if containing in name]
    for deleted in (admin.delete_topics(names) if names else {}).values():
        deleted.result(30)


def record_value(number: int, keys: int) -> bytes:
    """Return a JSON object of about 100 bytes."""
    return orjson.dumps(
        {
            "n": number,
            "user": f"user-{number % keys:05d}",
            "page": "/articles/streams",
            "agent": "benchmark/1.0",
            "ok": True,
        }
    )


def fill(bootstrap: str, topic: str, records: int, keys: int, *, first_ms: int, last_ms: int) -> None:
    """Write the input: ``keys`` different keys in turn, with timestamps spread evenly from the first to the last."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "partitioner": "murmur2_random"})
    for number in range(records):
        time_ms = first_ms + number * (last_ms - first_ms) // records
        put(producer, topic, record_value(number, keys), f"user-{number % keys:05d}".encode(), time_ms)
        if number % 10_000 == 0:
            producer.poll(0)
    end_filling(producer)


def put(producer: Producer, topic: str, value: bytes, key: bytes, timestamp_ms: int = 0) -> None:
    """Produce a record, and wait if the producer's queue is full. ``timestamp_ms`` 0: now."""
    while True:
        try:
            producer.produce(topic, value, key, timestamp=timestamp_ms)
            return
        except BufferError:
            producer.poll(0.05)


def numbered_key(number: int) -> bytes:
    """Return one of up to 100 million keys, which sort by their numbers."""
    return b"key-%08d" % number


def end_filling(producer: Producer) -> None:
    """Wait until all records are on the broker. Raises BenchmarkError after 60 s."""
    if producer.flush(60):
        raise BenchmarkError("the benchmark's input could not be written within 60 s")


def wait_for_output(
    bootstrap: str, topic: str, *, job: str, commit_ms: int, expected: int, check_alive: Callable[[], None]
) -> Output:
    """Wait until ``topic`` shows that all ``expected`` records were processed; return the measured output.

    Requests only end offsets until they stop growing, because a consumer that reads would use processor time.
    """
    watcher = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "benchmark-watch",
            "enable.auto.commit": False,
            "enable.partition.eof": True,  # offsets do not count records: transaction markers have offsets too
        }
    )
    try:
        partitions = sorted(watcher.list_topics(topic, 10).topics[topic].partitions)
        limit = time.monotonic() + _TIMEOUT_S
        last, since = -1, time.monotonic()
        while time.monotonic() < limit:
            check_alive()
            total = end_of(watcher, topic, partitions)
            if total != last:
                last, since = total, time.monotonic()
            elif total and time.monotonic() - since > _QUIET_S:
                done, output = measure(job, _read(watcher, topic, partitions), commit_ms)
                if done == expected:
                    return output
                if done > expected:
                    raise BenchmarkError(f"{done:,} records were processed, but the input has only {expected:,}")
                since = time.monotonic()  # a pause in the middle
            time.sleep(0.3)  # requests would slow down the broker
        raise BenchmarkError(f"not done after {_TIMEOUT_S:.0f} s ({last:,} records written)")
    finally:
        watcher.close()


def end_of(consumer: Consumer, topic: str, partitions: Iterable[int]) -> int:
    """Return the sum of the end offsets; 0 if the broker cannot answer, for example before leaders are elected."""
    try:
        return sum(consumer.get_watermark_offsets(TopicPartition(topic, number), 10)[1] for number in partitions)
    except KafkaException:
        return 0


def _read(consumer: Consumer, topic: str, partitions: list[int]) -> list[Message]:
    """Read the whole output."""
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
    messages: list[Message] = []
    to_read = set(partitions)
    limit = time.monotonic() + 60
    while to_read:
        for message in consumer.consume(10_000, 1.0):
            error = message.error()
            if error is None:
                messages.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                to_read.discard(message.partition())
            else:
                raise BenchmarkError(f"reading {topic}: {error}")
        if time.monotonic() > limit:
            raise BenchmarkError(f"reading {topic}: only {len(messages):,} records arrived within 60 s")
    consumer.unassign()
    return messages


class Written(Protocol):
    """The needed part of an output record; implemented by confluent-kafka's Message."""

    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def timestamp(self) -> tuple[int, int]: ...


def measure(job: str, output: Sequence[Written], commit_ms: int) -> tuple[int, Output]:
    """Return (number of processed input records, measured output).

    ``output`` must be in offset order within each partition. A count with a cache writes fewer records than it reads.
    Other jobs write one record per input record, or per joined pair.
    """
    stamps = [record.timestamp()[1] for record in output]
    first_until = min(stamps) + commit_ms // 2
    began, ended = max(stamp for stamp in stamps if stamp <= first_until), max(stamps)
    progress: Callable[[Sequence[Written]], int] = _sum_of_last_counts if job.startswith("count") else len
    done = progress(output)
    early = progress([record for record, stamp in zip(output, stamps, strict=True) if stamp <= first_until])
    return done, Output(len(output), done - early, (ended - began) / 1000)


def _sum_of_last_counts(output: Sequence[Written]) -> int:
    """Return the sum of the last counts, which is the number of counted records. For 4- and 8-byte integers."""
    counts: dict[bytes, int] = {}
    for record in output:
        counts[record.key() or b""] = int.from_bytes(record.value() or b"", "big", signed=True)
    return sum(counts.values())
