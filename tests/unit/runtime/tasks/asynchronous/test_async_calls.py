"""Records with asynchronous functions: order, commits, limits, errors, cancellation."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from streams_py import StreamsBuilder, serdes
from streams_py.errors import CallTimeoutError, ProcessingError, TopologyError
from streams_py.runtime.tasks.asynchronous.async_calls import lane_of
from streams_py.runtime.tasks.record.offset_metadata import decode_offset_metadata
from streams_py.runtime.tasks.settings.handlers import Answer, ErrorContext, FailedRecord
from streams_py.topology.declare.nodes import Punctuation, RecordContext
from streams_py.topology.declare.processor import Processor, Record
from tests.support.runtime.async_kit import (
    IN,
    TEXT,
    Service,
    add,
    asking,
    failing,
    offset,
    position,
    until_sent,
    values,
)
from tests.support.runtime.task_kit import Kit
from tests.support.waiting import until


def test_records_of_one_key_keep_their_order_and_others_overtake_them() -> None:
    service = Service()
    kit = asking(service)
    add(kit, ("a", "a1"), ("a", "a2"), ("b", "b1"), (None, "n1"))
    service.answer("a2", "b1", "n1")
    kit.task.process(100)
    until(lambda: len(service.asked) == 3, "the calls")
    until(lambda: (kit.task.process(100), len(values(kit)) == 2)[1], "two answers")
    others = values(kit)
    assert sorted(others) == ["B1", "N1"]
    assert "a2" not in service.asked
    service.answer("a1")
    until_sent(kit, *others, "A1", "A2")


def test_answers_keep_the_order_of_the_records_when_ordered() -> None:
    service = Service()
    kit = asking(service, ordered=True)
    add(kit, ("a", "1"), ("b", "2"), ("c", "3"))
    service.answer("2", "3")
    kit.task.process(100)
    until(lambda: len(service.asked) == 3, "the calls")
    service.answer("1")
    until_sent(kit, "1", "2", "3")


def test_records_keep_key_timestamp_and_headers() -> None:
    service = Service()
    kit = asking(service)
    add(kit, ("a", "x"), ("b", "y"))
    service.answer("y")
    until_sent(kit, "Y")
    service.answer("x")
    until_sent(kit, "Y", "X")
    second, first = kit.producer.sent
    assert (first.key(), first.timestamp()[1], first.headers()) == (b"a", 0, [("h", b"x")])
    assert (second.key(), second.timestamp()[1], second.headers()) == (b"b", 10, [("h", b"y")])


def test_functions_get_key_and_context_of_their_own_record() -> None:
    seen: list[Any] = []

    async def note(key: str, value: str, context: RecordContext) -> str:
        await asyncio.sleep(0)
        seen.append((key, value, context.topic, context.partition, context.offset, context.timestamp, context.headers))
        return value

    builder = StreamsBuilder()
    builder.stream("in", **TEXT).map_values_async(with_context=note).to("out", **TEXT)
    kit = Kit(builder.build())
    add(kit, ("a", "x"), ("b", "y"))
    kit.task.process(100)
    kit.task.await_answers()
    assert seen == [("a", "x", "in", 0, 0, 0, [("h", b"x")]), ("b", "y", "in", 0, 1, 10, [("h", b"y")])]


def test_no_commit_passes_a_record_under_way() -> None:
    service = Service()
    kit = asking(service)
    add(kit, ("a", "1"), ("b", "2"), ("c", "3"))
    service.answer("1", "3")
    until(lambda: (kit.task.process(100), len(values(kit)) == 2)[1], "two answers")
    at = position(kit)
    assert at is not None
    assert at.offset == 1
    assert decode_offset_metadata(at.metadata).partition_time_ms == 10
    kit.task.post_commit(enforce_checkpoint=False, acked={})
    assert kit.task.positions.committed == {IN: 1}
    assert kit.task.commit_needed
    others = values(kit)
    service.answer("2")
    until_sent(kit, *others, "2")
    assert offset(kit) == 3
    kit.task.post_commit(enforce_checkpoint=False, acked={})
    assert not kit.task.commit_needed


def test_taking_records_stops_when_twice_as_many_as_may_run_are_under_way() -> None:
    service = Service()
    kit = asking(service, concurrency=2)
    add(kit, *((str(number), str(number)) for number in range(10)))
    assert kit.task.process(100) == 4
    assert kit.task.process(100) == 0
    until(lambda: len(service.asked) == 2, "the calls")
    assert kit.task.buffered_records == 6
    service.answer(*(str(number) for number in range(10)))
    until(lambda: (kit.task.process(100), len(values(kit)) == 10)[1], "all answers")
    assert sorted(values(kit)) == [str(number) for number in range(10)]


def test_a_record_that_makes_many_does_not_let_the_number_under_way_grow() -> None:
    service = Service()
    builder = StreamsBuilder()
    stream = builder.stream("in", **TEXT).flat_map_values(str.split)
    stream.map_values_async(service.ask, concurrency=4).map_values_async(service.ask, concurrency=1).to("out", **TEXT)
    kit = Kit(builder.build())
    add(kit, *(("k", "a b c d e f") for _ in range(20)))
    kit.task.process(100)
    kit.task.process(100)
    assert kit.task.buffered_records >= 11
    service.answer(*"abcdef", *"ABCDEF")
    until_sent(kit, *"ABCDEF" * 20)


def run_with(
    make: Callable[[Any], Any], answer: Answer = Answer.CONTINUE
) -> tuple[Kit, list[tuple[ErrorContext, FailedRecord | None, Exception]]]:
    caught: list[tuple[ErrorContext, FailedRecord | None, Exception]] = []
    builder = StreamsBuilder()
    make(builder.stream("in", **TEXT)).to("out", **TEXT)
    kit = Kit(builder.build(), **failing(answer, caught))
    add(kit, ("a", "bad"), ("b", "good"))
    kit.task.process(100)
    kit.task.await_answers()
    return kit, caught


def test_errors_go_to_the_processing_handler_with_their_own_record() -> None:
    async def refuse(value: str) -> str:
        await asyncio.sleep(0)
        if value == "bad":
            raise ValueError("no")
        return value

    kit, [(context, failed, error)] = run_with(lambda stream: stream.map_values_async(refuse))
    assert values(kit) == ["good"]
    assert (context.topic, context.offset, context.timestamp_ms) == ("in", 0, 0)
    assert context.raw is not None
    assert context.raw.value() == b"bad"
    assert failed is not None
    assert (failed.key, failed.value) == ("a", "bad")
    assert str(error) == "no"
    assert offset(kit) == 2
    with pytest.raises(ProcessingError, match="offset 0: ValueError: no"):
        run_with(lambda stream: stream.map_values_async(refuse), Answer.FAIL)


@pytest.mark.parametrize("how", [asyncio.CancelledError, SystemExit])
def test_a_call_that_ends_itself_is_an_error_that_names_it(how: type[BaseException]) -> None:
    async def give_up(value: str) -> str:
        await asyncio.sleep(0)
        if value == "bad":
            raise how
        return value

    kit, [(_, _, error)] = run_with(lambda stream: stream.map_values_async(give_up, name="look-up"))
    assert values(kit) == ["good"]
    assert "give_up" in str(error)
    assert "node look-up, task 0_0, for the record with key 'a', from in-0 at offset 0" in str(error)


def test_timeouts_name_function_key_and_record() -> None:
    service = Service()
    service.answer("good")
    kit, [(_, _, error)] = run_with(lambda stream: stream.map_values_async(service.ask, timeout=50))
    assert values(kit) == ["GOOD"]
    assert isinstance(error, CallTimeoutError)
    assert "ask" in str(error)
    assert "key 'a', from in-0 at offset 0, did not answer within 50 ms" in str(error)
    until(lambda: service.cancelled == ["bad"], "the call to be cancelled")


def test_an_answer_that_is_no_pair_is_an_error_of_its_function() -> None:
    async def wrong(key: str, value: str) -> Any:
        await asyncio.sleep(0)
        return 7 if value == "bad" else (value, key)

    kit, [(_, _, error)] = run_with(lambda stream: stream.map_async(wrong, key=serdes.STRING, value=serdes.STRING))
    assert kit.sent("out") == [(b"good", b"b", 10)]
    assert "wrong" in str(error)
    assert "(new_key, new_value)" in str(error)


def test_suspension_cancels_what_is_under_way_and_no_commit_passes_it() -> None:
    service = Service()
    kit = asking(service)
    add(kit, ("a", "1"), ("b", "2"), ("b", "3"))
    service.answer("1")
    until_sent(kit, "1")
    until(lambda: "2" in service.asked, "the call")
    assert kit.task.await_answers(0) == 0
    kit.task.calls.cancel()
    assert offset(kit) == 1
    kit.task.suspend()
    until(lambda: service.cancelled == ["2"], "the call to be cancelled")
    service.answer("2", "3")
    assert offset(kit) == 1
    assert values(kit) == ["1"]
    assert "3" not in service.asked


def test_answers_are_awaited_and_sent_on_before_a_task_is_taken_away() -> None:
    service = Service()
    kit = asking(service)
    add(kit, ("a", "1"), ("b", "2"))
    kit.task.process(100)
    until(lambda: len(service.asked) == 2, "the calls")
    service.answer("1", "2")
    assert kit.task.await_answers(1) == 2
    assert offset(kit) == 2


class Hourly(Processor[Any, Any, Any, Any]):
    def init(self, context: Any) -> None:
        super().init(context)
        context.schedule(1_000, Punctuation.WALL_CLOCK_TIME, lambda _: context.forward(Record("k", "tick", 0)))

    def process(self, record: Record[Any, Any]) -> None:
        pass


def test_what_a_punctuator_made_holds_all_positions_until_it_is_done() -> None:
    service = Service()
    builder = StreamsBuilder()
    stream = builder.stream("in", **TEXT).process(Hourly, **TEXT)
    stream.map_values_async(service.ask).to("out", **TEXT)
    kit = Kit(builder.build())
    add(kit, ("a", "1"))
    kit.task.process(100)
    kit.clock.advance(1_000)
    assert kit.task.punctuate() == 1
    assert kit.task.committable_offsets() == {}
    kit.task.post_commit(enforce_checkpoint=False, acked={})
    add(kit, ("a", "2"), first=1)
    assert kit.task.process(100) == 0
    assert not kit.task.calls.are_drained
    service.answer("tick")
    until_sent(kit, "TICK")
    assert kit.task.calls.are_drained
    assert kit.task.commit_needed, "although records wait: the task takes none before it"
    assert offset(kit) == 1
    kit.task.post_commit(enforce_checkpoint=False, acked={})
    assert kit.task.process(100) == 1


def test_answers_are_something_to_commit_although_nothing_else_was_processed_since_the_last_commit() -> None:
    service = Service()
    kit = asking(service)
    add(kit, ("a", "1"), ("b", "2"))
    assert kit.task.process(1) == 1
    kit.task.post_commit(enforce_checkpoint=False, acked={})
    service.answer("1")
    assert kit.task.await_answers(60_000) == 1
    assert not kit.task.calls.are_running
    assert kit.task.commit_needed
    assert offset(kit) == 1
    kit.task.post_commit(enforce_checkpoint=False, acked={})
    assert not kit.task.commit_needed


def batching(function: Callable[[list[str]], Any], **options: Any) -> Kit:
    builder = StreamsBuilder()
    builder.stream("in", **TEXT).map_batch(function, max_records=3, max_ms=100, **options).to("out", **TEXT)
    return Kit(builder.build())


def test_batches_start_when_they_are_full_or_their_first_record_has_waited() -> None:
    batches: list[list[str]] = []
    threads: set[int] = set()

    def score(given: list[str]) -> list[str]:
        batches.append(given)
        threads.add(threading.get_ident())
        return [value.upper() for value in given]

    kit = batching(score)
    add(kit, *(("k", value) for value in "abcde"))
    until_sent(kit, "A", "B", "C")
    kit.task.process(100)
    assert offset(kit) == 3
    kit.clock.advance(100)
    until_sent(kit, *"ABCDE")
    assert batches == [["a", "b", "c"], ["d", "e"]]
    assert threading.get_ident() not in threads
    assert offset(kit) == 5


def test_batches_may_be_coroutines() -> None:
    async def score(given: list[str]) -> tuple[str, ...]:
        await asyncio.sleep(0)
        return tuple(value.upper() for value in given)

    kit = batching(score)
    add(kit, *(("k", value) for value in "abcdef"))
    until_sent(kit, *"ABCDEF")


def test_batches_may_ask_where_their_records_come_from() -> None:
    def place(given: list[tuple[str, str, RecordContext]]) -> list[str]:
        return [f"{key} {value} {record.topic}-{record.partition}-{record.offset}" for key, value, record in given]

    builder = StreamsBuilder()
    builder.stream("in", **TEXT).map_batch(with_context=place, max_records=2, max_ms=100).to("out", **TEXT)
    kit = Kit(builder.build())
    add(kit, ("a", "1"), ("b", "2"))
    until_sent(kit, "a 1 in-0-0", "b 2 in-0-1")


def test_a_batch_has_one_function() -> None:
    stream: Any = StreamsBuilder().stream("in", **TEXT)
    with pytest.raises(TopologyError, match="map_batch needs one function"):
        stream.map_batch(list, with_context=list, max_records=2, max_ms=100)


@pytest.mark.parametrize("answers", [["1"], ["1", "2", "3", "4"], None])
def test_a_batch_with_another_number_of_answers_is_an_error_of_each_record(answers: Any) -> None:
    def score(given: list[str]) -> Any:
        return answers

    _, caught = run_with(lambda stream: stream.map_batch(score, max_records=3, max_ms=100))
    assert [context.offset for context, _, _ in caught] == [0, 1]
    assert all("score" in str(error) and "of a batch of 2, returned" in str(error) for _, _, error in caught)


def test_batches_that_take_too_long_are_errors_that_name_the_function() -> None:
    done = threading.Event()

    def score(given: list[str]) -> list[str]:
        done.wait()
        return given

    _, caught = run_with(lambda stream: stream.map_batch(score, max_records=3, max_ms=100, timeout=50))
    done.set()
    assert [type(error) for _, _, error in caught] == [CallTimeoutError] * 2
    assert "score" in str(caught[0][2])


def test_lanes_of_equal_keys_are_equal_also_when_keys_cannot_be_hashed() -> None:
    assert lane_of({"a": [1, {"b": 2}], "c": 3}) == lane_of({"c": 3, "a": [1, {"b": 2}]})
    assert lane_of({"a": 1}) != lane_of({"a": 2})
    assert hash(lane_of({"a": [1, {"b": bytearray(b"x")}]}))
