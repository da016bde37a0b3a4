"""Windowed aggregations, suppression, cogrouped streams."""

from __future__ import annotations

from streams_py.serdes import INT64, STRING
from streams_py.topology.declare.windows import EmitStrategy, SessionWindows, SlidingWindows, TimeWindows
from streams_py.topology.dsl.builder import StreamsBuilder
from streams_py.topology.dsl.options import Materialized
from streams_py.topology.dsl.suppressed import Suppressed
from tests.conformance.programs.registry import Text, dsl, stream, table
from tests.conformance.programs.user_code import first, has, push, show, tail, upper

_ON_CLOSE = EmitStrategy.ON_WINDOW_CLOSE
_LONG_MS = 1_000_000


def _texts(store: str | None = None, retention: int | None = None) -> Materialized[Text, Text]:
    return Materialized(store, key=STRING, value=STRING, retention=retention)


def _first_of_value(key: Text, value: Text) -> Text:
    return first(value)


def _empty() -> str:
    return ""


def _push(key: Text, value: Text, aggregate: Text) -> Text:
    return push(aggregate, value)


def _merge(key: Text, x: Text, y: Text) -> Text:
    return tail(f"{x}&{y}", 12)


# -- every update --------------------------------------------------------------------------------------------


@dsl("P24")
def _(builder: StreamsBuilder) -> None:
    stream(builder, "in").group_by_key().windowed_by(TimeWindows.of(10)).count().to_stream().to("out")


@dsl("P25")
def _(builder: StreamsBuilder) -> None:
    windowed = stream(builder, "in").group_by_key().windowed_by(TimeWindows.of(30, grace=15, advance=10))
    windowed.aggregate(_empty, _push, materialized=_texts("hop")).to_stream().to("out")


@dsl("P26")
def _(builder: StreamsBuilder) -> None:
    grouped = stream(builder, "in").group_by(_first_of_value, name="g", key=STRING, value=STRING)
    windowed = grouped.windowed_by(TimeWindows.of(10, grace=10))
    reduced = windowed.reduce(
        lambda x, y: tail(x + show(y), 8), name="wr", materialized=_texts("wr-store", retention=200)
    )
    reduced.to_stream(lambda wk, v: show(wk)).to("out")


@dsl("P27")
def _(builder: StreamsBuilder) -> None:
    windowed = stream(builder, "in").group_by_key().windowed_by(SlidingWindows.of(10, grace=20))
    windowed.count().to_stream().to("out")


@dsl("P28")
def _(builder: StreamsBuilder) -> None:
    windowed = stream(builder, "in").group_by_key().windowed_by(SlidingWindows.of(15))
    windowed.aggregate(_empty, _push, materialized=_texts("sl")).to_stream().to("out")


@dsl("P29")
def _(builder: StreamsBuilder) -> None:
    windowed = stream(builder, "in").group_by_key().windowed_by(SessionWindows.of(10, grace=20))
    windowed.count().to_stream().to("out")


@dsl("P30")
def _(builder: StreamsBuilder) -> None:
    windowed = stream(builder, "in").group_by_key().windowed_by(SessionWindows.of(8))
    windowed.aggregate(_empty, _push, _merge, materialized=_texts("ses")).to_stream().to("out")


@dsl("P31")
def _(builder: StreamsBuilder) -> None:
    keyed = stream(builder, "in").filter(lambda k, v: v is not None).select_key(_first_of_value)
    windowed = keyed.group_by_key(key=STRING, value=STRING).windowed_by(SessionWindows.of(5, grace=10))
    windowed.reduce(lambda x, y: tail(x + y, 8)).to_stream().to("out")


# -- final results -------------------------------------------------------------------------------------------


@dsl("P32")
def _(builder: StreamsBuilder) -> None:
    kept = Materialized[Text, int]("eoc", key=STRING, value=INT64, retention=_LONG_MS)
    windowed = stream(builder, "in").group_by_key().windowed_by(TimeWindows.of(10, grace=10), emit=_ON_CLOSE)
    windowed.count(materialized=kept).to_stream().to("out")


@dsl("P33")
def _(builder: StreamsBuilder) -> None:
    grouped = stream(builder, "in").group_by(_first_of_value, key=STRING, value=STRING)
    windowed = grouped.windowed_by(TimeWindows.of(20, grace=5, advance=5), emit=_ON_CLOSE)
    windowed.aggregate(_empty, _push, materialized=_texts("eoc", _LONG_MS)).to_stream().to("out")


@dsl("P34")
def _(builder: StreamsBuilder) -> None:
    windowed = stream(builder, "in").group_by_key().windowed_by(SlidingWindows.of(10, grace=10), emit=_ON_CLOSE)
    windowed.aggregate(_empty, _push, materialized=_texts("eoc", _LONG_MS)).to_stream().to("out")


@dsl("P35")
def _(builder: StreamsBuilder) -> None:
    windowed = stream(builder, "in").group_by_key().windowed_by(SessionWindows.of(8, grace=10), emit=_ON_CLOSE)
    windowed.aggregate(_empty, _push, _merge, materialized=_texts("eoc", _LONG_MS)).to_stream().to("out")


# -- suppression ---------------------------------------------------------------------------------------------


@dsl("P36")
def _(builder: StreamsBuilder) -> None:
    counts = stream(builder, "in").group_by_key().windowed_by(TimeWindows.of(10, grace=5)).count()
    counts.suppress(Suppressed.until_window_closes()).to_stream().to("out")


@dsl("P37")
def _(builder: StreamsBuilder) -> None:
    grouped = stream(builder, "in").group_by(_first_of_value, key=STRING, value=STRING)
    windowed = grouped.windowed_by(TimeWindows.of(20, grace=10, advance=10))
    kept = windowed.aggregate(_empty, _push, materialized=_texts("w")).filter(lambda wk, v: not has(v, "x"))
    kept.suppress(Suppressed.until_window_closes(), name="sup").to_stream().to("out")


@dsl("P38")
def _(builder: StreamsBuilder) -> None:
    counts = stream(builder, "in").group_by_key().windowed_by(SessionWindows.of(6, grace=10)).count()
    counts.suppress(Suppressed.until_window_closes()).to_stream().to("out")


@dsl("P39")
def _(builder: StreamsBuilder) -> None:
    table(builder, "t").suppress(Suppressed.until_time_limit(15)).to_stream().to("out")


@dsl("P40")
def _(builder: StreamsBuilder) -> None:
    counts = stream(builder, "in").group_by_key(key=STRING, value=STRING).count()
    counts.suppress(Suppressed.until_time_limit(40, max_records=2), name="lim").to_stream().to("out")


# -- cogrouped streams ---------------------------------------------------------------------------------------


@dsl("P41")
def _(builder: StreamsBuilder) -> None:
    cogrouped = stream(builder, "a").group_by_key().cogroup(_push)
    other = builder.stream("b", key=STRING, value=INT64)
    cogrouped = cogrouped.cogroup(other.group_by_key(), lambda k, v, agg: push(agg, v * 2))
    cogrouped.aggregate(_empty, name="cg", materialized=_texts("co")).to_stream().to("out")


@dsl("P42")
def _(builder: StreamsBuilder) -> None:
    a, b = stream(builder, "a"), stream(builder, "b")
    cogrouped = a.group_by_key().cogroup(_push)
    cogrouped = cogrouped.cogroup(b.group_by(_first_of_value), lambda k, v, agg: push(agg, upper(v)))
    windowed = cogrouped.windowed_by(TimeWindows.of(20, grace=10))
    windowed.aggregate(_empty, materialized=_texts()).to_stream().to("out")


@dsl("P43")
def _(builder: StreamsBuilder) -> None:
    cogrouped = stream(builder, "a").group_by_key(key=STRING, value=STRING).cogroup(_push)
    cogrouped = cogrouped.cogroup(stream(builder, "b").group_by_key(key=STRING, value=STRING), _push)
    keyed = stream(builder, "c").select_key(_first_of_value)
    cogrouped = cogrouped.cogroup(keyed.group_by_key(name="third", key=STRING, value=STRING), _push)
    windowed = cogrouped.windowed_by(SessionWindows.of(8, grace=10))
    windowed.aggregate(_empty, _merge, materialized=_texts("cs")).to_stream().to("out")


@dsl("P44")
def _(builder: StreamsBuilder) -> None:
    cogrouped = stream(builder, "a").group_by_key(key=STRING, value=STRING).cogroup(_push)
    other = stream(builder, "b").group_by_key(key=STRING, value=STRING)
    cogrouped = cogrouped.cogroup(other, lambda k, v, agg: push(agg, upper(v)))
    windowed = cogrouped.windowed_by(SlidingWindows.of(10, grace=10))
    windowed.aggregate(_empty, name="cgs", materialized=_texts("sl")).to_stream().to("out")
