"""What every RecordConsumer and RecordProducer does."""

from __future__ import annotations

import time

import pytest

from streams_py.errors import IllegalStateError, OffsetOutOfRangeError
from streams_py.ports import BEGINNING, END
from streams_py.topology.partitioning import partition_for
from tests.support.contract.port_kit import ALL, Opened, part, take, until

pytestmark = pytest.mark.parametrize("cluster", ALL, indirect=True)


def test_record_arrives_as_it_was_sent(opened: Opened) -> None:
    topic, producer, consumer = opened.topic(), opened.producer(), opened.consumer()
    producer.produce(topic, b"value", b"key", 2, None, 1234, [("h", b"1"), ("h", None)])
    producer.produce(topic, None, b"gone", 2, None, 1235, None)
    producer.produce(topic, b"", None, 2, None, 1236, None)
    assert producer.flush(20_000) == 0
    consumer.assign({part(topic, 2): BEGINNING})
    first, second, third = take(consumer, 3)
    assert (first.topic(), first.partition(), first.offset()) == (topic, 2, 0)
    assert (first.key(), first.value(), first.timestamp()[1]) == (b"key", b"value", 1234)
    assert first.headers() == [("h", b"1"), ("h", None)]
    assert (second.key(), second.value(), second.headers()) == (b"gone", None, None)
    assert (third.key(), third.value()) == (None, b"")


def test_timestamp_zero_is_kept_and_minus_one_means_now(opened: Opened) -> None:
    topic, producer, consumer = opened.topic(), opened.producer(), opened.consumer()
    producer.produce(topic, b"a", b"k", 0, None, 0, None)
    producer.produce(topic, b"b", b"k", 0, None, -1, None)
    assert producer.flush(20_000) == 0
    consumer.assign({part(topic): BEGINNING})
    old, new = take(consumer, 2)
    assert old.timestamp()[1] == 0
    assert new.timestamp()[1] > (999_999 if opened.kind == "memory" else time.time() * 1000 - 60_000)


def test_partition_is_chosen_by_murmur2_of_the_key(opened: Opened) -> None:
    topic, producer, consumer = opened.topic(), opened.producer(), opened.consumer()
    keys = [b"key-%d" % number for number in range(40)]
    for key in keys:
        producer.produce(topic, b"v", key, -1, None, 1, None)
    assert producer.flush(20_000) == 0
    consumer.assign({part(topic, number): BEGINNING for number in range(4)})
    assert {r.key(): r.partition() for r in take(consumer, 40)} == {key: partition_for(key, 4) for key in keys}
    assert producer.partitions_for(topic) == 4


def test_order_of_a_partition_is_kept(opened: Opened) -> None:
    topic, consumer = opened.topic(), opened.consumer()
    opened.fill(topic, 3000)
    consumer.assign({part(topic): BEGINNING})
    assert [record.offset() for record in take(consumer, 3000)] == list(range(3000))


def test_acknowledged_offsets_of_tracked_topics_are_known_after_a_flush(opened: Opened) -> None:
    topic, other = opened.topic(), opened.topic()
    producer = opened.producer(topic)
    for number in range(5):
        producer.produce(topic, b"%d" % number, b"k", 1, None, 1, None)
        producer.produce(other, b"%d" % number, b"k", 1, None, 1, None)
    assert producer.flush(20_000) == 0
    assert producer.acked_offsets() == {part(topic, 1): 4}


def test_poll_gives_at_most_so_many_records_and_none_when_there_are_none(opened: Opened) -> None:
    topic, consumer = opened.topic(), opened.consumer()
    opened.fill(topic, 10)
    consumer.assign({part(topic): BEGINNING})
    found: list[object] = []
    while len(found) < 10:
        batch = consumer.poll(3, 50)
        assert len(batch) <= 3
        found += batch
    assert consumer.poll(3, 0) == []


def test_assignment_may_start_at_an_offset_or_the_end(opened: Opened) -> None:
    topic, consumer = opened.topic(), opened.consumer()
    opened.fill(topic, 5)
    opened.fill(topic, 5, partition=1)
    consumer.assign({part(topic): 3, part(topic, 1): END})
    assert sorted((r.partition(), r.offset()) for r in take(consumer, 2)) == [(0, 3), (0, 4)]
    until(lambda: consumer.poll(10, 20) == [] and consumer.position(part(topic, 1)) in (None, 5), "the end")
    opened.fill(topic, 1, partition=1)
    assert [(r.partition(), r.offset()) for r in take(consumer, 1)] == [(1, 5)]


def test_partition_that_stays_is_not_disturbed_by_a_new_assignment(opened: Opened) -> None:
    topic, consumer = opened.topic(), opened.consumer()
    opened.fill(topic, 5)
    opened.fill(topic, 5, partition=1)
    consumer.assign({part(topic): BEGINNING})
    take(consumer, 5)
    consumer.assign({part(topic): None, part(topic, 1): BEGINNING})
    assert {r.partition() for r in take(consumer, 5)} == {1}
    assert consumer.position(part(topic)) == 5
    consumer.assign({part(topic, 1): None})
    opened.fill(topic, 1)
    opened.fill(topic, 1, partition=1)
    assert [(r.partition(), r.offset()) for r in take(consumer, 1)] == [(1, 5)]
    assert consumer.position(part(topic)) is None


def test_new_partition_needs_a_position(opened: Opened) -> None:
    consumer = opened.consumer()
    with pytest.raises(IllegalStateError):
        consumer.assign({part(opened.topic()): None})


def test_paused_partition_delivers_nothing_until_it_is_resumed(opened: Opened) -> None:
    topic, consumer = opened.topic(), opened.consumer()
    opened.fill(topic, 2)
    consumer.assign({part(topic): BEGINNING, part(topic, 1): BEGINNING})
    take(consumer, 2)
    consumer.pause([part(topic)])
    opened.fill(topic, 2)
    opened.fill(topic, 2, partition=1)
    assert {r.partition() for r in take(consumer, 2)} == {1}
    assert consumer.position(part(topic)) == 2
    consumer.resume([part(topic)])
    assert [r.offset() for r in take(consumer, 2)] == [2, 3]


@pytest.mark.parametrize("start", [BEGINNING, END, 4])
def test_partition_that_was_paused_before_it_delivered_is_read_from_where_it_was_sought_while_paused(
    opened: Opened, start: int
) -> None:
    topic, consumer = opened.topic(), opened.consumer()
    opened.fill(topic, 5)
    consumer.assign({part(topic): start})
    consumer.pause([part(topic)])
    consumer.seek(part(topic), 3)
    assert consumer.poll(10, 50) == []
    consumer.resume([part(topic)])
    assert [record.offset() for record in take(consumer, 2)] == [3, 4]


def test_seek_moves_a_partition_and_leaves_the_others(opened: Opened) -> None:
    topic, consumer = opened.topic(), opened.consumer()
    opened.fill(topic, 5)
    opened.fill(topic, 5, partition=1)
    consumer.assign({part(topic): BEGINNING, part(topic, 1): BEGINNING})
    take(consumer, 10)
    consumer.seek(part(topic), 3)
    assert [(r.partition(), r.offset()) for r in take(consumer, 2)] == [(0, 3), (0, 4)]
    assert consumer.position(part(topic, 1)) == 5


def test_position_and_lag_are_known_after_reading(opened: Opened) -> None:
    topic, consumer = opened.topic(), opened.consumer()
    opened.fill(topic, 5)
    consumer.assign({part(topic): BEGINNING})
    take(consumer, 5)
    assert consumer.position(part(topic)) == 5
    until(lambda: consumer.poll(1, 20) == [] and consumer.lag(part(topic)) == 0, "the lag")
    assert consumer.position(part(topic, 3)) is None
    assert consumer.lag(part(topic, 3)) is None


def test_position_of_an_empty_partition_becomes_known(opened: Opened) -> None:
    topic, consumer = opened.topic(), opened.consumer()
    consumer.assign({part(topic): BEGINNING})
    until(lambda: consumer.poll(1, 50) == [] and consumer.position(part(topic)) == 0, "the position")


def test_offset_that_does_not_exist_is_raised_once_and_healed_by_a_seek(opened: Opened) -> None:
    topic, consumer, admin = opened.topic(), opened.consumer(), opened.admin()
    opened.fill(topic, 5)
    admin.delete_records({part(topic): 3})
    until(lambda: admin.list_offsets([part(topic)], earliest=True) == {part(topic): 3}, "deletion")
    consumer.assign({part(topic): 1})
    with pytest.raises(OffsetOutOfRangeError) as caught:
        until(lambda: consumer.poll(10, 50), "the error")
    assert caught.value.partitions == {part(topic)}
    assert consumer.poll(10, 50) == []
    consumer.seek(part(topic), BEGINNING)
    assert [r.offset() for r in take(consumer, 2)] == [3, 4]


def test_closing_twice_is_closing_once(opened: Opened) -> None:
    consumer = opened.consumer()
    consumer.close()
    consumer.close()
