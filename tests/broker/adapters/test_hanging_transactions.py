"""Transactions that the coordinator considers ended, but that lack markers in partitions: they are ended again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from kafka import KafkaProducer

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent.admin import ConfluentAdmin
from streams_py.adapters.kafka_python.admin.transaction_admin import KafkaPythonTransactionAdmin
from streams_py.runtime.commit.open_transactions import OpenTransactions
from streams_py.system.clock import SystemClock
from streams_py.testing.broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.xdist_group("hanging")]

APP = "payments"


@pytest.fixture
def trusting(kafka_broker: Broker) -> Iterator[Broker]:
    """Start a broker that accepts records of transactions unknown to the coordinator, so that one can hang."""
    client = AdminClient({"bootstrap.servers": kafka_broker.bootstrap})

    def verify(on: bool) -> None:
        entry = ConfigEntry(
            "transaction.partition.verification.enable", str(on).lower(), incremental_operation=AlterConfigOpType.SET
        )
        nodes = client.list_topics(timeout=30).brokers
        for answer in client.incremental_alter_configs(
            [ConfigResource(ResourceType.BROKER, str(node), incremental_configs=[entry]) for node in nodes]
        ).values():
            answer.result(30)

    verify(False)
    yield kafka_broker
    verify(True)


class Hanging:
    """A producer whose records in partition 0 are unknown to its coordinator."""

    def __init__(self, broker: Broker, topic: str, name: str) -> None:
        self.producer: Any = KafkaProducer(bootstrap_servers=broker.bootstrap.split(","), transactional_id=name)
        self.topic = topic
        self.producer.init_transactions()
        manager = self.producer._transaction_manager  # a transaction whose partition its coordinator does not know
        add = manager.maybe_add_partition_to_transaction

        def add_others(partition: Any) -> None:
            if partition.partition != 0:
                add(partition)
            else:
                manager._partitions_in_transaction.add(partition)  # see above

        manager.maybe_add_partition_to_transaction = add_others

    def write(self, *partitions: int) -> None:
        self.producer.begin_transaction()
        for partition in partitions:
            self.producer.send(self.topic, b"%d" % partition, partition=partition)
        self.producer.flush()


def visible(broker: Broker, topic: str, partition: int) -> tuple[int, int]:
    """Return (last stable offset, end offset)."""
    ends = []
    for level in ("read_committed", "read_uncommitted"):
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "look", "isolation.level": level})
        ends.append(consumer.get_watermark_offsets(ConfluentPartition(topic, partition), timeout=30)[1])
        consumer.close()
    return ends[0], ends[1]


@pytest.fixture
def guard(trusting: Broker) -> Iterator[Callable[[str], OpenTransactions]]:
    made: list[OpenTransactions] = []
    admin = ConfluentAdmin({"bootstrap.servers": trusting.bootstrap, "client.id": "guard"})

    def make(topic: str) -> OpenTransactions:
        client = KafkaPythonTransactionAdmin({"bootstrap_servers": trusting.bootstrap.split(",")}, timeout_ms=20_000)
        made.append(
            OpenTransactions(
                client,
                admin,
                SystemClock(),
                application_id=APP,
                topics={topic},
                transaction_timeout_ms=60_000,
                members=lambda: None,
            )
        )
        return made[-1]

    yield make
    for one in made:
        one.close()
    admin.close()


def records(broker: Broker, topic: str, partition: int) -> list[bytes]:
    """Return the records that a reader of committed records gets up to the end."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "read",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([ConfluentPartition(topic, partition, 0)])
    found = []
    while (message := consumer.poll(60)) is not None and message.error() is None:
        found.append(message.value())
    consumer.close()
    return found


@pytest.mark.parametrize("commit", [True, False], ids=["committed", "aborted"])
def test_hanging_transaction_ends_as_its_coordinator_has_decided(
    trusting: Broker, guard: Callable[[str], OpenTransactions], commit: bool
) -> None:
    topic, name = f"hanging-{commit}-{uuid4().hex[:8]}", f"{APP}-{uuid4()}-1"
    trusting.create_topic(topic, 2)
    hanging = Hanging(trusting, topic, name)
    hanging.write(0, 1)
    if commit:
        hanging.producer.commit_transaction()
    else:
        hanging.producer.abort_transaction()
    assert visible(trusting, topic, 0) == (0, 1), "no transaction hangs: this test no longer creates one"
    assert visible(trusting, topic, 1) == (2, 2)

    guard(topic).settle(name)

    stable, end = visible(trusting, topic, 0)
    assert stable == end
    assert records(trusting, topic, 0) == ([b"0"] if commit else [])
    assert records(trusting, topic, 1) == ([b"1"] if commit else [])
    hanging.producer.close()


def test_open_transaction_of_another_application_is_left_alone(
    trusting: Broker, guard: Callable[[str], OpenTransactions], caplog: pytest.LogCaptureFixture
) -> None:
    topic = f"foreign-{uuid4().hex[:8]}"
    trusting.create_topic(topic, 2)
    theirs, ours = Hanging(trusting, topic, f"{APP}-eu-{uuid4()}-1"), Hanging(trusting, topic, f"{APP}-{uuid4()}-1")
    theirs.write(1)
    ours.write(1)
    both = guard(topic)
    updater = Updater({TopicPartition(topic, 1)})
    both.watch(updater)
    both._clock = Hasty()  # type: ignore[assignment]  # a minute passes between two checks
    both.check()
    both.check()
    theirs.producer.commit_transaction()
    assert records(trusting, topic, 1) == [b"1"]
    with pytest.raises(Exception, match=r"(?i)fenced|epoch"):
        ours.producer.commit_transaction()
    for one in (theirs, ours):
        one.producer.close(timeout=0)


class Updater:
    """Restores these changelogs permanently."""

    def __init__(self, changelogs: Collection[TopicPartition]) -> None:
        self._changelogs = changelogs

    def restoring(self) -> Collection[TopicPartition]:
        return self._changelogs


class Hasty(SystemClock):
    """A clock on which a minute passes between two checks."""

    _looks = 0

    def monotonic_ms(self) -> int:
        self._looks += 1
        return super().monotonic_ms() + 60_000 * self._looks
