"""Handling of records that cannot be read, processed or written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streams_protocol.types import TaskId
from streams_py import StreamsBuilder, serdes
from streams_py.errors import (
    BrokerUnavailableError,
    ConfigError,
    DeserializationError,
    ProcessingError,
    StateStoreMigratedError,
    StreamsError,
    TimeoutExceededError,
    TopologyError,
)
from streams_py.runtime.tasks.settings.handlers import (
    Answer,
    DeadLetterQueue,
    ErrorContext,
    FailedRecord,
    log_and_continue,
)
from streams_py.state.opening.stores import open_store
from streams_py.testing.memory_clients import MemoryProducer, MemoryRecord
from streams_py.topology.declare.nodes import (
    NodeContext,
    Process,
    ProcessorNode,
    Punctuation,
    RecordContext,
    SourceNode,
)
from streams_py.topology.declare.processor import Processor, Record
from streams_py.topology.declare.stores import key_value_store
from streams_py.topology.physical.assembly import TopologyAssembly
from streams_py.topology.topology import Topology
from tests.support.runtime.failing import IN, Asked, Forwarding, Picky, Unreachable, chain
from tests.support.runtime.task_kit import Kit, record


class TestReading:
    @pytest.mark.parametrize("topics", [("in",), ("in", "b")])
    def test_undecodable_record_is_an_error_that_names_everything(self, topics: tuple[str, ...]) -> None:
        topology = Topology()
        topology.add_source("source", topics, key=serdes.STRING, value=serdes.INT32)
        kit = Kit(topology, inputs=topics, max_task_idle_ms=-1)
        kit.add(record("x", offset=6))
        with pytest.raises(DeserializationError) as caught:
            kit.task.process(1)
        text = str(caught.value)
        for part in ("node source", "task 0_0", "in-0 at offset 6", "'int32'", "1 bytes", "value of topic 'in'"):
            assert part in text
        assert kit.task.committable_offsets() == {}

    def test_undecodable_key_is_named_as_the_key(self) -> None:
        topology = Topology()
        topology.add_source("source", "in", key=serdes.INT64, value=serdes.STRING)
        kit = Kit(topology)
        kit.add(record("x"))
        with pytest.raises(DeserializationError, match="key of topic 'in': serde 'int64'") as raised:
            kit.task.process(1)
        assert "the key serde that the topic was written with. To drop such records, set " in str(raised.value)

    @pytest.mark.parametrize("topics", [("in",), ("in", "b")])
    def test_undecodable_record_is_passed_over_when_the_handler_continues(self, topics: tuple[str, ...]) -> None:
        topology = Topology()
        topology.add_source("source", topics, key=serdes.STRING, value=serdes.JSON)
        topology.add_sink("sink", "out", "source", value=serdes.JSON)
        handler = Asked(Answer.CONTINUE)
        kit = Kit(topology, inputs=topics, max_task_idle_ms=-1, deserialization_handler=handler)
        kit.add(record("{", offset=0), record("[1]", offset=1), record("]", offset=2))
        while kit.task.process(1):
            pass
        assert [value for _, value, _ in kit.sent("out")] == [b"[1]"]
        assert kit.task.committable_offsets()[IN].offset == 3
        assert kit.task.dropped_records == 2
        context, raw, error = handler.calls[0]
        assert (context.topic, context.partition, context.offset, context.node) == ("in", 0, 0, "source")
        assert isinstance(raw, MemoryRecord)
        assert isinstance(error, ValueError)

    def test_undecodable_record_goes_to_the_dead_letter_topic(self) -> None:
        topology = Topology()
        topology.add_source("source", "in", value=serdes.INT32)
        kit = Kit(topology, deserialization_handler=DeadLetterQueue("dead").handle)
        kit.add(record("x", at=9, offset=3, headers=[("h", b"1")]))
        kit.task.process(1)
        (letter,) = kit.producer.sent
        assert (letter.topic(), letter.key(), letter.value(), letter.timestamp()[1]) == ("dead", b"k", b"x", 9)
        headers = dict(letter.headers() or ())
        assert headers["h"] == b"1"
        assert headers["__streams.errors.offset"] == b"3"


class TestProcessing:
    def test_error_of_a_processor_names_node_and_record(self) -> None:
        kit = Kit(chain())
        kit.add(record("bad", offset=5))
        with pytest.raises(
            ProcessingError, match=r"node inner, task 0_0, input record in-0 at offset 5.*cannot stand it"
        ):
            kit.task.process(1)

    def test_error_names_the_line_of_the_function_that_the_library_called(self) -> None:
        line = Picky.process.__code__.co_firstlineno + 2
        kit = Kit(chain())
        kit.add(record("bad"))
        with pytest.raises(ProcessingError, match=rf"ValueError: cannot stand it \(.*failing\.py:{line}\)$"):
            kit.task.process(1)

    @pytest.mark.parametrize("value", ["{", "[]"])
    def test_error_of_a_fused_function_names_its_line_and_not_that_of_a_library(self, value: str) -> None:
        def name_of(text: str) -> str:
            return json.loads(text)["name"]  # type: ignore[no-any-return]

        builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
        texts = builder.stream("in").filter(lambda _, text: text != "")
        texts.map_values(name_of).map_values(str.upper).to("out")
        line = name_of.__code__.co_firstlineno + 1
        kit = Kit(builder.build())
        kit.add(record(value))
        with pytest.raises(ProcessingError, match=rf"Error: .* \(.*test_failures\.py:{line}\)$"):
            kit.task.process(1)

    def test_error_of_a_function_that_is_not_pythons_names_no_line(self) -> None:
        builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
        builder.stream("in").map_values(int).to("out")
        kit = Kit(builder.build())
        kit.add(record("x"))
        with pytest.raises(ProcessingError, match=r"ValueError: invalid literal for int\(\) with base 10: 'x'$"):
            kit.task.process(1)

    def test_innermost_node_reports_once(self) -> None:
        handler = Asked(Answer.FAIL)
        kit = Kit(chain(), processing_handler=handler)
        kit.add(record("bad", at=8, headers=[("h", b"1")]))
        with pytest.raises(ProcessingError):
            kit.task.process(1)
        ((context, failed, error),) = handler.calls
        assert (context.node, context.task_id, context.timestamp_ms) == ("inner", TaskId(0, 0), 8)
        assert failed == FailedRecord("k", "bad", 8, (("h", b"1"),)) or failed.headers == [("h", b"1")]
        assert isinstance(error, ValueError)

    def test_failed_record_is_not_consumed(self) -> None:
        kit = Kit(chain())
        kit.add(record("good", offset=0), record("bad", offset=1), record("good", offset=2))
        with pytest.raises(ProcessingError):
            kit.task.process(3)
        assert kit.task.committable_offsets()[IN].offset == 1

    def test_failed_record_is_dropped_when_the_handler_continues(self) -> None:
        kit = Kit(chain(), processing_handler=log_and_continue)
        kit.add(record("bad", offset=0), record("good", offset=1))
        assert kit.task.process(2) == 2
        assert kit.sent("out") == [(b"k", b"good", 0)]
        assert kit.task.dropped_records == 1
        assert kit.task.committable_offsets()[IN].offset == 2

    def test_processing_handler_can_write_the_input_record_to_a_dead_letter_topic(self) -> None:
        kit = Kit(chain(), processing_handler=DeadLetterQueue("dead").handle)
        kit.add(record("bad"))
        kit.task.process(1)
        assert kit.sent("dead") == [(b"k", b"bad", 0)]

    def test_handler_that_raises_ends_processing_whatever_it_would_answer(self) -> None:
        def broken(context: ErrorContext, record: object, error: Exception) -> Answer:
            raise RuntimeError("bug")

        kit = Kit(chain(), processing_handler=broken)
        kit.add(record("bad"))
        with pytest.raises(StreamsError, match="itself raised RuntimeError"):
            kit.task.process(1)

    def test_punctuator_error_goes_to_the_handler_without_a_record(self) -> None:
        class Ticking(Forwarding):
            def init(self, context: Any) -> None:
                super().init(context)
                context.schedule(10, Punctuation.WALL_CLOCK_TIME, self.tick)

            def tick(self, now_ms: int) -> None:
                raise ValueError("tick")

        topology = Topology()
        topology.add_source("source", "in").add_processor("ticking", Ticking, "source")
        handler = Asked(Answer.CONTINUE)
        kit = Kit(topology, processing_handler=handler)
        kit.clock.advance(10)
        assert kit.task.punctuate() == 1
        ((context, failed, _),) = handler.calls
        assert failed is None
        assert (context.topic, context.partition, context.offset, context.node) == (None, -1, -1, "ticking")
        handler.answer = Answer.FAIL
        kit.clock.advance(10)
        with pytest.raises(ProcessingError, match="a punctuator failed in node ticking, task 0_0: ValueError: tick"):
            kit.task.punctuate()

    def test_unconnected_store_is_an_error_that_says_what_to_do(self) -> None:
        class Nosy(Forwarding):
            def init(self, context: Any) -> None:
                context.get_state_store("secret")

        topology = Topology()
        topology.add_source("source", "in").add_processor("nosy", Nosy, "source")
        with pytest.raises(
            TopologyError, match=r"processor nosy is not connected to a store 'secret' \(connected: none\)"
        ):
            Kit(topology)


def test_no_handler_is_asked_about_a_record_that_meets_a_closed_store() -> None:
    """For example a global store whose thread has failed. The record is not the cause, and must not be dropped."""

    names = key_value_store("names", key=serdes.STRING, value=serdes.STRING)
    store = open_store(names, application_id="app", context=RecordContext())

    class Joining(Processor[Any, Any, Any, Any]):
        def process(self, record: Record[Any, Any]) -> None:
            store.get(record.key)

    handler = Asked(Answer.CONTINUE)
    kit = Kit(
        Topology().add_source("source", "in").add_processor("join", Joining, "source"), processing_handler=handler
    )
    kit.add(record("x"), record("y", offset=1))
    assert kit.task.process(1) == 1
    store.close()
    with pytest.raises(StateStoreMigratedError, match="names"):
        kit.task.process(1)
    assert handler.calls == []
    assert kit.task.committable_offsets()[IN].offset == 1


class TestSilence:
    class Silent(MemoryProducer):
        silent = True

        def partitions_for(self, topic: str) -> int:
            if self.silent:
                raise BrokerUnavailableError("no answer from localhost:9092")
            return 1

    def test_record_is_tried_again_until_the_broker_answers(self) -> None:
        producer = self.Silent()
        kit = Kit(chain(partitioner=lambda *args: 0), producer=producer, task_timeout_ms=1_000)
        kit.add(record("x"))
        assert kit.task.process(1) == 0
        kit.clock.advance(999)
        assert kit.task.process(1) == 0
        producer.silent = False
        assert kit.task.process(1) == 1
        assert kit.sent("out") == [(b"k", b"x", 0)]

    def test_timeout_is_an_error_when_task_timeout_has_passed(self) -> None:
        kit = Kit(chain(partitioner=lambda *args: 0), producer=self.Silent(), task_timeout_ms=1_000)
        kit.add(record("x"))
        kit.task.process(1)
        kit.clock.advance(1_000)
        with pytest.raises(TimeoutExceededError, match=r"task 0_0 .* 1000 ms \(task.timeout.ms is 1000\): no answer"):
            kit.task.process(1)

    def test_first_timeout_is_an_error_when_task_timeout_is_zero(self) -> None:
        kit = Kit(chain(partitioner=lambda *args: 0), producer=self.Silent(), task_timeout_ms=0)
        kit.add(record("x"))
        with pytest.raises(TimeoutExceededError):
            kit.task.process(1)


def test_silence_is_counted_again_when_records_were_processed_before_it() -> None:
    producer = Unreachable("one", "two")
    topology = Topology().add_source("source", "in").add_sink("sink", lambda key, value, context: str(value), "source")
    kit = Kit(topology, producer=producer, task_timeout_ms=1_000)
    kit.add(record("one"), record("two", offset=1))
    assert kit.task.process(2) == 0
    producer.full.remove("one")
    kit.clock.advance(900)
    assert kit.task.process(2) == 0  # the first is written, the second is not
    kit.clock.advance(900)
    assert kit.task.process(2) == 0
    kit.clock.advance(100)
    with pytest.raises(TimeoutExceededError):
        kit.task.process(2)
    assert kit.task.commit_needed


class Broken:
    """An operator that does not report its own errors."""

    def bind(self, node: NodeContext) -> Process:
        def process(key: Any, value: Any, timestamp_ms: int) -> None:
            raise KeyError(value)

        return process


@pytest.mark.parametrize("topics", [("in",), ("in", "b")])
def test_error_that_no_node_reports_names_the_record(topics: tuple[str, ...]) -> None:
    assembly = TopologyAssembly()
    assembly.add_source(SourceNode("source", topics))
    assembly.add_processor(ProcessorNode("broken", ("source",), Broken()))
    kit = Kit(Topology.from_assembly(assembly), inputs=topics, max_task_idle_ms=-1)
    kit.add(record("x", offset=3))
    with pytest.raises(ProcessingError, match=r"in-0 at offset 3: KeyError: 'x'") as caught:
        kit.task.process(1)
    assert caught.value.task_id == TaskId(0, 0)
    assert kit.task.committable_offsets() == {}


@pytest.mark.parametrize(("part", "node"), [("key", "source"), ("value", "source"), ("key", "sink"), ("value", "sink")])
def test_missing_serde_is_an_error_that_names_node_and_setting(part: str, node: str) -> None:
    given = {"key": serdes.STRING, "value": serdes.STRING}
    without = {name: serde for name, serde in given.items() if name != part}
    topology = Topology().add_source("source", "in", **(without if node == "source" else given))
    topology.add_sink("sink", "out", "source", **(without if node == "sink" else given))
    with pytest.raises(ConfigError, match=rf"node {node} has no {part} serde.*default\.{part}\.serde"):
        Kit(topology, default_key_serde=None, default_value_serde=None)


def test_partition_of_a_topic_that_no_source_reads_is_an_error() -> None:
    with pytest.raises(TopologyError, match="no source of the sub-topology reads topic other"):
        Kit(chain(), inputs=["other"])


# -- several records at once -------------------------------------------------------------------------------------------


def test_records_before_the_one_that_raised_are_taken_and_those_after_wait() -> None:
    kit = Kit(chain())
    kit.add(record("a"), record("b", at=5, offset=1), record("bad", at=9, offset=2), record("c", offset=3))
    with pytest.raises(ProcessingError, match="in-0 at offset 2"):
        kit.task.process(10)
    assert [value for _, value, _ in kit.sent("out")] == [b"a", b"b"]
    assert kit.task.buffered_records == 2
    assert kit.task.commit_needed
    assert kit.task.committable_offsets()[IN].offset == 2


def test_handler_is_given_the_record_that_failed_in_the_middle_of_a_batch() -> None:
    handler = Asked(Answer.CONTINUE)
    kit = Kit(chain(), processing_handler=handler)
    kit.add(record("a"), record("bad", offset=1), record("c", offset=2), record("bad", offset=3))
    assert kit.task.process(10) == 4
    raws = [context.raw for context, _, _ in handler.calls]
    assert [raw and (raw.offset(), raw.value()) for raw in raws] == [(1, b"bad"), (3, b"bad")]
    assert [value for _, value, _ in kit.sent("out")] == [b"a", b"c"]
    assert kit.task.buffered_records == 0
