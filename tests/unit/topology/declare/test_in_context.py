"""``with_context=``: functions that need facts about the current record."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest

from streams_py import (
    JoinWindows,
    RecordContext,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    TimeWindows,
    TopologyError,
    UnlimitedWindows,
    ValueTransformer,
    ValueTransformerContext,
    serdes,
    with_context,
)
from streams_py.testing import TopologyTestDriver

S = serdes.STRING
Make = Callable[[StreamsBuilder[Any, Any], Callable[..., Any]], Any]


def stream(builder: StreamsBuilder[Any, Any]) -> Any:
    return builder.stream("in")


def windowed(windows: Any) -> Make:
    def make(builder: StreamsBuilder[Any, Any], ask: Callable[..., Any]) -> Any:
        return stream(builder).group_by_key().windowed_by(windows).aggregate(lambda: "", with_context=ask)

    return make


def grouped_table(builder: StreamsBuilder[Any, Any]) -> Any:
    return builder.table("in").group_by(lambda k, v: (k, v), key=S, value=S)


class Asking(ValueTransformer[Any, Any, Any]):
    """Passes the facts of its context to its function."""

    def __init__(self, ask: Callable[..., Any]) -> None:
        self._ask = ask

    def init(self, context: ValueTransformerContext) -> None:
        self._record = context.record

    def transform(self, key: Any, value: Any) -> Any:
        return self._ask(key, value, self._record)


MAKERS: dict[str, Make] = {
    "select_key": lambda b, ask: stream(b).select_key(with_context=ask),
    "group_by": lambda b, ask: stream(b).group_by(with_context=ask).count(),
    "branch": lambda b, ask: stream(b).split().branch(with_context=ask).default_branch(),
    "aggregate": lambda b, ask: stream(b).group_by_key().aggregate(lambda: "", with_context=ask),
    "reduce": lambda b, ask: stream(b).group_by_key().reduce(with_context=ask),
    "time windows": windowed(TimeWindows.of(10)),
    "unlimited windows": windowed(UnlimitedWindows.of()),
    "sliding windows": windowed(SlidingWindows.of(10)),
    "sessions": lambda b, ask: (
        stream(b)
        .group_by_key()
        .windowed_by(SessionWindows.of(10))
        .aggregate(lambda: "", merger=lambda k, x, y: x + y, with_context=ask)
    ),
    "reduce in windows": lambda b, ask: (
        stream(b).group_by_key().windowed_by(TimeWindows.of(10)).reduce(with_context=ask)
    ),
    "reduce in sessions": lambda b, ask: (
        stream(b).group_by_key().windowed_by(SessionWindows.of(10)).reduce(with_context=ask)
    ),
    "cogroup": lambda b, ask: stream(b).group_by_key().cogroup(with_context=ask).aggregate(lambda: ""),
    "cogroup, second": lambda b, ask: (
        b.stream("other")
        .group_by_key()
        .cogroup(lambda k, v, a: a)
        .cogroup(stream(b).group_by_key(), with_context=ask)
        .aggregate(lambda: "")
    ),
    "stream-table join": lambda b, ask: stream(b).join(b.table("other"), with_context=ask),
    "stream-global-table join": lambda b, ask: stream(b).left_join(
        b.global_table("other"), on=lambda k, v: k, with_context=ask
    ),
    "stream-stream join": lambda b, ask: stream(b).join(b.stream("other"), windows=JoinWindows.of(9), with_context=ask),
    "table-table join": lambda b, ask: b.table("other").join(b.table("in"), with_context=ask),
    "table-table left join": lambda b, ask: b.table("in").left_join(b.table("other"), with_context=ask),
    "table filter": lambda b, ask: b.table("in").filter(with_context=ask),
    "table map_values": lambda b, ask: b.table("in").map_values(with_context=ask, store="s"),
    "table group_by": lambda b, ask: (
        b.table("in").group_by(with_context=lambda *given: (ask(*given), "x"), key=S, value=S).count()
    ),
    "initializer": lambda b, ask: stream(b).group_by_key().aggregate(with_context(ask), lambda k, v, a: None),
    "initializer of windows": lambda b, ask: (
        stream(b).group_by_key().windowed_by(TimeWindows.of(1)).aggregate(with_context(ask), lambda k, v, a: v)
    ),
    "initializer of sliding windows": lambda b, ask: (
        stream(b).group_by_key().windowed_by(SlidingWindows.of(1)).aggregate(with_context(ask), lambda k, v, a: v)
    ),
    "merger": lambda b, ask: (
        stream(b)
        .group_by_key()
        .windowed_by(SessionWindows.of(10))
        .aggregate(lambda: "", lambda k, v, a: v, with_context(ask))
    ),
    "merger of cogroup": lambda b, ask: (
        stream(b)
        .group_by_key()
        .cogroup(lambda k, v, a: v)
        .windowed_by(SessionWindows.of(10))
        .aggregate(lambda: "", with_context(ask))
    ),
    "adder": lambda b, ask: grouped_table(b).aggregate(lambda: "", with_context(ask), lambda k, v, a: a),
    "subtractor": lambda b, ask: grouped_table(b).aggregate(lambda: "", lambda k, v, a: v, with_context(ask)),
    "adder of reduce": lambda b, ask: grouped_table(b).reduce(with_context(ask), lambda a, v: a),
    "subtractor of reduce": lambda b, ask: grouped_table(b).reduce(lambda a, v: v, with_context(ask)),
    "global table join, on": lambda b, ask: stream(b).left_join(
        b.global_table("other"), lambda v, row: v, on=with_context(ask)
    ),
    "foreign-key join, on": lambda b, ask: b.table("in").left_join(
        b.table("other"), lambda v, row: v, on=with_context(ask)
    ),
    "foreign-key join": lambda b, ask: b.table("in").join(b.table("other"), on=lambda k, v: "a", with_context=ask),
    "transform_values": lambda b, ask: b.table("in").transform_values(lambda: Asking(ask)),
    "to_stream": lambda b, ask: b.table("in").to_stream(with_context=ask),
    "print": lambda b, ask: stream(b).print(with_context=ask, file=io.StringIO()),
}

BEHIND_INTERNAL_TOPICS = ("adder", "subtractor", "adder of reduce", "subtractor of reduce", "foreign-key join")


@pytest.mark.parametrize("maker", MAKERS)
def test_function_gets_the_context_of_the_record_in_process(maker: str) -> None:
    seen: list[Any] = []

    def ask(*given: Any) -> str:
        *_, record = given
        seen.append((record.topic, record.offset, record.timestamp, list(record.headers)))
        return "result"

    builder = StreamsBuilder(key=S, value=S)
    MAKERS[maker](builder, ask)
    with TopologyTestDriver(builder.build()) as driver:
        if "other" in maker or "join" in maker or "second" in maker:
            driver.input_topic("other", key=S, value=S).send("a", "o", timestamp_ms=3)
        given = driver.input_topic("in", key=S, value=S)
        given.send("a", "1", timestamp_ms=4)
        given.send("a", "2", timestamp_ms=5, headers=[("h", b"2")])
    assert seen[-1][2:] == (5, [("h", b"2")])
    if maker not in BEHIND_INTERNAL_TOPICS:
        assert seen[-1][:2] == ("in", 1)


def test_context_of_a_repartitioned_record_is_that_of_the_internal_topic_with_the_same_headers() -> None:
    seen: list[Any] = []
    builder = StreamsBuilder(key=S, value=S)
    grouped = builder.stream("in").group_by(lambda k, v: v, name="g")
    grouped.aggregate(lambda: "", with_context=lambda k, v, a, record: seen.append((record.topic, record.headers)) or v)
    with TopologyTestDriver(builder.build()) as driver:
        driver.input_topic("in", key=S, value=S).send("a", "1", headers=[("h", b"2")])
    assert [(topic, list(headers)) for topic, headers in seen] == [("test-g-repartition", [("h", b"2")])]


@pytest.mark.parametrize("by", ["source", "setting"])
def test_timestamp_extractor_may_ask_where_its_own_record_is_from(by: str) -> None:
    seen: list[Any] = []

    def sent_at(key: Any, value: Any, timestamp_ms: int, partition_time_ms: int, record: RecordContext) -> int:
        seen.append((value, record.topic, record.partition, record.offset, record.timestamp, timestamp_ms))
        return int(dict(record.headers)["at"] or b"")

    extractor = with_context(sent_at)
    builder = StreamsBuilder(key=S, value=S)
    streams = [builder.stream(topic, timestamp_extractor=extractor if by == "source" else None) for topic in "ab"]
    streams[0].merge(streams[1]).to("out")
    with TopologyTestDriver(builder.build(), {"default.timestamp.extractor": extractor}) as driver:
        for topic, value, at in (("a", "1", b"70"), ("b", "2", b"50"), ("a", "3", b"60")):
            driver.input_topic(topic, key=S, value=S).send("k", value, timestamp_ms=9, headers=[("at", at)])
        out = driver.output_topic("out", key=S, value=S).read_all()
    assert [(record.value, record.timestamp) for record in out] == [("1", 70), ("2", 50), ("3", 60)]
    assert seen == [("1", "a", 0, 0, 9, 9), ("2", "b", 0, 0, 9, 9), ("3", "a", 0, 1, 9, 9)]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s.group_by_key().reduce(), r"reduce needs one function: f\(result, value\), or with_context=f"),
        (lambda s: s.group_by_key().reduce(max, with_context=lambda a, b, c: a), "reduce needs one function"),
        (lambda s: s.split().branch(), "branch needs one function"),
        (lambda s: s.print(line=print, with_context=print), "print takes one function"),
        (lambda s: s.join(s.to_table(), with_key=print, with_context=print), "join needs one function"),
        (lambda s: s.to_table().filter(with_context=lambda k, v: v), r"with_context is called with 3 arguments"),
        (lambda s: s.group_by_key().windowed_by(SessionWindows.of(1)).aggregate(str, print), "needs a merger"),
        (lambda s: s.filter(with_context(print)), r"filter: predicate cannot be with_context\(f\).*with_context=f"),
        (
            lambda s: s.group_by_key().aggregate(with_context(lambda: ""), print),
            r"aggregate: initializer, with_context is called with 1 argument, \(record context\)",
        ),
    ],
)
def test_too_few_too_many_or_wrong_functions_are_refused_by_the_call(call: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        call(StreamsBuilder().stream("in"))


def test_topic_chooser_sees_the_time_of_what_is_written() -> None:
    builder = StreamsBuilder(key=S, value=S)
    counts = stream(builder).group_by_key().count().to_stream()
    counts.to(lambda key, count, record: f"out-{record.timestamp}", value=serdes.INT64)
    with TopologyTestDriver(builder.build()) as driver:
        source = driver.input_topic("in", key=S, value=S)
        source.send("k", "v", timestamp_ms=10)
        source.send("k", "late", timestamp_ms=5)
        assert driver.output_topic("out-10", key=S, value=serdes.INT64).read_pairs() == [("k", 1), ("k", 2)]
