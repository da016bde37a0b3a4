"""The path of records through a task: order, times, buffers, waiting."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import streams_py
from streams_protocol.types import TopicPartition
from streams_py import StreamsBuilder, serdes
from streams_py.errors import ProcessingError, StreamsError
from streams_py.ports import DirectSend, OffsetAndMetadata
from streams_py.runtime.tasks.record.offset_metadata import OffsetMetadata, encode_offset_metadata
from streams_py.testing.memory_clients import MemoryProducer
from streams_py.topology.declare.processor import Processor, Record
from streams_py.topology.topology import Topology
from tests.support.runtime.task_kit import Kit, record

A, B, IN = TopicPartition("a", 0), TopicPartition("b", 0), TopicPartition("in", 0)


class Upper(Processor[Any, Any, Any, Any]):
    def process(self, record: Record[Any, Any]) -> None:
        self.context.forward(record.with_value(record.value and record.value.upper()))


class Where(Processor[Any, Any, Any, Any]):
    """Forwards the content of the record context."""

    def process(self, record: Record[Any, Any]) -> None:
        at = self.context.record_metadata
        text = f"{at and tuple(at)} stream time {self.context.current_stream_time_ms()}"
        self.context.forward(record.with_value(text))


def pipe(*topics: str, processor: type[Processor[Any, Any, Any, Any]] = Upper, **source: Any) -> Topology:
    topology = Topology()
    topology.add_source("source", topics or ("in",), **source)
    topology.add_processor("node", processor, "source")
    topology.add_sink("sink", "out", "node")
    return topology


def test_process_carries_key_value_timestamp_and_headers_to_the_sink() -> None:
    kit = Kit(pipe())
    kit.add(record("x", at=0, headers=[("h", b"1"), ("h", None)]), record(None, key=None, at=7, offset=1))
    assert kit.task.process(10) == 2
    first, second = kit.producer.sent
    assert (first.key(), first.value(), first.timestamp()[1]) == (b"k", b"X", 0)
    assert first.headers() == [("h", b"1"), ("h", None)]
    assert (second.key(), second.value(), second.timestamp()[1], second.headers()) == (None, None, 7, None)


def test_process_keeps_empty_bytes_apart_from_null() -> None:
    kit = Kit(pipe())
    kit.add(record("", key=""))
    kit.task.process(1)
    assert kit.sent("out") == [(b"", b"", 0)]


def test_process_takes_no_more_than_asked_for() -> None:
    kit = Kit(pipe())
    kit.add(*(record("x", offset=n) for n in range(5)))
    assert [kit.task.process(2) for _ in range(4)] == [2, 2, 1, 0]


def test_process_sets_the_record_context() -> None:
    kit = Kit(pipe(processor=Where))
    kit.add(record("x", at=50, offset=8), record("y", at=20, offset=9))
    kit.task.process(2)
    assert [value for _, value, _ in kit.sent("out")] == [
        b"('in', 0, 8) stream time 50",
        b"('in', 0, 9) stream time 50",
    ]


@pytest.mark.parametrize("topics", [("in",), ("a", "b")])
def test_stream_time_is_the_largest_timestamp_taken(topics: tuple[str, ...]) -> None:
    kit = Kit(pipe(*topics), inputs=topics, max_task_idle_ms=-1)
    assert kit.task.record.stream_time_ms == -1
    kit.add(*(record("x", at=at, offset=n, topic=topics[0]) for n, at in enumerate((5, 9, 3))))
    seen = []
    while kit.task.process(1):
        seen.append(kit.task.record.stream_time_ms)
    assert seen == [5, 9, 9]


def test_stream_time_starts_with_the_largest_committed_partition_time() -> None:
    kit = Kit(pipe("a", "b"), inputs=("a", "b"), max_task_idle_ms=-1, start=False)
    kit.task.initialize()
    kit.task.complete_restoration(
        {
            A: OffsetAndMetadata(3, encode_offset_metadata(OffsetMetadata(70, {"store": 5}))),
            B: OffsetAndMetadata(4, encode_offset_metadata(OffsetMetadata(90, {"store": 3, "other": 1}))),
            IN: None,
        }
    )
    assert kit.task.record.stream_time_ms == 90
    assert kit.task.positions.processor_metadata == {"store": 5, "other": 1}
    kit.add(record("x", topic="a", at=10, offset=3), record("y", topic="b", at=100, offset=4))
    kit.task.process(2)
    committed = kit.task.committable_offsets()
    assert committed[A].metadata == encode_offset_metadata(OffsetMetadata(70, {"store": 5, "other": 1}))
    assert committed[B].metadata == encode_offset_metadata(OffsetMetadata(100, {"store": 5, "other": 1}))


def test_process_takes_the_smallest_timestamp_first_when_there_are_several_partitions() -> None:
    kit = Kit(pipe("a", "b"), inputs=("a", "b"), max_task_idle_ms=-1)
    kit.add(*(record(f"a{at}", topic="a", at=at, offset=n) for n, at in enumerate((10, 5, 30))))
    kit.add(*(record(f"b{at}", topic="b", at=at, offset=n) for n, at in enumerate((7, 20, 25))))
    assert kit.task.process(100) == 6
    assert [value for _, value, _ in kit.sent("out")] == [b"B7", b"A10", b"A5", b"B20", b"B25", b"A30"]


class TestIdling:
    def two_inputs(self, idle_ms: int) -> Kit:
        kit = Kit(pipe("a", "b"), inputs=("a", "b"), max_task_idle_ms=idle_ms)
        kit.add(*(record("x", topic="a", at=n, offset=n) for n in range(4)))
        return kit

    @pytest.mark.parametrize("lag", [None, 1])
    def test_process_waits_when_the_empty_partition_may_have_records(self, lag: int | None) -> None:
        kit = self.two_inputs(0)
        if lag is not None:
            kit.positions.lags[B] = lag
        assert kit.task.process(10) == 0
        kit.clock.advance(1_000_000)
        assert kit.task.process(10) == 0

    def test_process_continues_when_the_empty_partition_is_caught_up(self) -> None:
        kit = self.two_inputs(0)
        kit.positions.lags[B] = 0
        assert kit.task.process(10) == 4

    def test_process_never_waits_when_the_idle_time_is_minus_one(self) -> None:
        assert self.two_inputs(-1).task.process(10) == 4

    def test_process_waits_once_for_a_caught_up_partition(self) -> None:
        kit = self.two_inputs(100)
        kit.positions.lags[B] = 0
        assert kit.task.process(1) == 0
        kit.clock.advance(99)
        assert kit.task.process(1) == 0
        kit.clock.advance(1)
        assert [kit.task.process(1), kit.task.process(1)] == [1, 1]

    def test_process_does_not_wait_longer_when_the_wall_clock_is_set_back(self) -> None:
        kit = self.two_inputs(100)
        kit.positions.lags[B] = 0
        kit.task.process(1)
        kit.clock.now_ms = lambda: kit.clock.time_ms - 3_600_000  # type: ignore[method-assign]
        kit.clock.advance(100)
        assert kit.task.process(1) == 1

    def test_process_waits_again_after_the_partition_delivered(self) -> None:
        kit = self.two_inputs(100)
        kit.positions.lags[B] = 0
        kit.task.process(1)
        kit.clock.advance(100)
        assert kit.task.process(1) == 1
        kit.add(record("late", topic="b", at=0))
        assert kit.task.process(1) == 1  # that record
        assert kit.task.process(1) == 0
        kit.clock.advance(100)
        assert kit.task.process(10) == 3

    def test_process_starts_waiting_again_when_the_lag_became_unknown(self) -> None:
        kit = self.two_inputs(100)
        kit.positions.lags[B] = 0
        kit.task.process(1)
        kit.clock.advance(90)
        del kit.positions.lags[B]
        assert kit.task.process(1) == 0
        kit.positions.lags[B] = 0
        assert kit.task.process(1) == 0
        kit.clock.advance(99)
        assert kit.task.process(1) == 0
        kit.clock.advance(1)
        assert kit.task.process(1) == 1

    def test_process_does_nothing_when_all_partitions_are_empty(self) -> None:
        kit = Kit(pipe("a", "b"), inputs=("a", "b"), max_task_idle_ms=0)
        kit.positions.lags.update({A: 0, B: 0})
        assert kit.task.process(10) == 0


class TestBuffers:
    def test_partition_is_paused_above_the_limit_and_resumed_at_it(self) -> None:
        kit = Kit(pipe(), buffered_records_per_partition=3)
        kit.add(*(record("x", offset=n) for n in range(3)))
        assert kit.task.records.take_to_pause() == frozenset()
        kit.add(*(record("x", offset=n) for n in range(3, 5)))
        assert kit.task.records.take_to_pause() == {IN}
        assert kit.task.records.take_to_pause() == frozenset()
        kit.task.process(1)
        assert kit.task.records.take_to_resume() == frozenset()
        kit.task.process(1)
        assert kit.task.records.take_to_resume() == {IN}
        assert kit.task.records.take_to_resume() == frozenset()

    def test_batch_is_never_cut(self) -> None:
        kit = Kit(pipe(), buffered_records_per_partition=1)
        kit.task.add_records(IN, [record("x", offset=n) for n in range(50)])
        assert kit.task.buffered_records == 50
        assert kit.task.process(100) == 50

    def test_partition_is_not_resumed_when_nobody_had_paused_it(self) -> None:
        kit = Kit(pipe(), buffered_records_per_partition=1)
        kit.task.add_records(IN, [record("x", offset=n) for n in range(5)])
        kit.task.process(5)
        assert kit.task.records.take_to_pause() == frozenset()
        assert kit.task.records.take_to_resume() == frozenset()

    @pytest.mark.parametrize("topics", [("in",), ("in", "b")])
    def test_update_input_partitions_keeps_records_of_those_that_stay(self, topics: tuple[str, ...]) -> None:
        kit = Kit(pipe("in", "b", "c"), inputs=topics, max_task_idle_ms=-1)
        kit.add(record("x"))
        kit.task.update_input_partitions([IN, TopicPartition("c", 0)])
        kit.add(record("y", topic="c", at=5))
        assert kit.task.process(10) == 2
        assert [value for _, value, _ in kit.sent("out")] == [b"X", b"Y"]


class TestTimestamps:
    def test_record_without_timestamp_is_an_error_that_names_it(self) -> None:
        kit = Kit(pipe())
        kit.add(record("x", at=-1, offset=4))
        with pytest.raises(StreamsError, match=r"in-0 at offset 4 has no valid timestamp \(-1\)"):
            kit.task.process(1)

    def test_extractor_gets_the_record_and_the_partition_time(self) -> None:
        calls: list[tuple[Any, ...]] = []

        def extract(*args: Any) -> int:
            calls.append(args)
            return int(args[1])

        kit = Kit(pipe(timestamp_extractor=extract))
        kit.add(record("30", at=1), record("20", at=2, offset=1), record("40", at=3, offset=2))
        kit.task.process(10)
        assert calls == [("k", "30", 1, -1), ("k", "20", 2, 30), ("k", "40", 3, 30)]
        assert [at for _, _, at in kit.sent("out")] == [30, 20, 40]

    def test_record_is_dropped_when_the_extractor_gives_a_negative_time(self) -> None:
        kit = Kit(pipe(timestamp_extractor=lambda key, value, at, known: int(value)))
        kit.add(record("-1"), record("-1", offset=1))
        assert kit.task.process(10) == 0
        assert kit.task.commit_needed
        assert kit.task.committable_offsets()[IN].offset == 2
        assert kit.task.dropped_records == 2

    def test_default_extractor_is_used_when_the_source_has_none(self) -> None:
        kit = Kit(pipe(), default_timestamp_extractor=lambda key, value, at, known: 77)
        kit.add(record("x"))
        kit.task.process(1)
        assert kit.sent("out") == [(b"k", b"X", 77)]

    def test_extractor_that_raises_is_an_error_that_names_the_record(self) -> None:
        kit = Kit(pipe(timestamp_extractor=lambda key, value, at, known: int(value)))
        kit.add(record("soon", offset=3))
        with pytest.raises(ProcessingError, match=r"timestamp extractor failed .*node source.*in-0 at offset 3"):
            kit.task.process(1)

    @pytest.mark.parametrize("given", ["soon", 1.5, None])
    def test_extractor_that_gives_no_number_is_an_error_that_names_the_record(self, given: Any) -> None:
        kit = Kit(pipe(timestamp_extractor=lambda key, value, at, known: given))
        kit.add(record("x", offset=3))
        with pytest.raises(ProcessingError, match=rf"node source.*in-0 at offset 3.*returned {given!r}; .*an int"):
            kit.task.process(1)


def test_pattern_source_reads_what_no_exact_source_reads() -> None:
    import re

    topology = Topology()
    topology.add_source("exact", "plain", value=serdes.STRING)
    topology.add_source("pattern", re.compile("in-.*"), value=serdes.STRING)
    topology.add_processor("node", Upper, ["exact", "pattern"])
    topology.add_sink("sink", "out", "node")
    kit = Kit(topology, inputs=("plain", "in-1"), max_task_idle_ms=-1)
    kit.add(record("p", topic="plain"), record("q", topic="in-1", at=1))
    kit.task.process(10)
    assert [value for _, value, _ in kit.sent("out")] == [b"P", b"Q"]


# -- a consumer that moves its position back -----------------------------------------------------------------------


def test_records_that_come_again_are_neither_processed_nor_committed_again(caplog: pytest.LogCaptureFixture) -> None:
    kit = Kit(pipe())
    kit.add(*(record(f"v{n}", offset=n) for n in range(4)))
    assert kit.task.process(3) == 3
    kit.task.add_records(IN, [record(f"v{n}", offset=n) for n in range(1, 6)])
    assert kit.task.committable_offsets()[IN].offset == 3
    assert kit.task.process(10) == 3
    assert [value for _, value, _ in kit.sent("out")] == [b"V0", b"V1", b"V2", b"V3", b"V4", b"V5"]
    kit.positions.positions[IN] = 6
    assert kit.task.committable_offsets()[IN].offset == 6
    assert "in-0: the consumer delivered 3 of 5 records (offsets 1 to 5) again; ignoring the duplicates" in caplog.text


def test_records_that_come_twice_within_one_answer_are_left_out() -> None:
    kit = Kit(pipe())
    kit.task.add_records(IN, [record(f"v{n}", offset=n) for n in (5, 6, 7, 6, 7, 8)])
    kit.task.process(10)
    assert [value for _, value, _ in kit.sent("out")] == [b"V5", b"V6", b"V7", b"V8"]


def test_what_the_group_has_committed_is_not_taken() -> None:
    kit = Kit(pipe(), start=False)
    kit.task.initialize()
    kit.task.complete_restoration({IN: OffsetAndMetadata(3, "")})
    kit.task.add_records(IN, [record(f"v{n}", offset=n) for n in range(2, 5)])
    kit.task.process(10)
    assert [value for _, value, _ in kit.sent("out")] == [b"V3", b"V4"]


PACKAGE = Path(streams_py.__file__).parent


def calls_of(kit: Kit, count: int, start: int) -> Counter[str]:
    """Process ``count`` records and punctuate; return how often each function of the package was called.

    Fakes of the test kit do not count.
    """
    kit.add(*(record("x", at=1_000, offset=n) for n in range(start, start + count)))
    called: Counter[str] = Counter()

    def note(frame: FrameType, event: str, _: object) -> None:
        file = Path(frame.f_code.co_filename)
        if event == "call" and PACKAGE in file.parents and PACKAGE / "testing" not in file.parents:
            called[frame.f_code.co_qualname] += 1

    sys.setprofile(note)
    try:
        taken = kit.task.process(count)
        kit.task.punctuate()
    finally:
        sys.setprofile(None)
    assert taken == count
    return called


class DirectProducer(MemoryProducer):
    """Has a send function of its own, as the client library has."""

    def __init__(self) -> None:
        super().__init__()
        self.sends: list[tuple[Any, ...]] = []

    def direct(self, topic: str, partition: int = -1) -> DirectSend:
        return DirectSend(lambda *sent: self.sends.append(sent), self.report, [])

    def report(self, error: object, message: object, known: object = None) -> None: ...


def test_sink_tells_the_report_about_headers_only_when_a_record_has_some() -> None:
    producer = DirectProducer()
    kit = Kit(pipe(), producer=producer)
    headers = [("h", b"1")]
    kit.add(record("x", at=5), record("y", at=6, offset=1, headers=headers))
    assert kit.task.process(2) == 2
    plain, headed = producer.sends
    assert plain == ("out", b"X", b"k", -1, producer.report, None, 5, None)
    report = headed[4]
    assert headed == ("out", b"Y", b"k", -1, report, None, 6, headers)
    assert (report.func, report.keywords) == (producer.report, {"known": (6, headers)})


def test_a_batch_and_a_record_cost_only_the_calls_listed_here() -> None:
    """Small batches pay for each call. Add a call to this list only if every batch or record needs it."""
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    builder.stream("in").map_values(str.upper).to("out")
    kit = Kit(builder.build(), producer=DirectProducer())
    calls_of(kit, 1, 0)  # takes the sample of end-to-end latency
    few, many = calls_of(kit, 10, 1), calls_of(kit, 110, 11)
    per_record = ("MapValues.bind.<locals>.process", "_Sink._plain_writer.<locals>.sink")
    assert many - few == dict.fromkeys(per_record, 100)
    assert few - Counter(dict.fromkeys(per_record, 10)) == {
        "ActiveTask.process": 1,
        "Retries.is_paused": 1,
        "RecordLoop.run": 1,
        "RecordLoop._run_one": 1,
        "headers_of_all": 1,
        "RecordQueue.drop": 1,
        "RecordLoop._note_taken": 1,
        "Retries.note_progress": 1,
        "ActiveTask.punctuate": 1,
        "Punctuators.__len__": 1,
        "PunctuationQueue.__len__": 2,
    }
