"""An application with input at a constant rate: the output of each partition over time, and the member that has it.

The broker's clock is used: it stamps the records of the output topic (LogAppendTime). Output and input records have
equal partition numbers.
"""

from __future__ import annotations

import random
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Self

from confluent_kafka import OFFSET_END, Consumer, ConsumerGroupState, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from benchmarks.cluster import delete_topics, make_topic, numbered_key, put

PARTITIONS = 12
_RATE = 2_000
_KEYS = 1_200
LOOK_S = 0.2
"""Interval between two requests for the members of the group, in s."""


def longest_silence(stamps: Sequence[float], begin: float, end: float) -> float:
    """Return the longest time without a stamp between ``begin`` and ``end``, in s.

    It may start at the last stamp before ``begin``, but does not extend beyond ``end``. ``stamps`` must be sorted.
    """
    return max(silences(stamps, begin, end))


def silences(stamps: Sequence[float], begin: float, end: float) -> list[float]:
    """Return all times between two stamps, in s; see :func:`longest_silence`."""
    first, last = bisect_left(stamps, begin), bisect_left(stamps, end)
    points = [stamps[first - 1] if first else begin, *stamps[first:last], end]
    return [after - before for before, after in pairwise(points)]


def moved_between(
    history: Sequence[tuple[float, dict[int, str]]], begin: float, end: float, partitions: int
) -> set[int]:
    """Return the partitions that had more than one member.

    ``history`` has the time of each change, and the members by partition.
    """
    seen = [owners for at, owners in history if at <= begin][-1:]
    seen += [owners for at, owners in history if begin < at <= end]
    return {number for number in range(partitions) if len({had[number] for had in seen if number in had}) > 1}


class LiveOutput:
    """Writes the input of an application, and reads its output and the members of its group, on three threads.

    Creates the topics, and deletes them and the application's own topics when the block ends.

    Attributes:
        source: Input topic.
        sink: Output topic.
        stamps: The times of the output records of each partition, in s since the epoch.
        owners: The member of each partition whenever the group was stable with other members, with the time.
        failed: Errors of the threads.
    """

    def __init__(self, bootstrap: str, application: str, *, committed_only: bool = False) -> None:
        self._bootstrap, self._application = bootstrap, application
        self._isolation = "read_committed" if committed_only else "read_uncommitted"
        self.source, self.sink = f"{application}-in", f"{application}-out"
        self.stamps: list[list[float]] = [[] for _ in range(PARTITIONS)]
        self.owners: list[tuple[float, dict[int, str]]] = []
        self.failed: list[Exception] = []
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self._done = threading.Event()
        self._threads: list[threading.Thread] = []
        make_topic(bootstrap, self.source, PARTITIONS)
        make_topic(bootstrap, self.sink, PARTITIONS, append_time=True)

    def start(self) -> None:
        """Start the threads."""
        for work in (self._read, self._feed, self._look):
            thread = threading.Thread(target=self._aloud, args=(work,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join()
        delete_topics(self._bootstrap, containing=self._application)

    def members(self) -> dict[int, str]:
        """Return the last known member of each partition."""
        return self.owners[-1][1] if self.owners else {}

    def _aloud(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self.failed.append(error)

    def _feed(self) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "linger.ms": 0, "partitioner": "murmur2_random"})
        chosen = random.Random(7)
        began, written = time.monotonic(), 0
        while not self._done.wait(0.002):
            while written < (time.monotonic() - began) * _RATE:
                put(producer, self.source, b"v", numbered_key(chosen.randrange(_KEYS)))
                written += 1
            producer.poll(0)
        producer.flush(10)

    def _read(self) -> None:
        watcher = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": f"{self._application}-watch",
                "enable.auto.commit": False,
                "fetch.queue.backoff.ms": 1,
                "isolation.level": self._isolation,
            }
        )
        watcher.assign([TopicPartition(self.sink, number, OFFSET_END) for number in range(PARTITIONS)])
        while not self._done.is_set():
            for message in watcher.consume(1000, 0.1):
                partition = message.partition()
                if message.error() is None and partition is not None:
                    self.stamps[partition].append(message.timestamp()[1] / 1000)
        watcher.close()

    def _look(self) -> None:
        while not self._done.wait(LOOK_S):
            try:
                group = self._admin.describe_consumer_groups([self._application])[self._application].result(10)
            except KafkaException:
                continue
            owners = {
                partition.partition: member.member_id
                for member in group.members
                for partition in member.assignment.topic_partitions
                if partition.topic == self.source
            }
            if group.state is ConsumerGroupState.STABLE and (not self.owners or self.owners[-1][1] != owners):
                self.owners.append((time.time(), owners))
