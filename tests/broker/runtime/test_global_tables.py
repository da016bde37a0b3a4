"""Global tables whose topics are not what they were, or not all there yet."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from streams_py import KafkaStreams, StreamsBuilder
from streams_py.runtime.global_thread import global_thread
from streams_py.serdes import STRING
from streams_py.testing.broker import Broker
from tests.support.waiting import until

pytestmark = pytest.mark.broker

_numbers = itertools.count()


@pytest.fixture
def topic(kafka_broker: Broker) -> str:
    name = f"global-{os.getpid()}-{next(_numbers)}"
    kafka_broker.create_topic(name, 1)
    return name


@pytest.fixture
def producer(kafka_broker: Broker, topic: str) -> Iterator[confluent_kafka.Producer]:
    """A producer of another application, with transactions."""
    made = confluent_kafka.Producer({"bootstrap.servers": kafka_broker.bootstrap, "transactional.id": f"{topic}-id"})
    made.init_transactions(60)
    yield made
    made.close()


def client(broker: Broker, topic: str, folder: Path) -> KafkaStreams:
    builder = StreamsBuilder(key=STRING, value=STRING)
    builder.global_table(topic, store="names")
    config: dict[str, Any] = {
        "application.id": f"app-{topic}",
        "bootstrap.servers": broker.bootstrap,
        "state.dir": str(folder),
        "processing.guarantee": "exactly_once_v2",
    }
    return KafkaStreams(builder.build(), config)


def test_start_waits_for_no_transaction_of_others(
    kafka_broker: Broker, topic: str, producer: confluent_kafka.Producer, tmp_path: Path
) -> None:
    producer.begin_transaction()
    producer.produce(topic, b"one", b"a")
    producer.commit_transaction(60)
    producer.begin_transaction()
    producer.produce(topic, b"two", b"b")
    producer.flush(60)
    with client(kafka_broker, topic, tmp_path) as streams:
        view = streams.store("names")
        assert (view.get("a"), view.get("b")) == ("one", None)
        producer.commit_transaction(60)
        until(lambda: view.get("b") == "two", "what has been committed")


def test_partition_that_a_topic_is_given_later_is_read(
    kafka_broker: Broker,
    topic: str,
    producer: confluent_kafka.Producer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(global_thread, "_NEW_PARTITIONS_MS", 500)
    with client(kafka_broker, topic, tmp_path) as streams:
        admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap})
        admin.create_partitions([NewPartitions(topic, 2)])[topic].result(60)
        view = streams.store("names")
        producer.begin_transaction()
        producer.produce(topic, b"one", b"a", 0)
        producer.produce(topic, b"two", b"b", 1)
        producer.commit_transaction(60)
        until(lambda: (view.get("a"), view.get("b")) == ("one", "two"), "the record in the new partition")
