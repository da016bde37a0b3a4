"""The record consumer on librdkafka's mock cluster."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent import ConfluentClients
from streams_py.adapters.confluent.consumer import ConfluentConsumer
from streams_py.adapters.confluent.embedded.mock_library import MockCluster
from streams_py.adapters.confluent.producer import ConfluentProducer
from streams_py.errors import IllegalStateError, OffsetOutOfRangeError
from streams_py.ports import BEGINNING, END, RawRecord
from tests.support.confluent.consuming import from_beginning, poll_until, take
from tests.support.waiting import until


def write(producer: ConfluentProducer, topic: str, partition: int, *values: bytes) -> None:
    for value in values:
        producer.produce(topic, value, b"k", partition)
    assert producer.flush(5_000) == 0
    producer.check()


def client_of(consumer: ConfluentConsumer) -> Consumer:
    return consumer._consumer  # it is replaced behind the public methods


def values(records: list[RawRecord]) -> list[bytes | None]:
    return [record.value() for record in records]


def test_records_of_all_assigned_partitions_are_delivered_in_order(
    topic: str, producer: ConfluentProducer, consumer: ConfluentConsumer
) -> None:
    write(producer, topic, 0, b"a", b"b")
    write(producer, topic, 1, b"x", b"y")
    consumer.assign(from_beginning(topic, 0, 1, 2))
    records = take(consumer, 4)
    assert values([record for record in records if record.partition() == 0]) == [b"a", b"b"]
    assert values([record for record in records if record.partition() == 1]) == [b"x", b"y"]


def test_position_none_keeps_a_partition_undisturbed_when_others_come_and_go(
    topic: str, producer: ConfluentProducer, consumer: ConfluentConsumer
) -> None:
    kept, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    write(producer, topic, 0, b"a", b"b")
    write(producer, topic, 1, b"x")
    consumer.assign({kept: 1, other: 0})
    take(consumer, 2)
    consumer.assign({kept: None})
    write(producer, topic, 0, b"c")
    write(producer, topic, 1, b"not read")
    assert values(take(consumer, 1)) == [b"c"]
    assert consumer.position(other) is None


def test_prefetched_records_of_a_removed_partition_are_not_delivered(
    topic: str, producer: ConfluentProducer, consumer: ConfluentConsumer
) -> None:
    write(producer, topic, 0, *[b"old"] * 50)
    write(producer, topic, 1, *[b"new"] * 50)
    consumer.assign(from_beginning(topic, 0))
    assert consumer.poll(1, 5_000)  # the other 49 wait in the client now
    consumer.assign(from_beginning(topic, 1))
    assert set(values(take(consumer, 50))) == {b"new"}


def test_unknown_position_is_refused_when_the_partition_is_not_assigned(
    topic: str, consumer: ConfluentConsumer
) -> None:
    with pytest.raises(IllegalStateError, match="needs a position"):
        consumer.assign({TopicPartition(topic, 0): None})
    with pytest.raises(IllegalStateError, match="is not assigned"):
        consumer.seek(TopicPartition(topic, 0), 0)


def test_seek_goes_back_and_to_the_beginning(
    topic: str, producer: ConfluentProducer, consumer: ConfluentConsumer
) -> None:
    partition = TopicPartition(topic, 0)
    write(producer, topic, 0, b"a", b"b", b"c")
    consumer.assign({partition: END})
    poll_until(consumer, lambda: consumer.position(partition) == 3, "end known")
    consumer.seek(partition, 1)
    assert consumer.position(partition) == 1
    assert values(take(consumer, 2)) == [b"b", b"c"]
    consumer.seek(partition, BEGINNING)
    assert values(take(consumer, 3)) == [b"a", b"b", b"c"]


def test_paused_partition_delivers_nothing_until_it_is_resumed(
    topic: str, producer: ConfluentProducer, consumer: ConfluentConsumer
) -> None:
    paused, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    write(producer, topic, 0, *[b"paused"] * 20)
    write(producer, topic, 1, b"other")
    consumer.assign({paused: 0, other: 0})
    first = consumer.poll(5, 5_000)
    consumer.pause([paused])
    rest = 1 - values(first).count(b"other")
    if rest:
        assert values(take(consumer, rest)) == [b"other"]
    consumer.seek(paused, consumer.position(paused) or 0)  # stays paused
    write(producer, topic, 1, b"other")
    assert values(take(consumer, 1)) == [b"other"]
    consumer.resume([paused])
    assert len(take(consumer, 20 - values(first).count(b"paused"))) == 20 - values(first).count(b"paused")


def test_position_and_lag_are_unknown_until_the_first_fetch(topic: str, consumer: ConfluentConsumer) -> None:
    partition = TopicPartition(topic, 0)
    consumer.assign({partition: BEGINNING})
    assert (consumer.position(partition), consumer.lag(partition)) == (None, None)
    poll_until(consumer, lambda: consumer.lag(partition) == 0, "lag of an empty partition")
    assert consumer.position(partition) == 0


def test_lag_counts_records_that_are_not_delivered_yet(
    topic: str, producer: ConfluentProducer, consumer: ConfluentConsumer
) -> None:
    partition = TopicPartition(topic, 0)
    write(producer, topic, 0, *[b"v"] * 10)
    consumer.assign({partition: 0})
    assert len(consumer.poll(4, 5_000)) >= 1
    assert (consumer.position(partition) or 0) + (consumer.lag(partition) or 0) == 10


def test_lag_is_unknown_again_after_a_new_position(
    topic: str, producer: ConfluentProducer, consumer: ConfluentConsumer
) -> None:
    partition = TopicPartition(topic, 0)
    write(producer, topic, 0, b"a")
    consumer.assign({partition: 0})
    take(consumer, 1)
    consumer.assign({})
    consumer.assign({partition: 1})
    assert consumer.position(partition) == 1
    assert consumer.lag(partition) is None


def test_invalid_position_is_raised_with_its_partitions_and_read_on_after_seek(
    topic: str, producer: ConfluentProducer, consumer: ConfluentConsumer
) -> None:
    bad, good = TopicPartition(topic, 0), TopicPartition(topic, 1)
    write(producer, topic, 0, b"a")
    write(producer, topic, 1, b"x")
    consumer.assign({bad: 500, good: 0})
    records: list[RawRecord] = []
    invalid: list[tuple[frozenset[TopicPartition], str]] = []

    def read() -> bool:
        try:
            records.extend(consumer.poll(100, 20))
        except OffsetOutOfRangeError as error:
            invalid.append((error.partitions, str(error)))
        return bool(invalid and records)

    until(read, "the error and the record of the other partition")
    for _ in range(20):
        read()
    reason = f"{bad}: offset 500 was never written; the log ends at 1"
    assert invalid == [({bad}, reason)]  # told once
    assert values(records) == [b"x"]  # and the others are not held up
    consumer.seek(bad, BEGINNING)
    assert values(take(consumer, 1)) == [b"a"]


def test_poll_returns_at_once_when_there_are_fewer_records_than_asked_for(
    topic: str, producer: ConfluentProducer, consumer: ConfluentConsumer
) -> None:
    write(producer, topic, 0, b"a")
    consumer.assign(from_beginning(topic, 0))
    assert values(consumer.poll(1_000, 600_000)) == [b"a"]  # waiting for a thousand would end the test's time


def test_reading_goes_on_when_the_broker_was_away(
    cluster: MockCluster,
    topic: str,
    producer: ConfluentProducer,
    consumer: ConfluentConsumer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    write(producer, topic, 0, b"a")
    consumer.assign(from_beginning(topic, 0))
    take(consumer, 1)
    cluster.stop_broker(1)
    try:
        for _ in range(20):
            assert consumer.poll(100, 50) == []
    finally:
        cluster.start_broker(1)
    write(producer, topic, 0, b"b")
    assert values(take(consumer, 1)) == [b"b"]
    logged = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert all(line.startswith(f"cluster {cluster.bootstrap} unreachable for ") for line in logged)
    assert len(logged) <= 1


def test_reading_goes_on_with_a_new_client_when_one_falls_silent(
    topic: str, producer: ConfluentProducer, consumer: ConfluentConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(producer, topic, 0, b"a", b"b")
    write(producer, topic, 1, b"x")
    consumer.assign(from_beginning(topic, 0, 1))
    take(consumer, 3)
    write(producer, topic, 0, b"c")
    write(producer, topic, 1, b"y")
    silent = client_of(consumer)
    monkeypatch.setattr(consumer, "_consume", lambda count, timeout: [])  # librdkafka's defect cannot be caused
    monkeypatch.setattr(consumer._silence, "is_due", lambda waited_s: True)  # after 30 s
    assert consumer.poll(100, 0) == []
    assert client_of(consumer) is silent, "one look is not enough"
    assert consumer.poll(100, 0) == []
    assert client_of(consumer) is not silent
    monkeypatch.undo()
    monkeypatch.setattr(consumer, "_consume", client_of(consumer).consume)  # see above
    assert sorted(value or b"" for value in values(take(consumer, 2))) == [b"c", b"y"]


def test_close_is_quiet_when_repeated(clients: ConfluentClients) -> None:
    consumer = clients.restore_consumer("t")
    consumer.close()
    consumer.close()
