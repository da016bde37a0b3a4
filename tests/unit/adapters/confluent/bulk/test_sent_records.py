"""Which record of a sequence was refused: numbers, and what is sent again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from confluent_kafka import KafkaError

from streams_py.adapters.confluent.bulk.sent_records import SentRecords
from streams_py.errors import ProductionError, RefusedRecord, StreamsError

REFUSED = KafkaError(KafkaError.INVALID_RECORD)


class Message:
    def __init__(self, topic: str, partition: int, value: bytes | None, key: bytes | None) -> None:
        self._fields = topic, partition, value, key

    def topic(self) -> str:
        return self._fields[0]

    def partition(self) -> int:
        return self._fields[1]

    def value(self) -> bytes | None:
        return self._fields[2]

    def key(self) -> bytes | None:
        return self._fields[3]


class Alone:
    """A producer that refuses the records which ``is_bad`` says."""

    def __init__(self, is_bad: Callable[[tuple[Any, ...]], bool]) -> None:
        self.is_bad = is_bad
        self.sent: list[tuple[Any, ...]] = []

    def produce(self, topic: str, value: Any, key: Any, partition: int, report: Any, *rest: Any) -> None:
        record = (topic, partition, value, key, *rest)
        self.sent.append(record)
        if self.is_bad(record):
            report(REFUSED, Message(topic, partition, value, key))

    def flush(self, timeout_ms: int) -> int:
        return 0


def records(is_bad: Callable[[tuple[Any, ...]], bool]) -> tuple[SentRecords, Alone]:
    producer = Alone(is_bad)
    return SentRecords("all", lambda: producer, timeout_ms=1_000), producer  # type: ignore[arg-type, return-value]


def write(sent: SentRecords, *numbers: int, at_once: int = 3) -> None:
    """The caller keeps what makes some records, then sends these."""
    for first in range(0, len(numbers), at_once):
        keep(sent, *(("t", 0, b"v%d" % number, b"k", 5, None) for number in numbers[first : first + at_once]))


def keep(sent: SentRecords, *records: Any) -> None:
    sent.keep(lambda: records)
    sent.number += len(records)


def refuse(sent: SentRecords, *numbers: int) -> None:
    for number in numbers:
        sent.on_refusal(REFUSED, Message("t", 0, b"v%d" % number, b"k"))  # type: ignore[arg-type]  # a message


def test_refused_records_are_sent_alone_and_the_first_that_is_refused_again_is_named() -> None:
    sent, producer = records(lambda record: record[2] in (b"v4", b"v5"))
    write(sent, *range(1, 8))
    refuse(sent, 3, 4, 5, 6)
    for _ in range(2):
        with pytest.raises(StreamsError, match=r"^record 4 of all \(key of 1 bytes\): a record for t-0 was not"):
            sent.check()
    assert [record[2] for record in producer.sent] == [b"v3", b"v4", b"v5", b"v6"], "once"


def test_numbers_go_on_after_records_were_forgotten_and_those_of_an_earlier_attempt() -> None:
    sent, _ = records(lambda record: record[2] == b"v9")
    sent.begin_at(1_000)
    write(sent, *range(6))
    sent.forget()
    write(sent, *range(6, 12))
    refuse(sent, *range(6, 12))
    with pytest.raises(StreamsError, match=r"^record 1,010 of all"):
        sent.check()


def test_records_are_kept_as_long_as_they_may_be_under_way() -> None:
    sent, producer = records(lambda record: record[2] == b"v49900")
    write(sent, *range(50_000), at_once=700)
    sent.forget(but=5_000)
    refuse(sent, 29_999, 30_000, 49_900, 49_901)
    with pytest.raises(StreamsError, match=r"^record 49,901 of all"):
        sent.check()
    assert [record[2] for record in producer.sent] == [b"v30000", b"v49900", b"v49901"], "20,000 are kept"


def test_what_makes_acknowledged_records_is_dropped() -> None:
    sent, _ = records(lambda record: False)
    made = []
    for first in range(0, 40, 10):
        sent.keep(partial(made.append, first))  # type: ignore[arg-type]  # never called
        sent.number += 10
    sent.forget()
    sent.keep(lambda: [("t", 0, b"v", b"k", 5, None)])
    sent.number += 1
    sent.forget()
    refuse(sent, 1)
    with pytest.raises(StreamsError, match="refused 1 records in batches"):
        sent.check()
    assert made == []


def test_records_of_a_batch_that_were_not_sent_yet_are_not_sent_alone() -> None:
    """A transaction may end in the middle of a batch: records before its end are acknowledged."""
    sent, producer = records(lambda record: record[4] == 4)
    sent.begin_at(100)
    sent.keep(lambda: [("t", 0, b"v1", b"k", stamp, None) for stamp in range(1, 7)])
    sent.number += 2
    sent.forget()
    sent.number += 2
    refuse(sent, 1)
    with pytest.raises(StreamsError, match=r"^record 104 of all"):
        sent.check()
    assert [record[4] for record in producer.sent] == [3, 4]


def test_equal_records_with_other_timestamps_are_told_apart_and_text_is_found() -> None:
    sent, _ = records(lambda record: record[4] == 99)
    keep(sent, *(("t", 0, "v", "k", stamp, None) for stamp in (1, 99, 3)))  # as Arrow has text
    sent.on_refusal(REFUSED, Message("t", 0, b"v", b"k"))  # type: ignore[arg-type]  # a message
    with pytest.raises(StreamsError, match=r"^record 2 of all"):
        sent.check()


def test_batch_of_which_no_record_is_refused_alone_is_a_matter_of_its_size() -> None:
    sent, _ = records(lambda record: False)
    write(sent, 1, 2)
    refuse(sent, 1, 2)
    with pytest.raises(
        StreamsError, match=r"refused 2 records in batches, but none of them on its own.*lower batch\.size"
    ):
        sent.check()


@pytest.mark.parametrize(("timestamp_ms", "start"), [(5, "record 1 of all: "), (6, "a record for")])
def test_error_of_the_producer_has_the_number_of_the_record_that_it_names(timestamp_ms: int, start: str) -> None:
    sent, _ = records(lambda record: False)
    write(sent, 1, 2)
    record = RefusedRecord("t", 0, b"k", b"v1", timestamp_ms, ())
    error = ProductionError("a record for t-0 was not written", topic="t", partition=0, record=record)
    assert str(sent.named(error)).startswith(start)
