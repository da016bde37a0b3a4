"""Reading with a consumer until the expected records or answers have come."""

from __future__ import annotations

from collections.abc import Callable

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent.consumer import ConfluentConsumer
from streams_py.ports import BEGINNING, RawRecord
from tests.support.waiting import until


def take(consumer: ConfluentConsumer, count: int) -> list[RawRecord]:
    """The next ``count`` records; fails when they do not come."""
    records: list[RawRecord] = []

    def have_come() -> bool:
        records.extend(consumer.poll(1000, 50))
        return len(records) >= count

    until(have_come, f"{count} records")
    assert len(records) == count, [record.value() for record in records]
    return records


def poll_until(consumer: ConfluentConsumer, condition: Callable[[], bool], what: str) -> None:
    """Poll, expecting no records, until something is known."""

    def is_known() -> bool:
        assert consumer.poll(1000, 20) == []
        return condition()

    until(is_known, what)


def from_beginning(topic: str, *partitions: int) -> dict[TopicPartition, int | None]:
    return {TopicPartition(topic, number): BEGINNING for number in partitions}
