"""Stateless operators, repartitions, aggregations, tables and processors."""

from __future__ import annotations

import re
from typing import Any

from streams_py.serdes import INT64, STRING
from streams_py.topology.declare.nodes import Punctuation, RecordContext
from streams_py.topology.declare.stores import key_value_store, timestamped_key_value_store
from streams_py.topology.dsl.builder import StreamsBuilder
from streams_py.topology.dsl.kstream import KStream
from streams_py.topology.dsl.options import Materialized
from streams_py.topology.topology import Topology
from tests.conformance.programs.registry import Program, Text, dsl, register, stream, table
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


def _first_of_value(key: Text, value: Text) -> Text:
    return first(value)


def _short_sum(left: str, right: str) -> str:
    return tail(left + right, 8)


# -- stateless -----------------------------------------------------------------------------------------------


@dsl("P01")
def _(builder: StreamsBuilder) -> None:
    s = stream(builder, "in")
    s.filter(lambda k, v: has(v, "a")).map_values(upper).to("out")
    s.filter_not(lambda k, v: has(v, "a")).to("out2")


@dsl("P02")
def _(builder: StreamsBuilder) -> None:
    s = stream(builder, "in")
    s.map(lambda k, v: (first(v), show(k) + show(v))).to("out-map")
    s.flat_map(lambda k, v: [(c, show(k) + c) for c in show(v)]).to("out-flat")
    s.select_key(_first_of_value).to("out-key")


@dsl("P03")
def _(builder: StreamsBuilder) -> None:
    s: KStream[Text, Text] = builder.stream("in", key=STRING, value=STRING, name="src")
    letters = s.flat_map_values(lambda v: list(show(v)), name="letters").peek(noop, name="look")
    letters.filter(lambda k, v: v != "b", name="no-b").to("out", name="snk")
    s.map_values(with_key=lambda k, v: length(k) * 100 + length(v), name="len").to("out-len", value=INT64)


@dsl("P04")
def _(builder: StreamsBuilder) -> None:
    split = stream(builder, "in").split(name="sp-").branch(lambda k, v: has(v, "a"), name="a")
    m = split.branch(lambda k, v: has(v, "b")).default_branch(name="rest")
    m["sp-a"].to("out-a")
    m["sp-2"].to("out-2")
    m["sp-rest"].merge(m["sp-a"], name="both").to("out-rest")


@dsl("P05")
def _(builder: StreamsBuilder) -> None:
    s = stream(builder, "in")
    m = s.split().branch(lambda k, v: has(v, "a")).branch(lambda k, v: has(v, "b")).no_default_branch()
    m["KSTREAM-BRANCH-00000000011"].to("out-1")
    m["KSTREAM-BRANCH-00000000012"].to("out-2")
    d = s.split().branch(lambda k, v: has(v, "c")).default_branch()
    d["KSTREAM-BRANCH-00000000060"].to("out-3")


def _chooser(key: Text, value: Text, record: RecordContext) -> str:
    return f"out-{'a' if has(value, 'a') else record.topic}"


@dsl("P06")
def _(builder: StreamsBuilder) -> None:
    stream(builder, "a").merge(stream(builder, "b")).to(_chooser)


@dsl("P07")
def _(builder: StreamsBuilder) -> None:
    s = stream(builder, "a", "b")
    s.foreach(noop)
    s.map_values(upper).peek(noop).to("out")


@dsl("P08", available_topics=("in-1", "in-2"))
def _(builder: StreamsBuilder) -> None:
    builder.stream(re.compile("in-.*"), key=STRING, value=STRING).map_values(upper).to("out")


# -- repartition, aggregations of streams --------------------------------------------------------------------


@dsl("P09")
def _(builder: StreamsBuilder) -> None:
    stream(builder, "in").map(lambda k, v: (first(v), v)).repartition().to("out")


@dsl("P10")
def _(builder: StreamsBuilder) -> None:
    r = stream(builder, "in").select_key(_first_of_value)
    r = r.repartition(name="rep", key=STRING, value=STRING, partitions=3)
    r.group_by_key().count().to_stream().to("out")
    r.to("copy")


@dsl("P11")
def _(builder: StreamsBuilder) -> None:
    s = builder.stream("in", key=STRING, value=INT64)
    s.repartition().map_values(lambda v: num(v) * 2).to("out", value=INT64)


@dsl("P12")
def _(builder: StreamsBuilder) -> None:
    stream(builder, "in").select_key(_first_of_value).group_by_key().count().to_stream().to("out")


@dsl("P13")
def _(builder: StreamsBuilder) -> None:
    counts = Materialized[Text, int](key=STRING, value=INT64)
    stream(builder, "in").group_by(_first_of_value).count(materialized=counts).to_stream().to("out")


@dsl("P14")
def _(builder: StreamsBuilder) -> None:
    stream(builder, "in").group_by(_first_of_value).count(materialized=Materialized("cnt")).to_stream().to("out")


@dsl("P15")
def _(builder: StreamsBuilder) -> None:
    g = stream(builder, "in").group_by(_first_of_value, name="grp", key=STRING, value=STRING)
    g.count().to_stream().to("out")
    g.reduce(_short_sum, store="red").to_stream().to("out2")


@dsl("P16")
def _(builder: StreamsBuilder) -> None:
    grouped = stream(builder, "in").group_by_key()
    grouped.reduce(lambda x, y: None if y == "x" else _short_sum(x, y)).to_stream().to("out")


@dsl("P17")
def _(builder: StreamsBuilder) -> None:
    def add(key: str, value: int, total: int) -> int | None:
        result = total + value
        return None if result % 7 == 0 else result

    kept = Materialized[str, int]("sum", key=STRING, value=INT64)
    grouped = builder.stream("in", key=STRING, value=INT64).group_by_key()
    grouped.aggregate(lambda: 1, add, name="agg", materialized=kept).to_stream(name="ts").to("out")


@dsl("P18")
def _(builder: StreamsBuilder) -> None:
    kept = Materialized[Text, str]("off", key=STRING, value=STRING, logging=False, caching=False)
    grouped = stream(builder, "in").group_by_key()
    grouped.aggregate(lambda: "", lambda k, v, agg: push(agg, v), materialized=kept).to_stream().to("out")


def _two_aggregations(builder: StreamsBuilder) -> None:
    s = stream(builder, "in").select_key(_first_of_value)
    s.group_by_key().count().to_stream().to("out")
    s.group_by_key().reduce(_short_sum).to_stream().to("out2")


dsl("P19")(_two_aggregations)
dsl("P20", optimization="all")(_two_aggregations)


@dsl("P21", optimization="merge.repartition.topics")
def _(builder: StreamsBuilder) -> None:
    s = stream(builder, "in").select_key(_first_of_value)
    s.group_by_key().count().to_stream().to("out")
    s.map_values(upper).group_by_key().count().to_stream().to("out2")
    s.repartition(name="own", key=STRING).group_by_key().count().to_stream().to("out3")
    s.filter(lambda k, v: has(v, "a")).group_by_key().count().to_stream().to("out4")


@dsl("P22", optimization="all")
def _(builder: StreamsBuilder) -> None:
    m = stream(builder, "a").select_key(_first_of_value).merge(stream(builder, "b"))
    m.group_by_key().count().to_stream().to("out")
    m.group_by_key().count(store="second").to_stream().to("out2")


@dsl("P23")
def _(builder: StreamsBuilder) -> None:
    stream(builder, "s").to("o")
    stream(builder, "s").map_values(upper).to("o2")


# -- tables --------------------------------------------------------------------------------------------------


@dsl("P62")
def _(builder: StreamsBuilder) -> None:
    t = table(builder, "t")
    t.filter(lambda k, v: has(v, "a")).map_values(upper).to_stream().to("out")
    u = builder.table("u", materialized=Materialized("u-store", key=STRING, value=STRING))
    kept = Materialized[str, str]("f", key=STRING, value=STRING)
    u.filter(lambda k, v: has(v, "a"), materialized=kept).to_stream().to("out2")
    mapped = u.map_values(with_key=lambda k, v: show(k) + v, materialized=Materialized(key=STRING, value=STRING))
    mapped.filter_not(lambda k, v: has(v, "b")).to_stream().to("out3")


@dsl("P63")
def _(builder: StreamsBuilder) -> None:
    grouped = table(builder, "x").group_by(lambda k, v: (first(v), k), key=STRING, value=STRING)
    grouped.count().to_stream().to("out")


@dsl("P64")
def _(builder: StreamsBuilder) -> None:
    def subtract(total: Text, old: Text) -> Text:
        return None if old == "x" else tail(f"{total}~{old}", 12)

    grouped = table(builder, "x").group_by(lambda k, v: (first(v), v), name="tg", key=STRING, value=STRING)
    kept = Materialized[Text, Text]("trs", key=STRING, value=STRING)
    result = grouped.reduce(lambda x, y: tail(f"{x}+{y}", 12), subtract, name="tr", materialized=kept)
    result.to_stream().to("out")


@dsl("P65")
def _(builder: StreamsBuilder) -> None:
    x = builder.table("x", key=STRING, value=INT64)
    grouped = x.group_by(lambda k, v: (first(k), v), key=STRING, value=INT64)
    kept = Materialized[Any, int]("ta", key=STRING, value=INT64)
    result = grouped.aggregate(
        lambda: 0, lambda k, v, total: total + v, lambda k, v, total: total - v, materialized=kept
    )
    result.to_stream().to("out")


@dsl("P66")
def _(builder: StreamsBuilder) -> None:
    kept = Materialized[Text, Text]("tt", key=STRING, value=STRING)
    stream(builder, "a").select_key(_first_of_value).to_table(materialized=kept).to_stream().to("out")
    stream(builder, "b").to_table(name="plain").to_stream().to("out2")


# -- processors ----------------------------------------------------------------------------------------------


@dsl("P68")
def _(builder: StreamsBuilder) -> None:
    builder.add_state_store(key_value_store("st", key=STRING, value=INT64))
    processed = stream(builder, "in").process(lambda: Counter("st", 10, Punctuation.STREAM_TIME, 3), stores=["st"])
    processed.to("out")


@dsl("P69")
def _(builder: StreamsBuilder) -> None:
    builder.add_state_store(key_value_store("st", key=STRING, value=INT64))
    processed = stream(builder, "in").process(
        lambda: Counter("st", 1000, Punctuation.WALL_CLOCK_TIME, 4), stores=["st"], name="proc"
    )
    processed.group_by_key().count().to_stream().to("out")


@dsl("P70")
def _(builder: StreamsBuilder) -> None:
    builder.add_state_store(timestamped_key_value_store("prev", key=STRING, value=STRING, caching=True))
    processed = stream(builder, "in").process_values(lambda: Previous("prev"), stores=["prev"])
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


register(Program("P72", _shared_store))
