"""Handling of records that a sink cannot write."""

from __future__ import annotations

from typing import Any

import pytest

from streams_protocol.types import TaskId
from streams_py import serdes
from streams_py.errors import (
    BatchRefusedError,
    BrokerUnavailableError,
    ProcessingError,
    ProductionError,
    RecordsExpiredError,
    SerializationError,
    StreamsError,
    TaskCorruptedError,
)
from streams_py.ports import DirectSend
from streams_py.runtime.tasks.record.collector import RecordCollector
from streams_py.runtime.tasks.settings.handlers import Answer, ErrorContext, Origin, OutgoingRecord
from streams_py.runtime.tasks.settings.task_settings import TaskSettings
from streams_py.testing.memory_clients import MemoryProducer, MemoryRecord
from streams_py.topology.declare.nodes import NodeContext, Process, ProcessorNode, SinkNode, SourceNode
from streams_py.topology.declare.processor import Record
from streams_py.topology.physical.assembly import TopologyAssembly
from streams_py.topology.topology import Topology
from tests.support.runtime.failing import IN, Asked, Forwarding, chain
from tests.support.runtime.task_kit import Kit, record, report_failed


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
        assert handler.calls == []  # not an error of the record

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
        """Both were rejected for the same reason, but the handler allows dropping only one of them."""
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
        errors = [ProductionError("away", topic="out", partition=0, retriable=True) for _ in range(50)]
        report_failed(producer, *errors)
        kit.add(record("x"))
        with pytest.raises(TaskCorruptedError):
            kit.task.process(1)
        kit.task.revive()
        assert kit.task.check_sends() is False

    @pytest.mark.parametrize("kind", [BatchRefusedError, RecordsExpiredError])
    def test_nobody_is_asked_about_records_with_which_nothing_is_wrong(
        self, kind: type[BatchRefusedError | RecordsExpiredError]
    ) -> None:
        handler = Asked(Answer.FAIL)
        producer = MemoryProducer()
        kit = Kit(chain(), producer=producer, production_handler=handler)
        report_failed(producer, kind("not written", topic="out", partition=0))
        kit.add(record("x"))
        with pytest.raises(TaskCorruptedError, match="not written; processing again from the last commit"):
            kit.task.process(1)
        assert handler.calls == []

    def test_nothing_is_committed_when_the_code_of_a_processor_has_caught_that_all_start_over(self) -> None:
        producer = MemoryProducer()
        kit = Kit(chain(), producer=producer)
        report_failed(producer, RecordsExpiredError("not written", topic="out", partition=0))
        kit.add(record("x"))
        with pytest.raises(TaskCorruptedError):
            kit.task.process(1)
        for _ in range(2):
            with pytest.raises(TaskCorruptedError, match="not written"):
                kit.task.check_sends()
        kit.task.revive()
        assert kit.task.check_sends() is False

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
    """A sink's topic chooser and partitioner are user code, like every processor."""

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
        assert kit.task.process(1) == 0  # retried
        assert handler.calls == []


@pytest.mark.parametrize("chosen", [None, "", 7, []])
def test_chooser_that_names_no_topic_is_an_error(chosen: Any) -> None:
    topology = Topology().add_source("source", "in").add_sink("sink", lambda key, value, context: chosen, "source")
    kit = Kit(topology)
    kit.add(record("x"))
    with pytest.raises(
        ProcessingError, match=r"node sink, task 0_0, input record in-0 at offset 0: .*topic chooser|unhash"
    ):
        kit.task.process(1)


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
    """Sends records with timestamps before 1970."""

    def bind(self, node: NodeContext) -> Process:
        forward = node.forward
        return lambda key, value, timestamp_ms: forward(key, value, -5)


class TestCommitCheck:
    """The check of the producer in the flush of a commit."""

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


# -- the client's own function -----------------------------------------------------------------------------------------


class WithDirectSend(MemoryProducer):
    """A producer with a direct path that may be closed for some time."""

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
