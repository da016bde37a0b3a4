"""Keys of input topics that another partitioner has placed: found by sampling, logged once per topic."""

from __future__ import annotations

import binascii
import logging

import pytest

from streams_protocol.types import TopicPartition
from streams_py import StreamsBuilder, serdes
from streams_py.errors import BrokerUnavailableError
from streams_py.runtime.thread.key_placement import KeyPlacement
from streams_py.serdes.windowed import TimeWindowedSerde
from streams_py.testing.memory_clients import MemoryRecord
from streams_py.topology.partitioning import partition_for

PARTITIONS = 4


def placement() -> KeyPlacement:
    """Topics ``orders`` and ``customers`` are joined, ``log`` is only mapped, ``windows`` has windowed keys."""
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    customers = builder.table("customers", store="customers")
    builder.stream("orders").join(customers, lambda one, two: one + two).to("out")
    builder.stream("log").map_values(str.upper).to("loud")
    builder.stream("windows", key=TimeWindowedSerde(serdes.STRING, 10)).group_by_key().count(store="w")
    topology = builder.build()
    return KeyPlacement(topology.subtopologies(), topology.metadata("app"), None)


def crc32(key: bytes) -> int:
    return binascii.crc32(key) % PARTITIONS


def murmur2(key: bytes) -> int:
    return partition_for(key, PARTITIONS)


def feed(checked: KeyPlacement, topic: str, rule: object, count: int = 100, subtopology: int = 0) -> None:
    """Process one batch for each partition."""
    keys = [f"k{number}".encode() for number in range(count)]
    for number in range(PARTITIONS):
        at = [key for key in keys if rule(key) == number]  # type: ignore[operator]
        records = [MemoryRecord(topic, number, offset, key, b"v") for offset, key in enumerate(at)]
        if records:
            checked.note(subtopology, TopicPartition(topic, number), records, lambda _: PARTITIONS)


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.WARNING, "streams_py")
    return caplog


def test_topic_of_another_partitioner_gets_one_warning_with_share_and_remedy(said: pytest.LogCaptureFixture) -> None:
    checked = placement()
    for _ in range(3):
        feed(checked, "orders", crc32)
        feed(checked, "customers", murmur2)
    (message,) = said.messages
    assert message.startswith("topic orders: ")
    assert "partitioner=murmur2_random" in message


def test_topic_of_kafkas_partitioner_is_checked_again_while_the_application_runs(
    said: pytest.LogCaptureFixture,
) -> None:
    checked = placement()
    for _ in range(20):
        feed(checked, "orders", murmur2)
    assert said.messages == []
    for _ in range(100):
        feed(checked, "orders", crc32)  # a second producer joins
    assert len(said.messages) == 1


@pytest.mark.parametrize(("topic", "subtopology"), [("log", 1), ("windows", 2)])
def test_topic_that_meets_no_state_or_has_windowed_keys_is_not_checked(
    said: pytest.LogCaptureFixture, topic: str, subtopology: int
) -> None:
    feed(placement(), topic, crc32, subtopology=subtopology)
    assert said.messages == []


def test_few_keys_null_keys_and_one_partition_prove_nothing(said: pytest.LogCaptureFixture) -> None:
    checked = placement()
    feed(checked, "orders", crc32, count=20)
    nulls = [MemoryRecord("customers", 1, offset, None, b"v") for offset in range(100)]
    checked.note(0, TopicPartition("customers", 1), nulls, lambda _: PARTITIONS)
    one = [MemoryRecord("customers", 0, offset, f"k{offset}".encode(), b"v") for offset in range(100)]
    checked.note(0, TopicPartition("customers", 0), one, lambda _: 1)
    assert said.messages == []


def test_cluster_that_does_not_answer_delays_the_verdict(said: pytest.LogCaptureFixture) -> None:
    checked = placement()

    def away(_: str) -> int:
        raise BrokerUnavailableError("no broker")

    records = [MemoryRecord("orders", 0, offset, f"k{offset}".encode(), b"v") for offset in range(100)]
    checked.note(0, TopicPartition("orders", 0), records, away)
    assert said.messages == []
    feed(checked, "orders", crc32)
    assert len(said.messages) == 1
