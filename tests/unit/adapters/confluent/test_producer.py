"""The record producer on librdkafka's mock cluster."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from unittest.mock import MagicMock

import pytest

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent import ConfluentClients
from streams_py.adapters.confluent.consumer import ConfluentConsumer
from streams_py.adapters.confluent.embedded.mock_library import MockCluster
from streams_py.adapters.confluent.producer import ConfluentProducer
from streams_py.adapters.connection.librdkafka_gaps import KafkaPythonEpochSender, kafka_python_connection
from streams_py.adapters.security.settings import SecuritySettings
from streams_py.config.streams_config import StreamsConfig
from streams_py.errors import BrokerUnavailableError, ProductionError, StreamsError, TaskMigratedError
from streams_py.topology.partitioning import partition_for
from tests.support.confluent.consuming import from_beginning, take

PRODUCE_REQUEST = 0
INVALID_RECORD = 87
OUT_OF_ORDER_SEQUENCE_NUMBER = 45


def test_nothing_is_sent_between_halt_and_reset(
    topic: str, producer: ConfluentProducer, consumer: ConfluentConsumer
) -> None:
    producer.produce(topic, b"before", b"k", 0, None, 1, None)
    _, _, obstacles = producer.direct(topic, 0)
    assert not obstacles
    halt = threading.Thread(target=producer.halt, args=("others own it",))
    halt.start()
    halt.join()
    assert obstacles
    producer.flush(5_000)
    assert obstacles, "also after a look at what failed"
    for timestamp_ms in (2, 0, -1):
        with pytest.raises(TaskMigratedError, match="others own it"):
            producer.produce(topic, b"late", b"k", 0, None, timestamp_ms, None)
    producer.reset()
    producer.produce(topic, b"after", b"k", 0, None, 3, None)
    assert not producer.direct(topic, 0).failures
    assert producer.flush(5_000) == 0
    consumer.assign(from_beginning(topic, 0))
    assert [record.value() for record in take(consumer, 2)] == [b"before", b"after"]


def test_nothing_is_sent_while_there_is_a_reason_to_hold_it_back(
    topic: str, producer: ConfluentProducer, consumer: ConfluentConsumer
) -> None:
    _, _, obstacles = producer.direct(topic, 0)
    holding = threading.Thread(target=producer.hold, args=("others may own it",))
    holding.start()
    holding.join()
    producer.poll()
    producer.reset()
    assert obstacles, "also after a look at what failed, and with new clients"
    with pytest.raises(BrokerUnavailableError, match="others may own it"):
        producer.produce(topic, b"late", b"k", 0, None, 1, None)
    producer.hold(None)
    producer.produce(topic, b"after", b"k", 0, None, 2, None)
    producer.poll()
    assert not obstacles
    assert producer.flush(5_000) == 0
    consumer.assign(from_beginning(topic, 0))
    assert [record.value() for record in take(consumer, 1)] == [b"after"]


def test_record_arrives_with_all_its_parts(
    topic: str, producer: ConfluentProducer, consumer: ConfluentConsumer
) -> None:
    headers = [("a", b"1"), ("a", b"2"), ("none", None), ("empty", b"")]
    producer.produce(topic, b"value", b"key", 2, None, 1_234, headers)
    producer.produce(topic, None, None, 2, None, 5, None)
    assert producer.flush(5_000) == 0
    consumer.assign(from_beginning(topic, 2))
    full, empty = take(consumer, 2)
    assert (full.key(), full.value(), full.timestamp(), full.headers()) == (b"key", b"value", (1, 1_234), headers)
    assert (empty.key(), empty.value(), empty.timestamp()) == (None, None, (1, 5))


def test_key_decides_the_partition_by_kafkas_rule_when_none_is_given(
    topic: str, producer: ConfluentProducer, consumer: ConfluentConsumer
) -> None:
    keys = [b"", b"k", b"21", *(b"key-%d" % number for number in range(60))]
    for key in keys:
        producer.produce(topic, b"v", key, -1, None, 1, None)
    producer.flush(5_000)
    consumer.assign(from_beginning(topic, 0, 1, 2))
    for record in take(consumer, len(keys)):
        assert record.partition() == partition_for(record.key() or b"", 3), record.key()


def test_clock_of_the_producer_is_used_when_the_timestamp_is_minus_one(
    topic: str, producer: ConfluentProducer, consumer: ConfluentConsumer
) -> None:
    before_ms = time.time_ns() // 1_000_000
    producer.produce(topic, b"v", None, 0, None, -1, None)
    producer.flush(5_000)
    consumer.assign(from_beginning(topic, 0))
    _, written_ms = take(consumer, 1)[0].timestamp()
    assert before_ms <= written_ms <= time.time_ns() // 1_000_000


def test_timestamp_zero_is_written_in_its_place(
    cluster: MockCluster, topic: str, clients: ConfluentClients, consumer: ConfluentConsumer
) -> None:
    # ConfluentClients has not started this cluster, so it does not know that kafka-python needs a pinned version.
    connection = kafka_python_connection(cluster.bootstrap, "t", SecuritySettings(), embedded=True)
    plain = clients.producer("thread-1")
    # The mock cluster has no epochs.
    plain._make_epoch_sender = lambda: KafkaPythonEpochSender(connection, timeout_ms=10_000)
    plain.track([topic])
    for timestamp_ms in (7, 0, 8):
        plain.produce(topic, b"v", b"k", 1, None, timestamp_ms, [("h", b"1")])
    assert plain.acked_offsets() == {TopicPartition(topic, 1): 1}
    plain.produce(topic, b"by key", b"k", -1, None, 0, None)
    plain.flush(5_000)
    plain.close()
    consumer.assign(from_beginning(topic, 0, 1, 2))
    records = take(consumer, 4)
    assert [record.timestamp() for record in records if record.value() == b"v"] == [(1, 7), (1, 0), (1, 8)]
    (by_key,) = [record for record in records if record.value() == b"by key"]
    assert (by_key.timestamp(), by_key.partition()) == ((1, 0), partition_for(b"k", 3))


def test_negative_timestamp_is_an_error(topic: str, producer: ConfluentProducer) -> None:
    with pytest.raises(StreamsError, match="timestamp -5; it must be 0 or more"):
        producer.produce(topic, b"v", b"k", 0, None, -5, None)


def test_acked_offsets_are_the_highest_of_tracked_topics_only(topic: str, producer: ConfluentProducer) -> None:
    producer.track([topic])
    for number in range(10):
        producer.produce(topic, b"v", b"k", number % 2, None, 1, None)
    producer.produce("untracked-of-acked", b"v", b"k", 0, None, 1, None)
    assert producer.acked_offsets() == {}
    assert producer.flush(5_000) == 0
    assert producer.acked_offsets() == {TopicPartition(topic, 0): 4, TopicPartition(topic, 1): 4}


# -- directly ----------------------------------------------------------------------------------------------------------


def test_direct_send_arrives_and_counts_as_acknowledged(
    topic: str, producer: ConfluentProducer, consumer: ConfluentConsumer
) -> None:
    producer.track([topic])
    send, report, failures = producer.direct(topic, 1)
    send(topic, b"v", b"k", 1, report, None, 7, [("h", b"1")])
    assert producer.flush(5_000) == 0
    assert producer.acked_offsets() == {TopicPartition(topic, 1): 0}
    assert failures == []
    consumer.assign(from_beginning(topic, 1))
    (record,) = take(consumer, 1)
    assert (record.key(), record.value(), record.timestamp()[1], record.headers()) == (b"k", b"v", 7, [("h", b"1")])


@pytest.mark.parametrize("tracked", [True, False])
def test_failure_of_a_direct_send_is_among_the_failures(
    cluster: MockCluster, topic: str, producer: ConfluentProducer, tracked: bool
) -> None:
    producer.track([topic] if tracked else [])
    cluster.push_errors(PRODUCE_REQUEST, [INVALID_RECORD])
    send, report, failures = producer.direct(topic, 1)
    send(topic, b"v", b"k", 1, report, None, 1, None)
    assert producer.flush(5_000) == 0
    assert len(failures) == 1
    with pytest.raises(ProductionError, match=f"{topic}-1"):
        producer.produce(topic, b"next", b"k", 1, None, 1, None)
    assert failures == []


def test_direct_send_refuses_at_once_when_the_queue_is_full(
    topic: str, producer_with: Callable[..., ConfluentProducer]
) -> None:
    producer = producer_with(queue_buffering_max_messages=1, linger_ms=1)
    send, report, _ = producer.direct(topic)

    def send_many() -> None:
        for _ in range(100):
            send(topic, b"v", b"k", 0, report, None, 1, None)

    with pytest.raises(BufferError):
        send_many()


def test_records_sent_before_tracking_are_not_lost(
    topic: str, producer: ConfluentProducer, consumer: ConfluentConsumer
) -> None:
    producer.produce(topic, b"before", b"k", 0, None, 1, None)
    producer.track([topic])
    producer.produce(topic, b"after", b"k", 0, None, 1, None)
    assert producer.flush(5_000) == 0
    assert producer.acked_offsets() == {TopicPartition(topic, 0): 1}
    consumer.assign(from_beginning(topic, 0))
    assert [record.value() for record in take(consumer, 2)] == [b"before", b"after"]


# -- back-pressure, look-ups, end --------------------------------------------------------------------------------------


def test_produce_waits_for_room_and_loses_nothing_when_the_queue_is_full(
    topic: str, producer_with: Callable[..., ConfluentProducer], consumer: ConfluentConsumer
) -> None:
    producer = producer_with(queue_buffering_max_messages=10, linger_ms=1)
    producer.blocked = waits = MagicMock()
    for number in range(500):
        producer.produce(topic, b"%d" % number, b"k", 0, None, 1, None)
    assert waits.__enter__.call_count == waits.__exit__.call_count > 0
    assert producer.flush(5_000) == 0
    producer.check()
    consumer.assign(from_beginning(topic, 0))
    assert [record.value() for record in take(consumer, 500)] == [b"%d" % number for number in range(500)]


def test_broker_unavailable_names_the_address_when_the_queue_stays_full(
    cluster: MockCluster, topic: str, producer_with: Callable[..., ConfluentProducer]
) -> None:
    producer = producer_with(queue_buffering_max_messages=5, max_block_ms=200)
    producer.partitions_for(topic)
    cluster.stop_broker(1)
    try:
        for _ in range(5):
            producer.produce(topic, b"v", b"k", 0, None, 1, None)
        with pytest.raises(BrokerUnavailableError, match=f"{cluster.bootstrap} within 200 ms"):
            producer.produce(topic, b"v", b"k", 0, None, 1, None)
    finally:
        cluster.start_broker(1)
    assert producer.flush(10_000) == 0


def test_partition_count_is_looked_up_once(cluster: MockCluster, topic: str, producer: ConfluentProducer) -> None:
    producer.blocked = waits = MagicMock()
    assert producer.partitions_for(topic) == 3
    cluster.stop_broker(1)
    try:
        assert producer.partitions_for(topic) == 3
    finally:
        cluster.start_broker(1)
    assert waits.__enter__.call_count == waits.__exit__.call_count == 1


def test_partition_count_is_unavailable_and_names_the_address_when_nobody_answers() -> None:
    config = StreamsConfig.of(
        {"application.id": "app", "bootstrap.servers": "127.0.0.1:1", "producer.max.block.ms": 150}
    )
    producer = ConfluentClients(config).producer("thread-1")
    with pytest.raises(
        BrokerUnavailableError, match=r"no answer from the Kafka cluster at 127\.0\.0\.1:1 within 150 ms"
    ):
        producer.partitions_for("any")
    producer.close()


def test_close_writes_what_is_queued(topic: str, clients: ConfluentClients, consumer: ConfluentConsumer) -> None:
    producer = clients.producer("thread-1")
    producer.produce(topic, b"v", b"k", 0, None, 1, None)
    producer.close()
    consumer.assign(from_beginning(topic, 0))
    assert take(consumer, 1)[0].value() == b"v"


def test_producer_out_of_step_with_the_broker_starts_over_but_not_again_and_again(
    cluster: MockCluster, topic: str, clients: ConfluentClients, consumer: ConfluentConsumer
) -> None:
    producer = clients.producer("thread-1")
    producer.track([topic])

    def send(value: bytes) -> None:
        producer.produce(topic, value, b"k", 0, None, 1, None)
        assert producer.flush(30_000) == 0
        producer.check()

    send(b"before")
    cluster.push_errors(PRODUCE_REQUEST, [OUT_OF_ORDER_SEQUENCE_NUMBER])
    with pytest.raises(TaskMigratedError, match="the producer"):
        send(b"refused")
    with pytest.raises(TaskMigratedError):
        send(b"not taken")
    producer.reset()
    assert producer.acked_offsets() == {}
    send(b"after")
    assert producer.acked_offsets() == {TopicPartition(topic, 0): 1}
    cluster.push_errors(PRODUCE_REQUEST, [OUT_OF_ORDER_SEQUENCE_NUMBER])
    with pytest.raises(StreamsError, match="less than a minute ago"):
        send(b"refused")
    producer.reset()
    consumer.assign(from_beginning(topic, 0))
    assert [record.value() for record in take(consumer, 2)] == [b"before", b"after"]
    producer.close()


def test_what_waits_and_what_failed_is_forgotten_by_a_reset(
    cluster: MockCluster, topic: str, producer_with: Callable[..., ConfluentProducer], consumer: ConfluentConsumer
) -> None:
    producer = producer_with(linger_ms=60_000)
    cluster.push_errors(PRODUCE_REQUEST, [INVALID_RECORD])
    producer.produce(topic, b"refused", b"k", 0, None, 1, None)
    assert producer.flush(30_000) == 0
    assert producer.direct(topic, 0).failures
    producer.reset()
    producer.check()
    assert not producer.direct(topic, 0).failures
    producer.produce(topic, b"waits", b"k", 0, None, 1, None)
    producer.reset()
    producer.produce(topic, b"mine", b"k", 0, None, 1, None)
    assert producer.flush(30_000) == 0
    consumer.assign(from_beginning(topic, 0))
    assert take(consumer, 1)[0].value() == b"mine"
