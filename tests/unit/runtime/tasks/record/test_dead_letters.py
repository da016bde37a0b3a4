"""Records that cannot be processed go to a dead letter topic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streams_py import serdes
from streams_py.errors import ProductionError, TaskCorruptedError
from streams_py.runtime.tasks.settings.handlers import Answer, DeadLetter, DeadLetterQueue, Response
from streams_py.topology.declare.processor import Processor, Record
from streams_py.topology.topology import Topology
from tests.support.runtime.failing import Asked, Unreachable
from tests.support.runtime.task_kit import Kit, record


class _Calling(Processor[str, object, str, object]):
    def __init__(self, function: Callable[[str, object], object]) -> None:
        self._function = function

    def process(self, record: Record[str, object]) -> None:
        self._function(record.key, record.value)


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
        for topic in topics:  # the bad record is next once the first record is processed
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

    def test_letter_is_not_larger_than_a_broker_takes_however_much_the_error_says(self) -> None:
        def explain(key: str, value: object) -> object:
            raise ValueError(f"first {'x' * 3_000_000} last")

        topology = (
            Topology()
            .add_source("source", "in", key=serdes.STRING, value=serdes.JSON)
            .add_processor("explains", lambda: _Calling(explain), "source")
        )
        kit = Kit(topology, processing_handler=DeadLetterQueue("dead").handle)
        kit.add(record("1"))
        kit.task.process(1)
        [letter] = kit.producer.sent
        headers = {name: (text or b"").decode() for name, text in letter.headers() or ()}
        assert sum(map(len, headers.values())) < 40_000
        assert headers["__streams.errors.message"].startswith("first xx")
        assert headers["__streams.errors.message"].endswith("xx last")
        assert "in explain" in headers["__streams.errors.stacktrace"]

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
        with pytest.raises(ProductionError, match="too large; to drop such records, set production"):
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
        """The record in process when a rejection surfaces is not the rejected record, so it is not the dead letter."""
        producer = Unreachable()
        kit = Kit(self.topology("in"), producer=producer, production_handler=DeadLetterQueue("dead").handle)
        kit.add(record("1"))
        producer.errors = [ProductionError("too large", topic="out", partition=0)]
        with pytest.raises(ProductionError):
            kit.task.process(1)
        assert kit.sent("dead") == []
