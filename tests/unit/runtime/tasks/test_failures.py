"""What happens to records that cannot be read, processed or written."""

from __future__ import annotations

from typing import Any

import pytest

from streams_protocol.types import TaskId, TopicPartition
from streams_py import serdes
from streams_py.errors import (
    BatchRefusedError,
    BrokerUnavailableError,
    ConfigError,
    DeserializationError,
    ProcessingError,
    ProductionError,
    SerializationError,
    StreamsError,
    TaskCorruptedError,
    TimeoutExceededError,
    TopologyError,
)
from streams_py.ports import DirectSend
from streams_py.runtime.tasks.collector import RecordCollector
from streams_py.runtime.tasks.error_handling.handlers import (
    Answer,
    DeadLetter,
    DeadLetterQueue,
    ErrorContext,
    FailedRecord,
    Origin,
    OutgoingRecord,
    Response,
    log_and_continue,
)
from streams_py.runtime.tasks.task_settings import TaskSettings
from streams_py.testing.memory_clients import MemoryProducer, MemoryRecord
from streams_py.topology.nodes import NodeContext, Process, ProcessorNode, Punctuation, SinkNode, SourceNode
from streams_py.topology.physical.assembly import TopologyAssembly
from streams_py.topology.processor import Processor, Record
from streams_py.topology.topology import Topology
from tests.unit.runtime.tasks.task_kit import Kit, record

IN = TopicPartition("in", 0)


class Forwarding(Processor[Any, Any, Any, Any]):
    def process(self, record: Record[Any, Any]) -> None:
        self.context.forward(record)


class Picky(Processor[Any, Any, Any, Any]):
    def process(self, record: Record[Any, Any]) -> None:
        if record.value == "bad":
            raise ValueError("cannot stand it")
        self.context.forward(record)


def chain(**sink: Any) -> Topology:
    topology = Topology()
    topology.add_source("source", "in")
    topology.add_processor("outer", Forwarding, "source")
    topology.add_processor("inner", Picky, "outer")
    topology.add_sink("sink", "out", "inner", **sink)
    return topology


class Asked:
    """A handler that remembers what it was asked."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.calls: list[tuple[ErrorContext, Any, Exception]] = []

    def __call__(self, context: ErrorContext, record: Any, error: Exception) -> Answer:
        self.calls.append((context, record, error))
        return self.answer


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
        for part in ("node source", "task 0_0", "in-0 at offset 6", "'int32'", "1 bytes (78)", "value of topic 'in'"):
            assert part in text
        assert kit.task.committable_offsets() == {}

    def test_undecodable_key_is_named_as_the_key(self) -> None:
        topology = Topology()
        topology.add_source("source", "in", key=serdes.INT64, value=serdes.STRING)
        kit = Kit(topology)
        kit.add(record("x"))
        with pytest.raises(DeserializationError, match="key of topic 'in': serde 'int64'") as raised:
            kit.task.process(1)
        assert "the key serde that the topic was written with. To pass over such records set " in str(raised.value)

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


class TestWriting:
    def test_value_of_a_wrong_type_is_an_error_that_names_both_types(self) -> None:
        handler = Asked(Answer.CONTINUE)
        kit = Kit(chain(value=serdes.INT64), production_handler=handler)
        kit.add(record("text", offset=2))
        with pytest.raises(SerializationError) as caught:
            kit.task.process(1)
        text = str(caught.value)
        for part in (
            "the value of a record for topic out",
            "node sink",
            "in-0 at offset 2",
            "serde int64",
            "given str",
        ):
            assert part in text
        assert handler.calls == []  # never the record's fault

    @pytest.mark.parametrize(("key", "origin"), [("bad", Origin.KEY), ("k", Origin.VALUE)])
    def test_unserializable_record_goes_to_the_production_handler(self, key: str, origin: Origin) -> None:
        def refuse(text: str) -> bytes:
            if text == "bad":
                raise ValueError("bad text")
            return text.encode()

        odd = serdes.serde(serialize=refuse, deserialize=bytes.decode, name="odd")

        class Renaming(Forwarding):
            def process(self, record: Record[Any, Any]) -> None:
                self.context.forward(record.with_value("bad" if key == "k" else "fine"))

        topology = Topology()
        topology.add_source("source", "in").add_processor("node", Renaming, "source")
        topology.add_sink("sink", "out", "node", key=odd, value=odd)
        handler = Asked(Answer.CONTINUE)
        kit = Kit(topology, production_handler=handler)
        kit.add(record("x", key=key, at=4))
        assert kit.task.process(1) == 1
        ((context, outgoing, _),) = handler.calls
        assert (context.origin, context.node) == (origin, "sink")
        assert isinstance(outgoing, OutgoingRecord)
        assert (outgoing.topic, outgoing.key, outgoing.timestamp_ms) == ("out", key, 4)
        assert kit.sent("out") == []
        handler.answer = Answer.FAIL
        kit.add(record("x", key=key, at=4, offset=1))
        with pytest.raises(SerializationError, match=f"the {origin.value} of a record for topic out.*serde odd"):
            kit.task.process(1)

    def refusing(self, *, retriable: bool) -> MemoryProducer:
        def refuse(record: MemoryRecord) -> ProductionError | None:
            if record.value() == b"refused":
                return ProductionError("too large", topic="out", partition=0, retriable=retriable)
            return None

        return MemoryProducer(refuse=refuse)

    def test_refused_record_surfaces_at_the_next_send(self) -> None:
        kit = Kit(chain(), producer=self.refusing(retriable=False))
        kit.add(record("refused"))
        kit.task.process(1)
        kit.add(record("next", offset=1))
        with pytest.raises(ProductionError, match="too large"):
            kit.task.process(1)

    def test_refused_record_is_dropped_when_the_handler_continues(self) -> None:
        handler = Asked(Answer.CONTINUE)
        kit = Kit(chain(), producer=self.refusing(retriable=False), production_handler=handler)
        kit.add(record("refused"), record("next", offset=1))
        assert kit.task.process(2) == 2
        assert kit.sent("out") == [(b"k", b"next", 0)]
        ((context, outgoing, error),) = handler.calls
        assert context.origin is Origin.SEND
        assert outgoing is None
        assert isinstance(error, ProductionError)

    def test_every_refused_record_is_asked_about_before_the_next_one_is_sent(self) -> None:
        errors = [ProductionError(text, topic="out", partition=0) for text in ("first", "second")]

        class Refusing(MemoryProducer):
            def check(self) -> None:
                if errors:
                    raise errors.pop(0)

        handler = Asked(Answer.CONTINUE)
        kit = Kit(chain(), producer=Refusing(), production_handler=handler)
        kit.add(record("x"))
        assert kit.task.process(1) == 1
        assert [str(error) for _, _, error in handler.calls] == ["first", "second"]
        assert kit.sent("out") == [(b"k", b"x", 0)]

    def test_record_of_another_topic_is_not_dropped_with_the_one_that_may_be(self) -> None:
        """Both were refused for the same reason; the handler lets only one of them go."""
        errors = [ProductionError("no", topic=topic, partition=0) for topic in ("loose", "loose", "strict")]
        asked: list[str] = []

        def choosy(context: ErrorContext, record: Any, error: Exception) -> Answer:
            assert isinstance(error, ProductionError)
            asked.append(error.topic)
            return Answer.CONTINUE if error.topic == "loose" else Answer.FAIL

        class Refusing(MemoryProducer):
            def check(self) -> None:
                if errors:
                    raise errors.pop(0)

        kit = Kit(chain(), producer=Refusing(), production_handler=choosy)
        kit.add(record("x"))
        with pytest.raises(ProductionError) as caught:
            kit.task.process(1)
        assert caught.value.topic == "strict"
        assert asked == ["loose", "loose", "strict"]
        assert kit.sent("out") == []

    def test_all_that_passes_rolls_back_once(self) -> None:
        producer = self.refusing(retriable=True)
        kit = Kit(chain(), producer=producer)
        producer._errors.extend(ProductionError("away", topic="out", partition=0, retriable=True) for _ in range(50))
        kit.add(record("x"))
        with pytest.raises(TaskCorruptedError):
            kit.task.process(1)
        assert kit.task.check_sends() is False

    def test_nobody_is_asked_about_a_batch_that_was_too_large(self) -> None:
        handler = Asked(Answer.FAIL)
        producer = MemoryProducer()
        kit = Kit(chain(), producer=producer, production_handler=handler)
        producer._errors.append(BatchRefusedError("too large", topic="out", partition=0))
        kit.add(record("x"))
        with pytest.raises(TaskCorruptedError, match="too large; processing again from the last commit"):
            kit.task.process(1)
        assert handler.calls == []

    def test_refused_record_rolls_all_tasks_of_the_producer_back_when_the_error_passes(self) -> None:
        kit = Kit(chain(), producer=self.refusing(retriable=True))
        kit.add(record("refused"), record("next", offset=1))
        with pytest.raises(TaskCorruptedError) as caught:
            kit.task.process(2)
        assert set(caught.value.tasks) == {TaskId(0, 0)}

    def test_retry_of_a_final_error_fails(self) -> None:
        kit = Kit(chain(), producer=self.refusing(retriable=False), production_handler=Asked(Answer.RETRY))
        kit.add(record("refused"), record("next", offset=1))
        with pytest.raises(ProductionError):
            kit.task.process(2)


class TestPartitioner:
    def sent_to(self, chosen: Any, partitions: int = 3) -> list[int]:
        topology = chain(partitioner=lambda topic, key, value, count: chosen)
        kit = Kit(topology, producer=MemoryProducer({"out": partitions}))
        kit.add(record("x", key="k"))
        kit.task.process(1)
        self.dropped = kit.task.dropped_records
        return [sent.partition() for sent in kit.producer.sent]

    @pytest.mark.parametrize(("chosen", "partitions"), [(2, [2]), (None, [2]), ([], []), ([0, 2], [0, 2])])
    def test_partitioner_decides(self, chosen: Any, partitions: list[int]) -> None:
        assert self.sent_to(chosen) == partitions
        assert self.dropped == (not partitions)

    @pytest.mark.parametrize("chosen", [3, -1, [0, 7]])
    def test_partitioner_that_chooses_no_partition_of_the_topic_is_an_error(self, chosen: Any) -> None:
        with pytest.raises(StreamsError, match="the partitioner of sink sink chose partition"):
            self.sent_to(chosen)


def test_topic_chooser_writes_to_several_topics() -> None:
    topology = Topology()
    topology.add_source("source", "in")
    topology.add_sink("sink", lambda key, value, context: f"out-{value}-{context.offset}", "source")
    kit = Kit(topology)
    kit.add(record("a", offset=3), record("b", offset=4))
    kit.task.process(2)
    assert [sent.topic() for sent in kit.producer.sent] == ["out-a-3", "out-b-4"]


def fail(*_: object) -> Any:
    raise ValueError("no idea where this belongs")


def fails_for_bad(good: Any) -> Any:
    return lambda *args: fail() if "bad" in args else good


class TestChoosing:
    """A sink's topic chooser and partitioner are user code, as every processor is."""

    SINKS = (
        {"topic": fails_for_bad("out")},
        {"topic": fails_for_bad(None)},
        {"topic": "out", "partitioner": fails_for_bad(0)},
        {"topic": "out", "partitioner": lambda topic, key, value, count: 9 if value == "bad" else 0},
        {"topic": "out", "partitioner": lambda topic, key, value, count: [0, 9] if value == "bad" else 0},
        {"topic": "out", "partitioner": lambda topic, key, value, count: "0" if value == "bad" else 0},
    )

    def kit(self, sink: dict[str, Any], **settings: Any) -> Kit:
        topology = Topology().add_source("source", "in").add_processor("outer", Forwarding, "source")
        options = {name: value for name, value in sink.items() if name != "topic"}
        topology.add_sink("sink", sink["topic"], "outer", **options)
        return Kit(topology, **settings)

    @pytest.mark.parametrize("sink", SINKS[:1] + SINKS[2:])
    def test_record_is_dropped_when_the_processing_handler_continues(self, sink: dict[str, Any]) -> None:
        handler = Asked(Answer.CONTINUE)
        kit = self.kit(sink, processing_handler=handler)
        kit.add(record("bad", at=7), record("good", offset=1))
        assert kit.task.process(2) == 2
        assert [value for _, value, _ in kit.sent("out")] == [b"good"]
        ((context, failed, _),) = handler.calls
        assert (context.node, context.offset) == ("sink", 0)
        assert (failed.key, failed.value, failed.timestamp_ms) == ("k", "bad", 7)
        assert kit.task.dropped_records == 1
        assert kit.task.committable_offsets()[IN].offset == 2

    @pytest.mark.parametrize("sink", SINKS)
    def test_error_names_sink_and_record_when_the_processing_handler_fails(self, sink: dict[str, Any]) -> None:
        handler = Asked(Answer.FAIL)
        kit = self.kit(sink, processing_handler=handler)
        kit.add(record("bad", offset=3))
        with pytest.raises(ProcessingError, match="node sink, task 0_0, input record in-0 at offset 3"):
            kit.task.process(1)
        assert len(handler.calls) == 1
        assert kit.task.committable_offsets() == {}

    def test_errors_that_say_nothing_about_the_record_are_not_the_handlers(self) -> None:
        def silent(*_: object) -> Any:
            raise BrokerUnavailableError("no answer")

        handler = Asked(Answer.CONTINUE)
        kit = self.kit({"topic": silent}, processing_handler=handler)
        kit.add(record("x"))
        assert kit.task.process(1) == 0  # tried again
        assert handler.calls == []


class Unreachable(MemoryProducer):
    """A producer whose queue is full for some topics."""

    def __init__(self, *full: str) -> None:
        super().__init__()
        self.full = set(full)
        self.errors: list[ProductionError] = []
        take = self.produce

        def produce(topic: str, *rest: Any) -> None:
            if self.errors:
                raise self.errors.pop(0)
            if topic in self.full:
                raise BrokerUnavailableError("the queue is full")
            take(topic, *rest)

        self.produce = produce

    def check(self) -> None:
        if self.errors:
            raise self.errors.pop(0)


class TestDeadLetters:
    def topology(self, *topics: str) -> Topology:
        return (
            Topology()
            .add_source("source", topics, key=serdes.STRING, value=serdes.JSON)
            .add_sink("sink", "out", "source", value=serdes.JSON)
        )

    @pytest.mark.parametrize("topics", [("in",), ("in", "b"), ("in", "b", "c")])
    def test_record_whose_letter_cannot_be_written_stays_and_runs_through_no_node(
        self, topics: tuple[str, ...]
    ) -> None:
        producer = Unreachable("dead")
        kit = Kit(
            self.topology(*topics),
            inputs=topics,
            max_task_idle_ms=-1,
            producer=producer,
            deserialization_handler=DeadLetterQueue("dead").handle,
        )
        for topic in topics:  # the poison is next once the first record is taken
            kit.add(record("1", topic=topic), record("{", topic=topic, offset=1), record("2", topic=topic, offset=2))
        for _ in range(5):
            kit.task.process(100)
        assert {value for _, value, _ in kit.sent("out")} == {b"1"}
        assert {entry.offset for entry in kit.task.committable_offsets().values()} == {1}
        producer.full.clear()
        while kit.task.process(100):
            pass
        assert sorted(value or b"" for _, value, _ in kit.sent("out")) == [b"1"] * len(topics) + [b"2"] * len(topics)
        assert [value for _, value, _ in kit.sent("dead")] == [b"{"] * len(topics)
        assert all(entry.offset == 3 for entry in kit.task.committable_offsets().values())

    def letters(self, answer: Answer, topic: str = "dead") -> Any:
        return lambda context, record, error: Response(answer, (DeadLetter(topic, b"k", str(error).encode(), 5),))

    def test_letter_goes_the_way_of_all_sends(self) -> None:
        producer = Unreachable()
        production = Asked(Answer.CONTINUE)
        kit = Kit(
            self.topology("in"),
            producer=producer,
            deserialization_handler=DeadLetterQueue("dead").handle,
            production_handler=production,
        )
        kit.add(record("{"))
        producer.errors = [ProductionError(f"too large {n}", topic="out", partition=0) for n in range(2_000)]
        assert kit.task.process(1) == 1
        assert len(production.calls) == 2_000
        assert [value for _, value, _ in kit.sent("dead")] == [b"{"]

    def test_earlier_refusal_ends_processing_when_the_production_handler_fails_at_a_letter(self) -> None:
        producer = Unreachable()
        kit = Kit(self.topology("in"), producer=producer, deserialization_handler=DeadLetterQueue("dead").handle)
        kit.add(record("{"))
        producer.errors = [ProductionError("too large", topic="out", partition=0)]
        with pytest.raises(ProductionError, match="too large; to pass over such records set production"):
            kit.task.process(1)
        assert kit.task.committable_offsets() == {}

    @pytest.mark.parametrize("answer", [Answer.CONTINUE, Answer.FAIL, Answer.RETRY])
    def test_letters_of_the_production_handler_are_written_whatever_it_answers(self, answer: Answer) -> None:
        producer = Unreachable()
        kit = Kit(self.topology("in"), producer=producer, production_handler=self.letters(answer))
        kit.add(record("1"))
        producer.errors = [ProductionError("first", topic="out", partition=0, retriable=True)]
        if answer is Answer.CONTINUE:
            kit.task.process(1)
        else:
            with pytest.raises((ProductionError, TaskCorruptedError)):
                kit.task.process(1)
        assert [value for _, value, _ in kit.sent("dead")] == [b"first"]

    def test_check_asks_about_every_refusal_and_says_when_letters_are_to_be_flushed(self) -> None:
        producer = Unreachable()
        kit = Kit(self.topology("in"), producer=producer, production_handler=self.letters(Answer.CONTINUE))
        producer.errors = [ProductionError(text, topic="out", partition=0) for text in ("first", "second", "third")]
        assert kit.task.check_sends()
        assert [value for _, value, _ in kit.sent("dead")] == [b"first", b"second", b"third"]
        assert not kit.task.check_sends()

    def test_letter_to_the_topic_that_refuses_it_is_an_error_instead_of_a_circle(self) -> None:
        producer = Unreachable()
        kit = Kit(self.topology("in"), producer=producer, production_handler=self.letters(Answer.CONTINUE))
        producer.errors = [ProductionError("no such topic", topic="dead", partition=0)]
        with pytest.raises(
            ProductionError, match=r"dead letter for it to the same topic.*check that topic dead exists"
        ):
            kit.task.check_sends()

    def test_refused_record_is_not_mistaken_for_the_record_in_process(self) -> None:
        """What is in process when a refusal comes up is not what was refused: its bytes are no dead letter."""
        producer = Unreachable()
        kit = Kit(self.topology("in"), producer=producer, production_handler=DeadLetterQueue("dead").handle)
        kit.add(record("1"))
        producer.errors = [ProductionError("too large", topic="out", partition=0)]
        with pytest.raises(ProductionError):
            kit.task.process(1)
        assert kit.sent("dead") == []


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

    def test_time_out_is_an_error_when_task_timeout_has_passed(self) -> None:
        kit = Kit(chain(partitioner=lambda *args: 0), producer=self.Silent(), task_timeout_ms=1_000)
        kit.add(record("x"))
        kit.task.process(1)
        kit.clock.advance(1_000)
        with pytest.raises(TimeoutExceededError, match=r"task 0_0 .* 1000 ms \(task.timeout.ms is 1000\): no answer"):
            kit.task.process(1)

    def test_first_time_out_is_an_error_when_task_timeout_is_zero(self) -> None:
        kit = Kit(chain(partitioner=lambda *args: 0), producer=self.Silent(), task_timeout_ms=0)
        kit.add(record("x"))
        with pytest.raises(TimeoutExceededError):
            kit.task.process(1)


def test_silence_is_counted_anew_when_records_were_processed_before_it() -> None:
    producer = Unreachable("one", "two")
    topology = Topology().add_source("source", "in").add_sink("sink", lambda key, value, context: str(value), "source")
    kit = Kit(topology, producer=producer, task_timeout_ms=1_000)
    kit.add(record("one"), record("two", offset=1))
    assert kit.task.process(2) == 0
    producer.full.remove("one")
    kit.clock.advance(900)
    assert kit.task.process(2) == 0  # one is written, two is not
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


@pytest.mark.parametrize("chosen", [None, "", 7, []])
def test_chooser_that_names_no_topic_is_an_error(chosen: Any) -> None:
    topology = Topology().add_source("source", "in").add_sink("sink", lambda key, value, context: chosen, "source")
    kit = Kit(topology)
    kit.add(record("x"))
    with pytest.raises(
        ProcessingError, match=r"node sink, task 0_0, input record in-0 at offset 0: .*topic chooser|unhash"
    ):
        kit.task.process(1)


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


def test_sink_refuses_a_negative_timestamp() -> None:
    assembly = TopologyAssembly()
    assembly.add_source(SourceNode("source", ("in",)))
    assembly.add_processor(ProcessorNode("early", ("source",), Early()))
    assembly.add_sink(SinkNode("sink", ("early",), "out"))
    kit = Kit(Topology.from_assembly(assembly))
    kit.add(record("x"))
    with pytest.raises(StreamsError, match="a record for out has the negative timestamp -5"):
        kit.task.process(1)


class Early:
    """Sends records into the time before 1970."""

    def bind(self, node: NodeContext) -> Process:
        forward = node.forward
        return lambda key, value, timestamp_ms: forward(key, value, -5)


class TestCommitCheck:
    """What the flush of a commit finds."""

    def collector(self, answer: Answer, *, retriable: bool = False) -> tuple[RecordCollector, Asked]:
        producer = MemoryProducer(refuse=lambda r: ProductionError("no", topic="t", partition=0, retriable=retriable))
        handler = Asked(answer)
        settings = TaskSettings(application_id="app", production_handler=handler)
        both = (TaskId(0, 0), TaskId(1, 0))
        collector = RecordCollector(both[0], producer, settings, sharing=lambda: both)
        collector.changelog_writer("app-s-changelog", 0)(b"k", b"v", 5)
        return collector, handler

    def test_refused_record_is_raised(self) -> None:
        collector, _ = self.collector(Answer.FAIL)
        with pytest.raises(ProductionError):
            collector.check()
        collector.check()

    def test_refused_record_is_dropped_when_the_handler_continues(self) -> None:
        collector, handler = self.collector(Answer.CONTINUE)
        collector.check()
        assert [context.origin for context, _, _ in handler.calls] == [Origin.SEND]

    def test_all_tasks_of_the_producer_are_corrupted_when_the_handler_retries(self) -> None:
        collector, _ = self.collector(Answer.RETRY, retriable=True)
        with pytest.raises(TaskCorruptedError) as caught:
            collector.check()
        assert set(caught.value.tasks) == {TaskId(0, 0), TaskId(1, 0)}

    def test_refused_record_surfaces_at_the_next_changelog_record_too(self) -> None:
        collector, _ = self.collector(Answer.FAIL)
        with pytest.raises(ProductionError):
            collector.changelog_writer("app-s-changelog", 0)(b"k", b"v", 5)


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


# -- the client's own function -----------------------------------------------------------------------------------------


class WithDirectSend(MemoryProducer):
    """A producer with a direct way that may be closed for a while."""

    def __init__(self) -> None:
        super().__init__()
        self.direct_sends = 0
        self.is_full = False
        self.failures: list[Exception] = []

    def direct(self, topic: str, partition: int = -1) -> DirectSend:  # type: ignore[override]  # the other one has none
        return DirectSend(self._send, None, self.failures)

    def _send(self, *record: Any) -> None:
        if self.is_full:
            raise BufferError
        topic, value, key, partition, _, _, timestamp_ms, headers = record
        self.direct_sends += 1
        self.produce(topic, value, key, partition, None, timestamp_ms, headers)

    def check(self) -> None:
        if self.failures:
            raise self.failures.pop()


def test_sinks_send_directly() -> None:
    producer = WithDirectSend()
    kit = Kit(chain(), producer=producer)
    kit.add(record("x", at=7, headers=[("h", b"1")]), record(None, key=None, at=8, offset=1))
    kit.task.process(10)
    assert producer.direct_sends == 2
    assert kit.sent("out") == [(b"k", b"x", 7), (None, None, 8)]
    assert [sent.headers() for sent in producer.sent] == [[("h", b"1")], None]


def test_records_take_the_longer_way_when_the_direct_one_is_closed() -> None:
    producer = WithDirectSend()
    kit = Kit(chain(), producer=producer)
    producer.is_full = True
    kit.add(record("no room", at=7), record("at the epoch", at=0, offset=1))
    kit.task.process(10)
    producer.is_full = False
    kit.add(record("at the epoch", at=0, offset=2))
    kit.task.process(10)
    assert producer.direct_sends == 0
    assert kit.sent("out") == [(b"k", b"no room", 7), (b"k", b"at the epoch", 0), (b"k", b"at the epoch", 0)]


def test_failure_of_an_earlier_record_surfaces_before_the_next_direct_send() -> None:
    producer, handler = WithDirectSend(), Asked(Answer.CONTINUE)
    kit = Kit(chain(), producer=producer, production_handler=handler)
    producer.failures.append(ProductionError("too large", topic="out", partition=0))
    kit.add(record("next", at=7))
    kit.task.process(1)
    ((context, _, error),) = handler.calls
    assert (context.node, str(error)) == ("sink", "too large")
    assert kit.sent("out") == [(b"k", b"next", 7)]
