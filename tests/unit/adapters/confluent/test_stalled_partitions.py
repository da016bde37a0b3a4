"""Partitions that deliver nothing while others of the same consumer do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent import consumer as module
from streams_py.adapters.confluent.consumer import ConfluentConsumer
from streams_py.ports import BEGINNING
from tests.support.clocks import FakeTime

FLOWS, STILL = TopicPartition("t", 0), TopicPartition("t", 1)


class Library:
    """Partition 0 delivers a record in each poll; the others stand at 4, and their logs end at ``ends``."""

    def __init__(self, *_: object, **__: object) -> None:
        self.ends: dict[int, int] = {1: 10}
        self.at: dict[int, int] = {1: 4}
        self.flowed = 0
        self.assigned: list[tuple[int, int]] = []
        self.asked: list[int] = []
        self.answers = True
        self.at_once = 1

    def consume(self, count: int, timeout: float) -> list[object]:
        self.flowed += self.at_once
        return [SimpleNamespace(error=lambda: None)] * min(count, self.at_once)

    def get_watermark_offsets(self, asked: Any, **_: object) -> tuple[int, int] | None:
        self.asked.append(asked.partition)
        return (0, self.ends.get(asked.partition, 4)) if self.answers else None

    def position(self, asked: list[confluent_kafka.TopicPartition]) -> list[object]:
        number = asked[0].partition
        return [SimpleNamespace(offset=self.flowed if number == 0 else self.at.get(number, 4))]

    def incremental_assign(self, partitions: list[Any]) -> None:
        self.assigned += [(partition.partition, partition.offset) for partition in partitions]

    def incremental_unassign(self, partitions: list[Any]) -> None: ...
    def list_topics(self, *_: object, **__: object) -> None: ...
    def pause(self, _: object) -> None: ...
    def resume(self, _: object) -> None: ...
    def close(self) -> None: ...


@pytest.fixture
def consumer(clock: FakeTime, monkeypatch: pytest.MonkeyPatch) -> ConfluentConsumer:
    monkeypatch.setattr(module, "Consumer", Library)
    monkeypatch.setattr(module, "_error_of_message", lambda message: message.error())  # messages are fakes
    made = ConfluentConsumer({"bootstrap.servers": "x", "client.id": "c"})
    made.assign({FLOWS: 0, STILL: 4})
    library_of(made).assigned.clear()
    return made


def library_of(consumer: ConfluentConsumer) -> Library:
    return consumer._consumer  # type: ignore[return-value]  # the fake in place of librdkafka


def poll_until(consumer: ConfluentConsumer, clock: FakeTime, until_s: float) -> float | None:
    """Poll every second; when something was put in again or the client replaced, None if nothing was."""
    first, before = library_of(consumer), len(library_of(consumer).assigned)
    while clock.now_s < until_s:
        clock.now_s += 1
        assert consumer.poll(10, 0)
        if library_of(consumer) is not first or len(first.assigned) > before:
            return clock.now_s
    return None


def test_partition_that_stands_still_while_others_flow_is_put_in_again_and_then_the_client_replaced(
    consumer: ConfluentConsumer, clock: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    first = library_of(consumer)
    assert poll_until(consumer, clock, 100) == 65  # seen at 30, doubted at 60, and 5 s later
    assert first.assigned == [(1, 4)]
    assert (
        "t-1 has records from 4 to 10, but none has arrived for a long time although other partitions deliver"
        in caplog.text
    )
    flowed = first.flowed
    assert poll_until(consumer, clock, 300) == 190  # twice as long: seen at 125, doubted at 185
    assert sorted(library_of(consumer).assigned) == [(0, flowed + 125), (1, 4)]
    assert "none has arrived for a long time; continuing with a new client" in caplog.text


def test_partition_that_delivers_after_it_was_put_in_again_is_left_alone(
    consumer: ConfluentConsumer, clock: FakeTime
) -> None:
    assert poll_until(consumer, clock, 100) == 65
    library_of(consumer).at[1] = 10
    assert poll_until(consumer, clock, 1000) is None


def test_nobody_is_asked_about_partitions_that_move(consumer: ConfluentConsumer, clock: FakeTime) -> None:
    library = library_of(consumer)
    for _ in range(200):
        library.at[1] += 1
        assert poll_until(consumer, clock, clock.now_s + 1) is None
    assert library.asked == []


def test_partition_at_its_end_is_asked_about_now_and_then_and_left_alone(
    consumer: ConfluentConsumer, clock: FakeTime
) -> None:
    library = library_of(consumer)
    library.ends[1] = 4
    assert poll_until(consumer, clock, 300) is None
    assert library.asked == [1] * 9


def test_log_that_went_on_a_moment_ago_is_no_reason(consumer: ConfluentConsumer, clock: FakeTime) -> None:
    assert poll_until(consumer, clock, 62) is None
    library_of(consumer).at[1] = library_of(consumer).ends[1] = (
        5  # the record that was written just before the look at 60 s
    )
    assert poll_until(consumer, clock, 100) is None


def test_partitions_whose_records_may_wait_behind_others_are_not_in_doubt(
    consumer: ConfluentConsumer, clock: FakeTime
) -> None:
    """The application is slower than the broker: polls come back full."""
    library_of(consumer).at_once = 10
    assert poll_until(consumer, clock, 1000) is None
    assert library_of(consumer).asked == []


def test_paused_partition_is_not_in_doubt_nor_one_that_was_resumed_a_moment_ago(
    consumer: ConfluentConsumer, clock: FakeTime
) -> None:
    consumer.pause([STILL])
    assert poll_until(consumer, clock, 500) is None
    assert library_of(consumer).asked == []
    consumer.resume([STILL])
    assert poll_until(consumer, clock, 544) is None


@pytest.mark.parametrize("paused_at_s", [31, 61])
def test_time_in_which_nobody_polls_is_no_silence(
    consumer: ConfluentConsumer, clock: FakeTime, paused_at_s: float
) -> None:
    assert poll_until(consumer, clock, paused_at_s) is None
    clock.now_s = 1000
    assert poll_until(consumer, clock, 1005) is None


def test_cluster_that_does_not_answer_is_asked_about_one_partition_only(
    consumer: ConfluentConsumer, clock: FakeTime
) -> None:
    consumer.assign({FLOWS: None, **{TopicPartition("t", number): 4 for number in range(1, 9)}})
    library = library_of(consumer)
    library.answers = False
    assert poll_until(consumer, clock, 61) is None
    assert library.asked == [1]


def test_many_partitions_at_their_end_are_looked_at_in_turn(consumer: ConfluentConsumer, clock: FakeTime) -> None:
    consumer.assign({FLOWS: None, **{TopicPartition("t", number): 4 for number in range(1, 25)}})
    library = library_of(consumer)
    library.assigned.clear()
    library.ends = {23: 9}
    assert poll_until(consumer, clock, 300) == 125
    assert library.assigned == [(23, 4)]
    assert sorted(library.asked) == [*range(1, 23), 23, 23, 24]


def test_stalled_partition_of_which_nothing_was_ever_read_is_put_in_again_at_its_beginning(
    consumer: ConfluentConsumer, clock: FakeTime
) -> None:
    consumer.assign({FLOWS: None, STILL: BEGINNING})
    library = library_of(consumer)
    library.assigned.clear()
    library.at[1] = -1001
    assert poll_until(consumer, clock, 100) == 65
    assert library.assigned == [(1, BEGINNING)]
    assert poll_until(consumer, clock, 300) == 190
