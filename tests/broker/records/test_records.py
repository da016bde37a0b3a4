"""Records written and read through a real broker."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent import ConfluentClients
from streams_py.adapters.confluent.consumer import ConfluentConsumer
from streams_py.adapters.confluent.producer import ConfluentProducer
from streams_py.errors import OffsetOutOfRangeError, ProductionError, StreamsError
from streams_py.ports import BEGINNING, END
from streams_py.testing.broker import Broker
from streams_py.topology.partitioning import partition_for
from tests.support.confluent.consuming import from_beginning, poll_until, take

pytestmark = [pytest.mark.broker, pytest.mark.smoke]


def test_partition_of_ten_thousand_keys_agrees_with_our_own_murmur2(
    topic: str, producer: ConfluentProducer, consumer: ConfluentConsumer
) -> None:
    dice = random.Random(7)
    keys = [b"", *(dice.randbytes(dice.randrange(1, 40)) for _ in range(9_999))]
    for key in keys:
        producer.produce(topic, b"v", key, -1, None, 1_700_000_000_000, None)
    assert producer.flush(20_000) == 0
    consumer.assign(from_beginning(topic, 0, 1, 2, 3))
    records = take(consumer, len(keys))
    wrong = [record.key() for record in records if record.partition() != partition_for(record.key() or b"", 4)]
    assert wrong == []
    assert sorted(record.key() or b"" for record in records) == sorted(keys)


def test_null_key_may_go_anywhere(topic: str, producer: ConfluentProducer, consumer: ConfluentConsumer) -> None:
    for _ in range(100):
        producer.produce(topic, b"v", None, -1, None, 1, None)
    producer.flush(10_000)
    consumer.assign(from_beginning(topic, 0, 1, 2, 3))
    assert {record.key() for record in take(consumer, 100)} == {None}


def test_timestamps_arrive_as_given_zero_included(
    topic: str, producer: ConfluentProducer, consumer: ConfluentConsumer
) -> None:
    producer.track([topic])
    for timestamp_ms in (5, 0, 7, 0, 9):
        producer.produce(topic, b"%d" % timestamp_ms, b"k", 2, None, timestamp_ms, [("h", b"x"), ("h", None)])
    producer.produce(topic, b"by key", b"k", -1, None, 0, None)
    producer.produce(topic, None, None, 3, None, 0, None)
    assert producer.flush(10_000) == 0
    assert producer.acked_offsets()[TopicPartition(topic, 2)] >= 4
    consumer.assign(from_beginning(topic, 0, 1, 2, 3))
    records = take(consumer, 7)
    in_order = [record for record in records if record.partition() == 2 and record.value() != b"by key"]
    assert [record.timestamp() for record in in_order] == [(1, 5), (1, 0), (1, 7), (1, 0), (1, 9)]
    assert all(record.headers() == [("h", b"x"), ("h", None)] for record in in_order)
    (nothing,) = [record for record in records if record.value() is None]
    assert (nothing.timestamp(), nothing.key()) == ((1, 0), None)
    (by_key,) = [record for record in records if record.value() == b"by key"]
    assert (by_key.timestamp(), by_key.partition()) == ((1, 0), partition_for(b"k", 4))


def test_headers_keep_null_empty_duplicate_and_order(
    topic: str, producer: ConfluentProducer, consumer: ConfluentConsumer
) -> None:
    headers = [("b", b"2"), ("a", None), ("b", b""), ("a", b"\x00\xff"), ("ü", b"1")]
    producer.produce(topic, b"v", b"k", 0, None, 1, headers)
    producer.produce(topic, b"v", b"k", 0, None, 1, [])
    producer.flush(10_000)
    consumer.assign(from_beginning(topic, 0, 1, 2, 3))
    with_headers, without = take(consumer, 2)
    assert with_headers.headers() == headers
    assert not without.headers()


def test_back_pressure_loses_nothing_when_the_queue_is_small(
    topic: str, clients: Callable[..., ConfluentClients], consumer: ConfluentConsumer
) -> None:
    producer = clients({"producer.queue.buffering.max.messages": 50, "producer.linger.ms": 5}).producer("t")
    for number in range(5_000):
        producer.produce(topic, b"%d" % number, b"k", 1, None, number + 1, None)
    assert producer.flush(20_000) == 0
    producer.check()
    producer.close()
    consumer.assign(from_beginning(topic, 0, 1, 2, 3))
    assert [record.value() for record in take(consumer, 5_000)] == [b"%d" % number for number in range(5_000)]


def test_acked_offsets_equal_the_log_end_of_tracked_partitions(
    topic: str, producer: ConfluentProducer, clients: Callable[..., ConfluentClients]
) -> None:
    producer.track([topic])
    for number in range(1_000):
        producer.produce(topic, b"v", b"k", number % 3, None, 1, None)
    producer.flush(10_000)
    ends = clients().admin().list_offsets([TopicPartition(topic, number) for number in range(3)])
    assert {partition: offset + 1 for partition, offset in producer.acked_offsets().items()} == ends


def test_record_that_the_broker_refuses_is_a_failure_that_names_it(
    kafka_broker: Broker, topic: str, clients: Callable[..., ConfluentClients]
) -> None:
    small = f"{topic}-small"
    kafka_broker.create_topic(small, 1, config={"max.message.bytes": "1000"})
    producer = clients().producer("t")
    producer.produce(small, b"x" * 5_000, b"k", 0, None, 1, None)
    producer.flush(10_000)
    with pytest.raises(ProductionError, match=f"{small}-0") as raised:
        producer.check()
    assert not raised.value.retriable
    producer.produce(small, b"x", b"k", 0, None, 1, None)
    assert producer.flush(10_000) == 0
    producer.check()
    producer.close()


def test_topic_that_does_not_exist_is_named(clients: Callable[..., ConfluentClients]) -> None:
    producer = clients().producer("t")
    with pytest.raises(StreamsError, match=r"topic no-such-topic does not exist.*create it first"):
        producer.partitions_for("no-such-topic")
    producer.close()


def test_invalid_offset_is_raised_once_and_read_on_after_seek(
    topic: str, producer: ConfluentProducer, consumer: ConfluentConsumer
) -> None:
    partition = TopicPartition(topic, 0)
    producer.produce(topic, b"v", b"k", 0, None, 1, None)
    producer.flush(10_000)
    consumer.assign({partition: 1_000})
    with pytest.raises(OffsetOutOfRangeError) as raised:
        take(consumer, 1)
    assert raised.value.partitions == {partition}
    consumer.seek(partition, BEGINNING)
    assert take(consumer, 1)[0].value() == b"v"


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_position_and_lag_pass_what_a_transaction_leaves_at_the_end(
    kafka_broker: Broker, topic: str, clients: Callable[..., ConfluentClients], isolation: str
) -> None:
    writer = Producer({"bootstrap.servers": kafka_broker.bootstrap, "transactional.id": topic})
    writer.init_transactions(10)
    writer.begin_transaction()
    for _ in range(3):
        writer.produce(topic, b"committed", None, 0)
    writer.commit_transaction(10)
    writer.begin_transaction()
    writer.produce(topic, b"aborted", None, 0)
    writer.flush(10)
    writer.abort_transaction(10)  # the log: 3 records, marker, 1 record, marker
    partition = TopicPartition(topic, 0)
    consumer = clients({"isolation.level": isolation}).restore_consumer("t")
    consumer.assign({partition: BEGINNING})
    visible = 3 if isolation == "read_committed" else 4
    take(consumer, visible)
    poll_until(consumer, lambda: consumer.position(partition) == 6, "the end behind all markers")
    assert (consumer.position(partition), consumer.lag(partition)) == (6, 0)
    consumer.close()


def test_open_transaction_is_no_lag_when_only_committed_records_are_read(
    kafka_broker: Broker, topic: str, clients: Callable[..., ConfluentClients]
) -> None:
    writer = Producer({"bootstrap.servers": kafka_broker.bootstrap, "transactional.id": topic})
    writer.init_transactions(10)
    writer.begin_transaction()
    writer.produce(topic, b"open", None, 0)
    writer.flush(10)
    partition = TopicPartition(topic, 0)
    consumer = clients({"isolation.level": "read_committed"}).main_consumer("t")
    consumer.assign({partition: BEGINNING})
    poll_until(consumer, lambda: consumer.lag(partition) is not None, "a lag")
    assert (consumer.position(partition), consumer.lag(partition)) == (0, 0)
    writer.commit_transaction(10)
    assert take(consumer, 1)[0].value() == b"open"
    consumer.close()


def test_end_is_after_the_last_record(topic: str, producer: ConfluentProducer, consumer: ConfluentConsumer) -> None:
    partition = TopicPartition(topic, 0)
    producer.produce(topic, b"before", b"k", 0, None, 1, None)
    producer.flush(10_000)
    consumer.assign({partition: END})
    poll_until(consumer, lambda: consumer.position(partition) == 1, "the end")
    producer.produce(topic, b"after", b"k", 0, None, 1, None)
    producer.flush(10_000)
    assert take(consumer, 1)[0].value() == b"after"
