"""transform_values of a table: stored or not, read by a join, and what a transformer may do."""

from __future__ import annotations

from typing import Any

import pytest

from streams_py.errors import ProcessingError, StreamsError, TopologyError
from streams_py.serdes import INT64, STRING
from streams_py.testing.driver import TopologyTestDriver
from streams_py.topology.declare.processor import ProcessingContext, Record, ValueTransformer, ValueTransformerContext
from streams_py.topology.declare.stores import key_value_store
from streams_py.topology.dsl.builder import StreamsBuilder


class Seen(ValueTransformer[str, str, str]):
    """Counts its calls per key, in a store."""

    closed = 0

    def init(self, context: ProcessingContext) -> None:
        self.store = context.get_state_store("calls")

    def transform(self, key: str, value: str | None) -> str | None:
        calls = (self.store.get(key) or 0) + 1
        self.store.put(key, calls)
        return None if value == "x" else f"{value}#{calls}"

    def close(self) -> None:
        type(self).closed += 1


class Upper(ValueTransformer[str, str, str]):
    def transform(self, key: str, value: str | None) -> str | None:
        return f"{key}!" if value is None else value.upper()


def builder_with_store() -> StreamsBuilder[str, str]:
    builder = StreamsBuilder(key=STRING, value=STRING)
    builder.add_state_store(key_value_store("calls", key=STRING, value=INT64))
    return builder


def out(builder: StreamsBuilder[Any, Any], *records: tuple[str, str, str | None]) -> list[tuple[Any, Any]]:
    with TopologyTestDriver(builder.build()) as driver:
        for topic, key, value in records:
            driver.input_topic(topic, key=STRING, value=STRING).send(key, value, timestamp_ms=1)
        return driver.output_topic("out", key=STRING, value=STRING).read_pairs()


def test_transformer_sees_new_values_and_deletions_and_is_closed() -> None:
    builder = builder_with_store()
    closed = Seen.closed
    builder.table("t").transform_values(Seen, stores="calls").to_stream().to("out")
    assert out(builder, ("t", "k", "a"), ("t", "k", None), ("t", "k", "x")) == [
        ("k", "a#1"),
        ("k", "None#2"),
        ("k", None),
    ]
    assert Seen.closed == closed + 1


def test_old_values_come_from_the_store_when_there_is_one_and_else_from_the_transformer() -> None:
    def grouped(**options: Any) -> list[tuple[Any, Any]]:
        builder = builder_with_store()
        table = builder.table("t").transform_values(Seen, stores="calls", **options)
        table.group_by(lambda k, v: (v, v)).reduce(lambda a, b: a + b, lambda a, b: None).to_stream().to("out")
        return out(builder, ("t", "k", "a"), ("t", "k", "b"))

    assert grouped(store="kept", value=STRING) == [("a#1", "a#1"), ("a#1", None), ("b#2", "b#2")]
    assert ("a#1", None) not in grouped()


def test_table_without_a_store_is_transformed_again_when_it_is_read() -> None:
    builder = StreamsBuilder(key=STRING, value=STRING)
    table = builder.table("t").transform_values(Upper)
    builder.stream("s").join(table, lambda v, w: v + w).to("out")
    assert out(builder, ("t", "k", "a"), ("s", "k", "1"), ("s", "l", "2")) == [("k", "1A"), ("l", "2l!")]


class Tells(ValueTransformer[str, str, str]):
    """Returns what its context knows about the current record."""

    def init(self, context: ValueTransformerContext) -> None:
        self.context = context

    def transform(self, key: str, value: str | None) -> str | None:
        record = self.context.record
        return f"{value}: {record.topic} {record.partition} {record.offset} {record.timestamp} {len(record.headers)}"


def test_transformer_of_a_row_that_is_read_is_told_only_its_timestamp() -> None:
    builder = StreamsBuilder(key=STRING, value=STRING)
    table = builder.table("t").transform_values(Tells)
    table.to_stream().to("changes")
    joined = builder.stream("s").join(table, with_context=lambda key, value, row, record: f"{row}, {record.topic}")
    joined.to("out")
    with TopologyTestDriver(builder.build()) as driver:
        for topic, key, time_ms in (("t", "k", 5), ("s", "k", 9), ("s", "l", 9)):
            told = driver.input_topic(topic, key=STRING, value=STRING)
            told.send(key, "v", timestamp_ms=time_ms, headers=[("h", b"")])
        assert driver.output_topic("changes", key=STRING, value=STRING).read_values() == ["v: t 0 0 5 1"]
        results = driver.output_topic("out", key=STRING, value=STRING).read_all()
    assert [(result.value, result.timestamp, len(result.headers)) for result in results] == [
        ("v: None -1 -1 5 0, s", 9, 1),
        ("None: None -1 -1 -1 0, s", 9, 1),
    ]


def test_names_are_those_of_kafka_streams() -> None:
    builder = StreamsBuilder(key=STRING, value=STRING)
    builder.table("t").transform_values(Upper).to_stream().to("out")
    assert "KTABLE-TRANSFORMVALUES-0000000003 (stores: [])" in builder.build().describe()


def test_transformer_cannot_forward() -> None:
    class Forwards(Upper):
        def init(self, context: Any) -> None:
            self.context = context

        def transform(self, key: str, value: str | None) -> str | None:
            self.context.forward(Record(key, value, 1))
            return None

    builder = StreamsBuilder(key=STRING, value=STRING)
    builder.table("t").transform_values(Forwards).to_stream().to("out")
    with pytest.raises(StreamsError, match="forwards a record") as raised:
        out(builder, ("t", "k", "a"))
    assert isinstance(raised.value, ProcessingError)


ONE = Upper()


@pytest.mark.parametrize("supplier", [lambda: ONE, lambda: "no transformer"])
def test_supplier_that_cannot_serve_tasks_is_refused(supplier: Any) -> None:
    with pytest.raises(TopologyError):
        StreamsBuilder().table("t").transform_values(supplier)
