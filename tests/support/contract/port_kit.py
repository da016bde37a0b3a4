"""The clusters that every port is tried on: memory (where there is a fake), the embedded cluster, Apache Kafka."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streams_protocol.types import TopicPartition
from streams_py.clients.factory import KafkaClients
from streams_py.config.streams_config import StreamsConfig
from streams_py.ports import Admin, AdminError, Clients, RawRecord, RecordConsumer
from streams_py.testing.broker import EmbeddedBroker
from tests.support.runtime.world import World
from tests.support.waiting import until

__all__ = ["ALL", "REAL", "Cluster", "Opened", "open_cluster", "until"]

_numbers = itertools.count()

_kafka = pytest.param("kafka", marks=pytest.mark.broker)
ALL = ["memory", "embedded", _kafka]
"""Clusters for records and administration."""
REAL = ["embedded", _kafka]
"""Clusters that have groups."""


class Cluster:
    """One cluster: topics can be made on it, and clients."""

    def __init__(self, kind: str, clients: Clients, create_topic: Callable[[str, int], None]) -> None:
        self.kind = kind
        self.clients = clients
        self._create_topic = create_topic

    def topic(self, partitions: int = 4) -> str:
        """A new topic whose partitions have leaders; on a real cluster that takes a moment."""
        name = f"contract-{os.getpid()}-{next(_numbers)}"
        self._create_topic(name, partitions)
        if self.kind == "kafka":
            admin, every = self.clients.admin(), [part(name, number) for number in range(partitions)]
            until(lambda: not any(isinstance(end, AdminError) for end in admin.list_offsets(every).values()), "leaders")
            admin.close()
        return name


class Opened:
    """Clients of a test, closed at its end."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.kind = cluster.kind
        self._close: list[Callable[[], None]] = []
        self.topic = cluster.topic

    def producer(self, *tracked: str):  # type: ignore[no-untyped-def]  # a RecordProducer; fakes have no nominal type
        made = self.cluster.clients.producer("contract")
        made.track(tracked)
        self._close.append(made.close)
        return made

    def consumer(self) -> RecordConsumer:
        made = self.cluster.clients.main_consumer("contract")
        self._close.append(made.close)
        return made

    def admin(self) -> Admin:
        made = self.cluster.clients.admin()
        self._close.append(made.close)
        return made

    def close(self) -> None:
        for close in reversed(self._close):
            close()

    def fill(self, topic: str, count: int, *, partition: int = 0) -> None:
        """Write ``0``, ``1``, ... and wait for the acknowledgements."""
        producer = self.producer()
        for number in range(count):
            producer.produce(topic, b"%d" % number, b"k", partition, None, number + 1, None)
        assert producer.flush(20_000) == 0
        producer.check()


def take(consumer: RecordConsumer, count: int) -> list[RawRecord]:
    """The next ``count`` records, not one more."""
    found: list[RawRecord] = []
    until(lambda: found.extend(consumer.poll(1000, 50)) or len(found) >= count, f"{count} records")
    assert len(found) == count
    return found


def part(topic: str, number: int = 0) -> TopicPartition:
    return TopicPartition(topic, number)


def open_cluster(kind: str, request: pytest.FixtureRequest, folder: Path) -> Iterator[Cluster]:
    """For a fixture: the cluster of that kind."""
    config = {"application.id": f"contract-{os.getpid()}-{next(_numbers)}", "state.dir": str(folder)}
    config |= {"session.timeout.ms": 1500, "heartbeat.interval.ms": 100, "producer.linger.ms": 5}
    # By default, records expire after two thirds of the session timeout. A busy broker takes longer.
    config |= {"producer.delivery.timeout.ms": 60_000}
    match kind:
        case "memory":
            world = World()
            yield Cluster(kind, world, lambda name, partitions: world.topics.update({name: partitions}))
        case "embedded":
            broker = EmbeddedBroker()
            clients = KafkaClients(StreamsConfig.of({**config, "bootstrap.servers": broker.url}))
            yield Cluster(kind, clients, broker.create_topic)
            clients.close()
            broker.close()
        case "kafka":
            kafka = request.getfixturevalue("kafka_broker")
            clients = KafkaClients(StreamsConfig.of({**config, "bootstrap.servers": kafka.bootstrap}))
            yield Cluster(kind, clients, kafka.create_topic)
            clients.close()
