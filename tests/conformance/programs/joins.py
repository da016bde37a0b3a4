"""Joins of streams and tables."""

from __future__ import annotations

from streams_py.serdes import INT64, STRING
from streams_py.topology.declare.stores import key_value_store
from streams_py.topology.declare.windows import JoinWindows
from streams_py.topology.dsl.builder import StreamsBuilder
from streams_py.topology.dsl.options import Materialized
from tests.conformance.programs.registry import Text, dsl, stream, table
from tests.conformance.programs.user_code import Lookup, UpperGlobal, cat, first


def _first_of_value(key: Text, value: Text) -> Text:
    return first(value)


# -- streams with streams ------------------------------------------------------------------------------------


@dsl("P45")
def _(builder: StreamsBuilder) -> None:
    a, b = stream(builder, "a"), stream(builder, "b")
    a.join(b, cat, JoinWindows.of(10), key=STRING, value=STRING, other_value=STRING).to("out")


@dsl("P46")
def _(builder: StreamsBuilder) -> None:
    a, b = stream(builder, "a"), builder.stream("b", key=STRING, value=INT64)
    windows = JoinWindows.of(10, grace=8, before=4)
    a.left_join(b, cat, windows, key=STRING, value=STRING, other_value=INT64).to("out")


@dsl("P47")
def _(builder: StreamsBuilder) -> None:
    a, b = stream(builder, "a"), stream(builder, "b")
    windows = JoinWindows.of(6, grace=4, after=12)
    a.outer_join(b, cat, windows, key=STRING, value=STRING, other_value=STRING).to("out")


@dsl("P48")
def _(builder: StreamsBuilder) -> None:
    a = stream(builder, "a").select_key(_first_of_value)
    b = stream(builder, "b").select_key(_first_of_value)
    a.left_join(b, cat, JoinWindows.of(8), key=STRING, value=STRING, other_value=STRING).to("out")


@dsl("P49")
def _(builder: StreamsBuilder) -> None:
    a, b = stream(builder, "a").select_key(_first_of_value), stream(builder, "b")
    windows = JoinWindows.of(8, grace=8)
    a.outer_join(b, cat, windows, store="js", name="jn", key=STRING, value=STRING, other_value=STRING).to("out")


def _self_join(builder: StreamsBuilder) -> None:
    s = stream(builder, "s")
    windows = JoinWindows.of(7, grace=5, before=3)
    s.join(s, cat, windows, key=STRING, value=STRING, other_value=STRING).to("out")


dsl("P50")(_self_join)
dsl("P51", optimization="single.store.self.join")(_self_join)


# -- streams with tables -------------------------------------------------------------------------------------


@dsl("P52")
def _(builder: StreamsBuilder) -> None:
    stream(builder, "s").join(table(builder, "t"), cat).to("out")


@dsl("P53")
def _(builder: StreamsBuilder) -> None:
    t = table(builder, "t")
    stream(builder, "s").select_key(_first_of_value).left_join(t, cat).to("out")


@dsl("P54")
def _(builder: StreamsBuilder) -> None:
    t, u = table(builder, "t"), table(builder, "u")
    s2 = stream(builder, "s").select_key(_first_of_value)
    s2.join(t, cat).to("out")
    s2.join(u, cat).to("out2")


@dsl("P55")
def _(builder: StreamsBuilder) -> None:
    t, u = table(builder, "t"), table(builder, "u")
    s2 = stream(builder, "s").select_key(_first_of_value)
    s2.join(t, cat).to("out")
    s2.join(u, cat, name="jn", key=STRING, value=STRING).to("out2")


# -- global tables and stores --------------------------------------------------------------------------------


@dsl("P60")
def _(builder: StreamsBuilder) -> None:
    g = builder.global_table("g", key=STRING, value=STRING)
    s = stream(builder, "s")
    s.join(g, cat, on=_first_of_value).to("out")
    s.left_join(g, cat, on=_first_of_value, name="glj").to("out2")


@dsl("P61")
def _(builder: StreamsBuilder) -> None:
    builder.global_table("g", materialized=Materialized("gs", key=STRING, value=STRING))
    stream(builder, "s").to("o")
    stream(builder, "s2").to("o2")


@dsl("P71")
def _(builder: StreamsBuilder) -> None:
    store = key_value_store("gs", key=STRING, value=STRING, logging=False)
    builder.add_global_store(store, "g", lambda: UpperGlobal("gs"), key=STRING, value=STRING)
    stream(builder, "s").process(lambda: Lookup("gs")).to("out")


# -- tables with tables --------------------------------------------------------------------------------------


@dsl("P56")
def _(builder: StreamsBuilder) -> None:
    table(builder, "x").join(table(builder, "y"), cat).to_stream().to("out")


@dsl("P57")
def _(builder: StreamsBuilder) -> None:
    kept = Materialized[str, Text]("joined", key=STRING, value=STRING)
    joined = table(builder, "x").left_join(
        table(builder, "y"), lambda v, w: None if w == "x" else cat(v, w), name="lj", materialized=kept
    )
    joined.to_stream().to("out")


@dsl("P58")
def _(builder: StreamsBuilder) -> None:
    kept = Materialized[str, str](key=STRING, value=STRING)
    table(builder, "x").outer_join(table(builder, "y"), cat, materialized=kept).to_stream().to("out")


@dsl("P59")
def _(builder: StreamsBuilder) -> None:
    x, y, z = (table(builder, topic) for topic in "xyz")
    joined = x.left_join(y, cat).outer_join(z, cat)
    grouped = joined.group_by(lambda k, v: (first(k), v), key=STRING, value=STRING)
    grouped.count().to_stream().to("out")


@dsl("P67", optimization="reuse.ktable.source.topics")
def _(builder: StreamsBuilder) -> None:
    x = builder.table("x", materialized=Materialized("xs", key=STRING, value=STRING))
    x.join(table(builder, "y"), cat).to_stream().to("out")
