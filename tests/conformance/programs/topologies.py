"""The programs behind the recorded topology vectors, written with this library.

Each is known by its id there. Calls are made in the order that was recorded: names depend on it. Settings of all runs:
``application.id`` is ``app``, default key and value serde is string.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from streams_py.serdes import INT64, STRING
from streams_py.topology.dsl.builder import StreamsBuilder
from streams_py.topology.dsl.kstream import KStream
from streams_py.topology.dsl.ktable import KTable
from streams_py.topology.dsl.options import Materialized
from streams_py.topology.nodes import Punctuation, RecordContext
from streams_py.topology.stores import key_value_store, timestamped_key_value_store
from streams_py.topology.topology import Topology
from tests.conformance.case import NotSupportedCase
from tests.conformance.programs.user_code import (
    Counter,
    Lookup,
    Previous,
    Router,
    Writer,
    first,
    has,
    length,
    noop,
    num,
    push,
    show,
    tail,
    upper,
)

__all__ = ["APPLICATION_ID", "Program", "build_program", "program_of"]

APPLICATION_ID: Final = "app"
# Null keys and null values are part of the programs, which types could only say at the price of readability.
Text: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Program:
    """One program: how to build it, with which ``topology.optimization``, and the topics a pattern may match."""

    id: str
    make: Callable[[str], Topology]
    optimization: str
    available_topics: tuple[str, ...]


_PROGRAMS: Final[dict[str, Program]] = {}
_NOT_SUPPORTED: Final = {
    "windows": [*range(24, 36)],
    "suppress": [*range(36, 41)],
    "cogroup": [*range(41, 45)],
    "stream-stream joins": [*range(45, 52)],
    "stream-table joins": [*range(52, 56)],
    "table-table joins": [*range(56, 60), 67],
    "global tables and stores": [60, 61, 71],
}
_REASONS: Final = {f"P{number:02}": what for what, numbers in _NOT_SUPPORTED.items() for number in numbers}


def program_of(id: str) -> Program:
    """The program of that id; NotSupportedCase naming the missing feature, KeyError for an unknown id."""
    if id in _REASONS:
        raise NotSupportedCase(_REASONS[id])
    return _PROGRAMS[id]


def build_program(id: str, optimization: str | None = None) -> Topology:
    """Its topology; ``optimization`` None: the one recorded for it."""
    program = program_of(id)
    return program.make(program.optimization if optimization is None else optimization)


def _dsl(
    id: str, optimization: str = "none", available_topics: tuple[str, ...] = ()
) -> Callable[[Callable[[StreamsBuilder], None]], Callable[[StreamsBuilder], None]]:
    def register(describe: Callable[[StreamsBuilder], None]) -> Callable[[StreamsBuilder], None]:
        def make(optimization: str) -> Topology:
            builder = StreamsBuilder()
            describe(builder)
            return builder.build({"topology.optimization": optimization})

        _PROGRAMS[id] = Program(id, make, optimization, available_topics)
        return describe

    return register


def _stream(builder: StreamsBuilder, *topics: str) -> KStream[Text, Text]:
    return builder.stream(topics, key=STRING, value=STRING)


def _table(builder: StreamsBuilder, topic: str) -> KTable[str, str]:
    return builder.table(topic, key=STRING, value=STRING)


def _first_of_value(key: Text, value: Text) -> Text:
    return first(value)


def _short_sum(left: str, right: str) -> str:
    return tail(left + right, 8)


# -- stateless -----------------------------------------------------------------------------------------------


@_dsl("P01")
def _(builder: StreamsBuilder) -> None:
    s = _stream(builder, "in")
    s.filter(lambda k, v: has(v, "a")).map_values(upper).to("out")
    s.filter_not(lambda k, v: has(v, "a")).to("out2")


@_dsl("P02")
def _(builder: StreamsBuilder) -> None:
    s = _stream(builder, "in")
    s.map(lambda k, v: (first(v), show(k) + show(v))).to("out-map")
    s.flat_map(lambda k, v: [(c, show(k) + c) for c in show(v)]).to("out-flat")
    s.select_key(_first_of_value).to("out-key")


@_dsl("P03")
def _(builder: StreamsBuilder) -> None:
    s: KStream[Text, Text] = builder.stream("in", key=STRING, value=STRING, name="src")
    letters = s.flat_map_values(lambda v: list(show(v)), name="letters").peek(noop, name="look")
    letters.filter(lambda k, v: v != "b", name="no-b").to("out", name="snk")
    s.map_values(with_key=lambda k, v: length(k) * 100 + length(v), name="len").to("out-len", value=INT64)


@_dsl("P04")
def _(builder: StreamsBuilder) -> None:
    split = _stream(builder, "in").split(name="sp-").branch(lambda k, v: has(v, "a"), name="a")
    m = split.branch(lambda k, v: has(v, "b")).default_branch(name="rest")
    m["sp-a"].to("out-a")
    m["sp-2"].to("out-2")
    m["sp-rest"].merge(m["sp-a"], name="both").to("out-rest")


@_dsl("P05")
def _(builder: StreamsBuilder) -> None:
    s = _stream(builder, "in")
    m = s.split().branch(lambda k, v: has(v, "a")).branch(lambda k, v: has(v, "b")).no_default_branch()
    m["KSTREAM-BRANCH-00000000011"].to("out-1")
    m["KSTREAM-BRANCH-00000000012"].to("out-2")
    d = s.split().branch(lambda k, v: has(v, "c")).default_branch()
    d["KSTREAM-BRANCH-00000000060"].to("out-3")


def _chooser(key: Text, value: Text, record: RecordContext) -> str:
    return f"out-{'a' if has(value, 'a') else record.topic}"


@_dsl("P06")
def _(builder: StreamsBuilder) -> None:
    _stream(builder, "a").merge(_stream(builder, "b")).to(_chooser)


@_dsl("P07")
def _(builder: StreamsBuilder) -> None:
    s = _stream(builder, "a", "b")
    s.foreach(noop)
    s.map_values(upper).peek(noop).to("out")


@_dsl("P08", available_topics=("in-1", "in-2"))
def _(builder: StreamsBuilder) -> None:
    builder.stream(re.compile("in-.*"), key=STRING, value=STRING).map_values(upper).to("out")


# -- repartition, aggregations of streams --------------------------------------------------------------------


@_dsl("P09")
def _(builder: StreamsBuilder) -> None:
    _stream(builder, "in").map(lambda k, v: (first(v), v)).repartition().to("out")


@_dsl("P10")
def _(builder: StreamsBuilder) -> None:
    r = _stream(builder, "in").select_key(_first_of_value)
    r = r.repartition(name="rep", key=STRING, value=STRING, partitions=3)
    r.group_by_key().count().to_stream().to("out")
    r.to("copy")


@_dsl("P11")
def _(builder: StreamsBuilder) -> None:
    s = builder.stream("in", key=STRING, value=INT64)
    s.repartition().map_values(lambda v: num(v) * 2).to("out", value=INT64)


@_dsl("P12")
def _(builder: StreamsBuilder) -> None:
    _stream(builder, "in").select_key(_first_of_value).group_by_key().count().to_stream().to("out")


@_dsl("P13")
def _(builder: StreamsBuilder) -> None:
    counts = Materialized[Text, int](key=STRING, value=INT64)
    _stream(builder, "in").group_by(_first_of_value).count(materialized=counts).to_stream().to("out")


@_dsl("P14")
def _(builder: StreamsBuilder) -> None:
    _stream(builder, "in").group_by(_first_of_value).count(materialized=Materialized("cnt")).to_stream().to("out")


@_dsl("P15")
def _(builder: StreamsBuilder) -> None:
    g = _stream(builder, "in").group_by(_first_of_value, name="grp", key=STRING, value=STRING)
    g.count().to_stream().to("out")
    g.reduce(_short_sum, store="red").to_stream().to("out2")


@_dsl("P16")
def _(builder: StreamsBuilder) -> None:
    grouped = _stream(builder, "in").group_by_key()
    grouped.reduce(lambda x, y: None if y == "x" else _short_sum(x, y)).to_stream().to("out")


@_dsl("P17")
def _(builder: StreamsBuilder) -> None:
    def add(key: str, value: int, total: int) -> int | None:
        result = total + value
        return None if result % 7 == 0 else result

    kept = Materialized[str, int]("sum", key=STRING, value=INT64)
    grouped = builder.stream("in", key=STRING, value=INT64).group_by_key()
    grouped.aggregate(lambda: 1, add, name="agg", materialized=kept).to_stream(name="ts").to("out")


@_dsl("P18")
def _(builder: StreamsBuilder) -> None:
    kept = Materialized[Text, str]("off", key=STRING, value=STRING, logging=False, caching=False)
    grouped = _stream(builder, "in").group_by_key()
    grouped.aggregate(lambda: "", lambda k, v, agg: push(agg, v), materialized=kept).to_stream().to("out")


def _two_aggregations(builder: StreamsBuilder) -> None:
    s = _stream(builder, "in").select_key(_first_of_value)
    s.group_by_key().count().to_stream().to("out")
    s.group_by_key().reduce(_short_sum).to_stream().to("out2")


_dsl("P19")(_two_aggregations)
_dsl("P20", optimization="all")(_two_aggregations)


@_dsl("P21", optimization="merge.repartition.topics")
def _(builder: StreamsBuilder) -> None:
    s = _stream(builder, "in").select_key(_first_of_value)
    s.group_by_key().count().to_stream().to("out")
    s.map_values(upper).group_by_key().count().to_stream().to("out2")
    s.repartition(name="own", key=STRING).group_by_key().count().to_stream().to("out3")
    s.filter(lambda k, v: has(v, "a")).group_by_key().count().to_stream().to("out4")


@_dsl("P22", optimization="all")
def _(builder: StreamsBuilder) -> None:
    m = _stream(builder, "a").select_key(_first_of_value).merge(_stream(builder, "b"))
    m.group_by_key().count().to_stream().to("out")
    m.group_by_key().count(store="second").to_stream().to("out2")


@_dsl("P23")
def _(builder: StreamsBuilder) -> None:
    _stream(builder, "s").to("o")
    _stream(builder, "s").map_values(upper).to("o2")


# -- tables --------------------------------------------------------------------------------------------------


@_dsl("P62")
def _(builder: StreamsBuilder) -> None:
    t = _table(builder, "t")
    t.filter(lambda k, v: has(v, "a")).map_values(upper).to_stream().to("out")
    u = builder.table("u", materialized=Materialized("u-store", key=STRING, value=STRING))
    kept = Materialized[str, str]("f", key=STRING, value=STRING)
    u.filter(lambda k, v: has(v, "a"), materialized=kept).to_stream().to("out2")
    mapped = u.map_values(with_key=lambda k, v: show(k) + v, materialized=Materialized(key=STRING, value=STRING))
    mapped.filter_not(lambda k, v: has(v, "b")).to_stream().to("out3")


@_dsl("P63")
def _(builder: StreamsBuilder) -> None:
    grouped = _table(builder, "x").group_by(lambda k, v: (first(v), k), key=STRING, value=STRING)
    grouped.count().to_stream().to("out")


@_dsl("P64")
def _(builder: StreamsBuilder) -> None:
    def subtract(total: Text, old: Text) -> Text:
        return None if old == "x" else tail(f"{total}~{old}", 12)

    grouped = _table(builder, "x").group_by(lambda k, v: (first(v), v), name="tg", key=STRING, value=STRING)
    kept = Materialized[Text, Text]("trs", key=STRING, value=STRING)
    result = grouped.reduce(lambda x, y: tail(f"{x}+{y}", 12), subtract, name="tr", materialized=kept)
    result.to_stream().to("out")


@_dsl("P65")
def _(builder: StreamsBuilder) -> None:
    x = builder.table("x", key=STRING, value=INT64)
    grouped = x.group_by(lambda k, v: (first(k), v), key=STRING, value=INT64)
    kept = Materialized[Any, int]("ta", key=STRING, value=INT64)
    result = grouped.aggregate(
        lambda: 0, lambda k, v, total: total + v, lambda k, v, total: total - v, materialized=kept
    )
    result.to_stream().to("out")


@_dsl("P66")
def _(builder: StreamsBuilder) -> None:
    kept = Materialized[Text, Text]("tt", key=STRING, value=STRING)
    _stream(builder, "a").select_key(_first_of_value).to_table(materialized=kept).to_stream().to("out")
    _stream(builder, "b").to_table(name="plain").to_stream().to("out2")


# -- processors ----------------------------------------------------------------------------------------------


@_dsl("P68")
def _(builder: StreamsBuilder) -> None:
    builder.add_state_store(key_value_store("st", key=STRING, value=INT64))
    processed = _stream(builder, "in").process(lambda: Counter("st", 10, Punctuation.STREAM_TIME, 3), stores=["st"])
    processed.to("out")


@_dsl("P69")
def _(builder: StreamsBuilder) -> None:
    builder.add_state_store(key_value_store("st", key=STRING, value=INT64))
    processed = _stream(builder, "in").process(
        lambda: Counter("st", 1000, Punctuation.WALL_CLOCK_TIME, 4), stores=["st"], name="proc"
    )
    processed.group_by_key().count().to_stream().to("out")


@_dsl("P70")
def _(builder: StreamsBuilder) -> None:
    builder.add_state_store(timestamped_key_value_store("prev", key=STRING, value=STRING, caching=True))
    processed = _stream(builder, "in").process_values(lambda: Previous("prev"), stores=["prev"])
    processed.group_by_key().count().to_stream().to("out")


def _shared_store(optimization: str) -> Topology:
    topology = Topology()
    for topic in "abc":
        topology.add_source(f"src-{topic}", [topic], key=STRING, value=STRING)
    topology.add_processor("router", Router, ["src-c"])
    topology.add_processor("writer", lambda: Writer("sh"), ["src-a"])
    topology.add_processor("lookup", lambda: Lookup("sh"), ["src-b"])
    topology.add_state_store(key_value_store("sh", key=STRING, value=STRING), ["writer", "lookup"])
    topology.add_sink("left", "out-left", ["router"], key=STRING, value=STRING)
    topology.add_sink("right", "out-right", ["router"], key=STRING, value=STRING)
    topology.add_sink("found", "out", ["lookup"], key=STRING, value=STRING)
    return topology


_PROGRAMS["P72"] = Program("P72", _shared_store, "none", ())
