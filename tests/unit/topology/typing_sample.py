"""A user's program for mypy --strict: chains infer the types, without annotations of lambdas.

Every ``reveal_type`` is compared with the comment after it by ``test_typing.py``; lines that must be errors end in ``#
error``. The file is never run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import reveal_type

from streams_py import serdes
from streams_py.topology.declare.in_context import with_context
from streams_py.topology.declare.nodes import Punctuation, RecordContext
from streams_py.topology.declare.processor import (
    FixedKeyProcessor,
    FixedKeyProcessorContext,
    FixedKeyRecord,
    Processor,
    ProcessorContext,
    Record,
)
from streams_py.topology.declare.stores import key_value_store
from streams_py.topology.declare.windows import JoinWindows, TimeWindows
from streams_py.topology.dsl.builder import StreamsBuilder
from streams_py.topology.dsl.options import Materialized
from streams_py.topology.topology import Topology

builder = StreamsBuilder()
text = serdes.STRING

lines = builder.stream("in", key=text, value=text)
reveal_type(lines)  # KStream[str, str]
reveal_type(builder.stream(re.compile("in-.*"), value=text))  # KStream[Any, str]
reveal_type(builder.stream(["a", "b"]))  # KStream[Any, Any]
reveal_type(StreamsBuilder(key=text, value=serdes.INT64).stream("in"))  # KStream[str, int]
reveal_type(StreamsBuilder(value=text).stream("in", key=serdes.INT64))  # KStream[int, str]
reveal_type(StreamsBuilder(key=text).table("in", value=serdes.INT64))  # KTable[str, int]

lengths = lines.filter(lambda k, v: v).map_values(lambda v: len(v) + 1).peek(print)
reveal_type(lengths)  # KStream[str, int]
reveal_type(lines.map_values(with_key=lambda k, v: (k, len(v))))  # KStream[str, tuple[str, int]]
reveal_type(lines.map(lambda k, v: (len(k), v.encode())))  # KStream[int, bytes]
reveal_type(lines.flat_map(lambda k, v: [(1, k)]))  # KStream[int, str]
reveal_type(lines.flat_map_values(lambda v: v.split()))  # KStream[str, str]
reveal_type(lines.select_key(lambda k, v: len(v)))  # KStream[int, str]
reveal_type(lines.merge(lines))  # KStream[str, str]
reveal_type(lines.split().branch(lambda k, v: v == "a").default_branch())  # dict[str, KStream[str, str]]
reveal_type(lines.repartition(partitions=3))  # KStream[str, str]
reveal_type(lines.to_table(store="t"))  # KTable[str, str]

words = lines.flat_map_values(str.split).group_by(lambda k, word: word, key=text, value=text)
reveal_type(words)  # KGroupedStream[str, str]
counts = words.count(store="counts")
reveal_type(counts)  # KTable[str, int]
reveal_type(counts.to_stream())  # KStream[str, int]
reveal_type(counts.to_stream(lambda k, v: v))  # KStream[int, int]
reveal_type(counts.filter(lambda k, v: v > 1).map_values(str))  # KTable[str, str]
reveal_type(counts.map_values(with_key=lambda k, v: v / 2, store="halves", value=serdes.FLOAT64))  # KTable[str, float]
counts.to_stream().to("out", key=text, value=serdes.INT64)
counts.to_stream().to(lambda k, v, record: f"out-{record.topic}", key=text)

sums = lengths.group_by_key(key=text, value=serdes.INT64, name="sums")
reveal_type(sums.reduce(lambda a, b: a + b))  # KTable[str, int]
reveal_type(sums.aggregate(lambda: 0, lambda k, v, total: total + v))  # KTable[str, int]
reveal_type(sums.aggregate(list, lambda k, v, a: [*a, v], value=serdes.json(list[int])))  # KTable[str, list[int]]
reveal_type(sums.aggregate(lambda: 0.0, lambda k, v, total: total + v, value=serdes.FLOAT64))  # KTable[str, float]

table = builder.table("t", key=text, value=serdes.INT64)
reveal_type(table)  # KTable[str, int]
reveal_type(builder.table("u", materialized=Materialized("u", key=text, value=text)))  # KTable[str, str]
groups = table.group_by(lambda k, v: (v, k), key=serdes.INT64, value=text)
reveal_type(groups)  # KGroupedTable[int, str]
reveal_type(groups.count())  # KTable[int, int]
reveal_type(
    groups.aggregate(lambda: b"", lambda k, v, a: a + v.encode(), lambda k, v, a: a, store="b", value=serdes.BYTES)
)  # KTable[int, bytes]


class Lengths(Processor[str, str, int, str]):
    def init(self, context: ProcessorContext[int, str]) -> None:
        super().init(context)
        context.schedule(100, Punctuation.STREAM_TIME, self.tick)

    def tick(self, time_ms: int) -> None:
        self.context.forward(Record(0, "tick", time_ms))

    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record.with_key(len(record.value)))


class Upper(FixedKeyProcessor[str, str, bytes]):
    def process(self, record: FixedKeyRecord[str, str]) -> None:
        self.context.forward(record.with_value(record.value.encode()))


def shout(record: Record[str, str], context: ProcessorContext[int, str]) -> Iterator[Record[int, str]]:
    yield record.with_key(len(record.key)).with_value(record.value.upper())


def quietly(
    record: FixedKeyRecord[str, str], context: FixedKeyProcessorContext[str, bytes]
) -> Iterator[FixedKeyRecord[str, bytes]]:
    yield record.with_value(record.value.encode())


builder.add_state_store(key_value_store("st", key=text, value=text))
reveal_type(lines.process(Lengths, stores=["st"]))  # KStream[int, str]
reveal_type(lines.process_values(Upper))  # KStream[str, bytes]
reveal_type(lines.process(shout, key=serdes.INT64))  # KStream[int, str]
reveal_type(lines.process_values(quietly))  # KStream[str, bytes]
reveal_type(builder.build())  # Topology
Topology().add_source("s", "in", key=text).add_processor("p", Lengths, "s").add_sink("k", "out", "p")

lengths.map_values(lambda v: v.upper())  # error
lines.to("out", value=serdes.INT64)  # error
lines.merge(lengths)  # error
lengths.process(Lengths)  # error
lengths.process(shout)  # error
lines.map_values(len, value=text)  # error
words.count(materialized=Materialized(value=text))  # error
lines.group_by(lambda k, v: v, key=serdes.INT64)  # error

rows = builder.table("rows", key=text, value=text)
numbers = builder.table("numbers", key=text, value=serdes.INT64)
everywhere = builder.global_table("everywhere", key=serdes.INT64, value=text)
by_text = rows.group_by(lambda k, v: (v, len(v)), key=text, value=serdes.INT64)
reveal_type(by_text.reduce(lambda a, v: a + v, lambda a, v: a - v))  # KTable[str, int]
reveal_type(rows.join(numbers, lambda v, n: v * n))  # KTable[str, str]
reveal_type(lines.join(everywhere, lambda v, row: v + row, on=lambda k, v: len(v)))  # KStream[str, str]


def late(key: str, value: int, total: int, record: RecordContext) -> int:
    return total + value + record.timestamp


reveal_type(by_text.aggregate(lambda: 0, with_context(late), lambda k, v, a: a - v))  # KTable[str, int]


def sent_at(key: str, value: str, timestamp_ms: int, partition_time_ms: int, record: RecordContext) -> int:
    return record.offset


reveal_type(builder.stream("at", key=text, value=text, timestamp_extractor=with_context(sent_at)))  # KStream[str, str]

lengths.filter(lambda k, v: v.startswith("a"))  # error
lengths.select_key(lambda k, v: v.upper())  # error
lengths.foreach(lambda k, v: print(v.upper()))  # error
lines.group_by_key().reduce(lambda a, v: len(a))  # error
lines.group_by_key().aggregate(lambda: 0, lambda k, v, a: a + v, value=serdes.INT64)  # error
lines.group_by_key().aggregate(lambda: 0, lambda k, v, a: a + v)  # error
lines.group_by_key().windowed_by(TimeWindows.of(5)).aggregate(lambda: 0, lambda k, v, a: a + v)  # error
groups.aggregate(lambda: 0, lambda k, v, a: a + v, lambda k, v, a: a)  # error
sums.aggregate(list, lambda k, v, a: [*a, ""], materialized=Materialized(value=serdes.json(list[int])))  # error
lines.join(numbers, lambda v, n: n.upper())  # error
lines.join(lengths, lambda v, n: v + n, JoinWindows.of(5))  # error
lines.join(everywhere, lambda v, row: row, on=lambda k, v: v)  # error
rows.join(numbers, lambda v, n: v + n)  # error
rows.map_values(lambda v: v.upper() + 1)  # error
rows.group_by(lambda k, v: v, key=text, value=text)  # error
by_text.reduce(lambda a, v: a.upper(), lambda a, v: a)  # error
by_text.aggregate(lambda: 0, with_context(lambda k, v, a: a), lambda k, v, a: a)  # error
rows.transform_values(lambda: len)  # error
builder.stream("late", key=text, value=text, timestamp_extractor=with_context(late))  # error
lines.print(with_context=lambda k, v, record: len(v))  # error
