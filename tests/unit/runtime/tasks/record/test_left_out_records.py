"""A rejected record aborts its transaction. The handler is called once, and the next attempt leaves the record out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from streams_py.adapters.confluent.refusals import LeftOutRecords
from streams_py.errors import ProductionError, RefusedRecord, StreamsError, TaskCorruptedError
from streams_py.runtime.tasks.settings.handlers import Answer, DeadLetterQueue, OutgoingRecord
from streams_py.testing.memory_clients import MemoryProducer
from tests.support.runtime.failing import Asked, chain
from tests.support.runtime.task_kit import Kit, record, report_failed


def refused(value: bytes = b"bad", timestamp_ms: int = 7, reason: str = "INVALID_RECORD") -> ProductionError:
    known = RefusedRecord("out", 0, None, value, timestamp_ms, (("h", b"1"),))
    return ProductionError("refused", topic="out", partition=0, record=known, reason=reason, ends_transaction=True)


class InTransactions(MemoryProducer):
    def __init__(self) -> None:
        super().__init__()
        self.left_out: list[tuple[RefusedRecord | None, list[tuple[object, ...]]]] = []

    def leave_out(self, error: ProductionError, instead: Iterable[tuple[object, ...]]) -> None:
        self.left_out.append((error.record, list(instead)))


def test_handler_is_asked_about_all_records_that_ended_the_transaction_and_all_tasks_go_back() -> None:
    producer, handler = InTransactions(), Asked(Answer.CONTINUE)
    kit = Kit(chain(), producer=producer, production_handler=handler)
    errors = [refused(b"%d" % number) for number in range(2_000)]
    report_failed(producer, *errors)
    kit.add(record("x"))
    with pytest.raises(TaskCorruptedError, match="refused; the record is left out"):
        kit.task.process(1)
    assert [outgoing for _, outgoing, _ in handler.calls] == [
        OutgoingRecord("out", None, b"%d" % number, 7, (("h", b"1"),)) for number in range(2_000)
    ]
    assert producer.left_out == [(error.record, []) for error in errors]


def test_nothing_is_left_out_when_the_handler_fails() -> None:
    producer = InTransactions()
    kit = Kit(chain(), producer=producer, production_handler=Asked(Answer.FAIL))
    report_failed(producer, refused())
    kit.add(record("x"))
    with pytest.raises(ProductionError, match=r"refused; to drop such records, set production\.exception"):
        kit.task.process(1)
    assert producer.left_out == []


@pytest.mark.parametrize(("reason", "timestamp_ms"), [("INVALID_RECORD", 7), ("INVALID_TIMESTAMP", -1)])
def test_dead_letter_is_written_in_the_place_of_the_record(reason: str, timestamp_ms: int) -> None:
    producer = InTransactions()
    kit = Kit(chain(), producer=producer, production_handler=DeadLetterQueue("dead").handle)
    report_failed(producer, refused(reason=reason))
    kit.add(record("x"))
    with pytest.raises(TaskCorruptedError):
        kit.task.process(1)
    ((_, (letter,)),) = producer.left_out
    topic, value, key, _, _, at_ms, headers = letter
    assert (topic, key, value, at_ms) == ("dead", None, b"bad", timestamp_ms)
    facts: dict[str, Any] = dict(headers)  # type: ignore[call-overload]  # arguments of produce
    assert facts["h"] == b"1"
    assert facts["__streams.errors.topic"] == b"out"
    assert facts.get("__streams.errors.timestamp") == (b"7" if timestamp_ms < 0 else None)


def test_record_is_left_out_once_for_each_refusal_and_again_after_another_return() -> None:
    books, error = LeftOutRecords(), refused()
    assert error.record is not None
    same = ("out", b"bad", None, 7, [("h", b"1")])
    books.add(error.record, [("letter",)], error)
    assert books.take(*same) is None, "in this round the record was sent already"
    for _ in range(2):
        books.go_back()
        assert books.take("out", b"bad", None, 8, [("h", b"1")]) is None
        assert books.take("out", b"bad", None, 7, None) is None
        assert books.take(*same) == (("letter",),)
        assert books.take(*same) is None
    books.committed()
    books.go_back()
    assert books.take(*same) is None


def test_rounds_that_do_not_help_are_bounded() -> None:
    books = LeftOutRecords()

    def make_differently() -> None:
        for number in range(30):
            error = refused(b"%d" % number)
            assert error.record is not None
            books.add(error.record, (), error)
            books.go_back()

    with pytest.raises(StreamsError, match="refused; the tasks went back to their last commit 20 times"):
        make_differently()


def test_rounds_that_help_are_not_bounded() -> None:
    books = LeftOutRecords()
    for number in range(200):
        for known in range(number):
            assert books.take("out", b"%d" % known, None, 7, [("h", b"1")]) == ()
        error = refused(b"%d" % number)
        assert error.record is not None
        books.add(error.record, (), error)
        books.go_back()
