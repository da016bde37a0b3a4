"""The broker's side of the record benchmarks: topics, input, and reading off the output how fast it came.

Every peer is timed by the same clock: the output topic has the broker stamp its records (LogAppendTime). A peer's
speed is the input it worked off after its first output, over the time from there to its last. Start-up, group joins and
shutdown stay outside. "First output" is all of the first half commit interval: a cache writes in bursts, one a commit,
and half a burst would be a wrong beginning. The same reading checks the work: the map must have written every record
once, the last counts must add up to the input.
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

__all__ = [
    "BenchmarkError",
    "Output",
    "Written",
    "delete_topics",
    "end_filling",
    "end_of",
    "fill",
    "make_topic",
    "measure",
    "numbered_key",
    "put",
    "wait_for_output",
]

# Records keep their age: with time-based retention, old timestamps could vanish while the benchmark is being set up.
_KEEP = {"retention.ms": "-1", "file.delete.delay.ms": "1000"}
_QUIET_S = 1.0
_TIMEOUT_S = 600.0


class BenchmarkError(Exception):
    """A peer did not do the work, so there is no figure."""


@dataclass(frozen=True, slots=True)
class Output:
    """What one peer wrote: how much of the input it worked off after its first output, and the time that took."""

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
    """Remove the topics of a peer that has ended, internal ones too, before the next one is measured."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    names = [name for name in admin.list_topics(timeout=10).topics if containing in name]
    for deleted in (admin.delete_topics(names) if names else {}).values():
        deleted.result(30)


def record_value(number: int, keys: int) -> bytes:
    """A JSON object of about 100 bytes."""
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
    """Hand a record over, when there is room for it. ``timestamp_ms`` 0: now."""
    while True:
        try:
            producer.produce(topic, value, key, timestamp=timestamp_ms)
            return
        except BufferError:
            producer.poll(0.05)


def numbered_key(number: int) -> bytes:
    """A key of which there are up to a hundred million, in the order of their numbers."""
    return b"key-%08d" % number


def end_filling(producer: Producer) -> None:
    """Everything is on the broker. BenchmarkError when that takes too long."""
    if producer.flush(60):
        raise BenchmarkError("the benchmark's input could not be written within 60 s")


def wait_for_output(
    bootstrap: str, topic: str, *, job: str, commit_ms: int, expected: int, check_alive: Callable[[], None]
) -> Output:
    """Wait until ``topic`` shows that all ``expected`` records are worked off; what it shows then.

    Looks only at end offsets until they rest: a consumer that reads along would take its share of the machine.
    """
    watcher = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "benchmark-watch",
            "enable.auto.commit": False,
            "enable.partition.eof": True,  # offsets are not records: ends of transactions have some, too
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
                    raise BenchmarkError(f"{done:,} records were worked off, but only {expected:,} are there")
                since = time.monotonic()  # a pause in the middle
            time.sleep(0.3)  # what is asked here, the broker answers instead of working
        raise BenchmarkError(f"not done after {_TIMEOUT_S:.0f} s ({last:,} records written)")
    finally:
        watcher.close()


def end_of(consumer: Consumer, topic: str, partitions: Iterable[int]) -> int:
    """How many records there are; 0 when the broker cannot say, as while a new topic's leaders are being elected."""
    try:
        return sum(consumer.get_watermark_offsets(TopicPartition(topic, number), 10)[1] for number in partitions)
    except KafkaException:
        return 0


def _read(consumer: Consumer, topic: str, partitions: list[int]) -> list[Message]:
    """The whole output."""
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
            raise BenchmarkError(f"reading {topic}: only {len(messages):,} records came")
    consumer.unassign()
    return messages


class Written(Protocol):
    """What is asked of an output record; confluent-kafka's Message has more."""

    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def timestamp(self) -> tuple[int, int]: ...


def measure(job: str, output: Sequence[Written], commit_ms: int) -> tuple[int, Output]:
    """Input records that ``output`` accounts for, and the speed it shows. In offset order within each partition. With a
    cache a count writes less than it reads; everything else writes one record for each, or for each pair that it joins.
    """
    stamps = [record.timestamp()[1] for record in output]
    first_until = min(stamps) + commit_ms // 2
    began, ended = max(stamp for stamp in stamps if stamp <= first_until), max(stamps)
    progress: Callable[[Sequence[Written]], int] = _sum_of_last_counts if job.startswith("count") else len
    done = progress(output)
    early = progress([record for record, stamp in zip(output, stamps, strict=True) if stamp <= first_until])
    return done, Output(len(output), done - early, (ended - began) / 1000)


def _sum_of_last_counts(output: Sequence[Written]) -> int:
    """A count worked off as many records as its last results add up to. Works for 4- and 8-byte integers."""
    counts: dict[bytes, int] = {}
    for record in output:
        counts[record.key() or b""] = int.from_bytes(record.value() or b"", "big", signed=True)
    return sum(counts.values())
