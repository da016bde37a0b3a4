"""Facts about confluent-kafka and librdkafka's mock cluster that this library relies on, one per test.

A failure here after an upgrade is not yet a defect of this library. It names the assumption that has to be checked.
Facts about Apache Kafka itself are with the broker tests.
"""

from __future__ import annotations

import gc
import time
from operator import methodcaller
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # exports unmarked

from streams_py.adapters.confluent.embedded.mock_library import MockCluster
from tests.support.wire_records import WireRecord, write_records


def reader(cluster: MockCluster, **settings: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "reader",
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
        }
        | {key.replace("_", "."): value for key, value in settings.items()}
    )


def write(cluster: MockCluster, topic: str, *values: bytes, timestamp_ms: int = 1) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for value in values:
        producer.produce(topic, value, None, 0, None, None, timestamp_ms, None)
    assert producer.flush(60) == 0


def events(consumer: Consumer, count: int) -> list[Message]:
    found: list[Message] = []
    limit = time.monotonic() + 90
    while len(found) < count:
        assert time.monotonic() < limit, found
        found += consumer.consume(1, 0.1)
    return found


# -- confluent-kafka ---------------------------------------------------------------------------------------------------


def test_tested_version_is_installed() -> None:
    assert str(confluent_kafka.version()).startswith("2.16.")
    assert confluent_kafka.libversion()[0].startswith("2.16.")


def test_position_after_an_end_of_partition_event_is_its_offset(cluster: MockCluster, topic: str) -> None:
    """Some versions said one more (librdkafka's issue 4844): the reader would pass over the next record."""
    write(cluster, topic, b"1", b"2")
    consumer = reader(cluster)
    consumer.assign([TopicPartition(topic, 0, 0)])
    *_, end = events(consumer, 3)
    error = end.error()
    assert error is not None
    assert error.code() == KafkaError._PARTITION_EOF
    assert end.offset() == consumer.position([TopicPartition(topic, 0)])[0].offset == 2
    consumer.close()


def test_headers_fail_with_the_first_name_that_is_not_utf_8_and_leave_a_hole(cluster: MockCluster, topic: str) -> None:
    headers = [(b"a\xff", b"1"), (b"b", b"2"), (b"\xfe", None)]
    write_records(cluster.bootstrap, topic, [WireRecord(None, b"v", headers=headers)])
    consumer = reader(cluster)
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = events(consumer, 1)[0]
    consumer.close()
    with pytest.raises(SystemError) as failed:
        methodcaller("headers")(message)
    cause: BaseException | None = failed.value
    while isinstance(cause, SystemError):
        cause = cause.__cause__
    assert isinstance(cause, UnicodeDecodeError)
    assert cause.object == b"a\xff"
    again = message.headers() or []
    assert [gc.get_referents(header) for header in again] == [[b"1"], [b"2", "b"], [None]]


def test_header_name_ends_at_nul(cluster: MockCluster, topic: str) -> None:
    write_records(cluster.bootstrap, topic, [WireRecord(None, b"v", headers=[(b"a\0b", b"1"), (b"\0", b"2")])])
    consumer = reader(cluster)
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert events(consumer, 1)[0].headers() == [("a", b"1"), ("", b"2")]
    consumer.close()


def test_only_the_first_of_two_report_functions_counts_when_both_stand_by_position(
    cluster: MockCluster, topic: str
) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    called: list[str] = []
    producer.produce(topic, b"v", None, 0, lambda *_: called.append("callback"), None, 1, None)
    producer.produce(topic, b"v", None, 0, None, lambda *_: called.append("on_delivery"), 1, None)
    producer.flush(10)
    assert called == ["callback"]


def test_method_of_a_dict_takes_reports(cluster: MockCluster, topic: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    reports: dict[KafkaError | None, Message | None] = {None: None}
    for _ in range(5):
        producer.produce(topic, b"v", None, 0, reports.__setitem__, None, 1, None)
    producer.flush(10)
    assert list(reports) == [None]
    last = reports[None]
    assert last is not None
    assert (last.partition(), last.offset()) == (0, 4)


def test_errors_hash_by_code() -> None:
    one, same, other = KafkaError(1, "a"), KafkaError(1, "b"), KafkaError(2, "a")
    assert {one: 1, same: 2, other: 3} == {one: 2, other: 3}


def test_timestamp_zero_becomes_the_clock_and_minus_one_stays(cluster: MockCluster, topic: str) -> None:
    write(cluster, topic, b"v", timestamp_ms=0)
    write(cluster, topic, b"v", timestamp_ms=-1)
    consumer = reader(cluster)
    consumer.incremental_assign([TopicPartition(topic, 0, 0)])
    zero, minus_one = events(consumer, 2)
    assert zero.timestamp()[1] > 1_600_000_000_000
    assert minus_one.timestamp()[1] == -1
    consumer.close()


def test_consume_waits_its_whole_time_for_the_rest(cluster: MockCluster, topic: str) -> None:
    write(cluster, topic, b"v")
    consumer = reader(cluster, enable_partition_eof=False)
    consumer.incremental_assign([TopicPartition(topic, 0, 0)])
    began_s = time.monotonic()
    assert len(consumer.consume(1_000, 1.0)) == 1
    assert time.monotonic() - began_s > 0.9
    consumer.close()


def test_end_of_partition_is_a_message_with_the_end_offset(cluster: MockCluster, topic: str) -> None:
    write(cluster, topic, b"a", b"b")
    consumer = reader(cluster)
    consumer.incremental_assign([TopicPartition(topic, 0, 0)])
    end = events(consumer, 3)[2]
    error = end.error()
    assert error is not None
    assert (error.code(), end.topic(), end.partition(), end.offset()) == (KafkaError._PARTITION_EOF, topic, 0, 2)
    consumer.close()


def test_seek_is_refused_after_an_invalid_offset(cluster: MockCluster, topic: str) -> None:
    consumer = reader(cluster)
    consumer.incremental_assign([TopicPartition(topic, 0, 99)])
    (event,) = events(consumer, 1)
    error = event.error()
    assert error is not None
    assert error.code() == KafkaError._AUTO_OFFSET_RESET
    with pytest.raises(KafkaException, match="Erroneous state"):
        consumer.seek(TopicPartition(topic, 0, 0))
    consumer.close()


def test_end_offset_of_an_earlier_assignment_is_remembered(cluster: MockCluster, topic: str) -> None:
    write(cluster, topic, b"a")
    consumer = reader(cluster)
    consumer.incremental_assign([TopicPartition(topic, 0, 0)])
    events(consumer, 2)
    consumer.incremental_unassign([TopicPartition(topic, 0)])
    consumer.incremental_assign([TopicPartition(topic, 0, 0)])
    assert consumer.position([TopicPartition(topic, 0)])[0].offset == confluent_kafka.OFFSET_INVALID
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), cached=True)[1] == 1
    consumer.close()


# -- the mock cluster: why the embedded default refuses what it refuses ------------------------------------------------


def test_mock_shows_open_and_aborted_transactions_to_everybody(cluster: MockCluster, topic: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "facts"})
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce(topic, b"aborted", None, 0)
    producer.flush(10)
    producer.abort_transaction(10)
    consumer = reader(cluster, isolation_level="read_committed")
    consumer.incremental_assign([TopicPartition(topic, 0, 0)])
    assert events(consumer, 1)[0].value() == b"aborted"
    consumer.close()


def test_mock_lets_a_fenced_producer_commit(cluster: MockCluster, topic: str) -> None:
    producers = [Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "zombie"}) for _ in range(2)]
    producers[0].init_transactions(10)
    producers[0].begin_transaction()
    producers[0].produce(topic, b"v", None, 0)
    producers[1].init_transactions(10)
    producers[0].commit_transaction(10)


def test_mock_creates_a_topic_that_is_asked_for_by_name(cluster: MockCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    assert len(admin.list_topics("asked-for", timeout=5).topics["asked-for"].partitions) == 4
    assert "asked-for" in admin.list_topics(timeout=5).topics


def test_mock_has_no_request_to_create_topics(cluster: MockCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    (future,) = admin.create_topics([NewTopic("t", 1, 1)], request_timeout=0.3).values()
    with pytest.raises(KafkaException, match="waiting for controller"):
        future.result(5)
