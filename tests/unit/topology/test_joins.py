"""Joins: what is refused, what is stored, which repartitions are shared. Results are compared with recorded runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streams_py.errors import TopologyError
from streams_py.serdes import INT64, STRING
from streams_py.topology.dsl.builder import StreamsBuilder
from streams_py.topology.dsl.options import Materialized
from tests.unit.topology.fakes import FakeTask


def pair(left: Any, right: Any) -> str:
    return f"{left}+{right}"


# -- tables with tables --------------------------------------------------------------------------------------


def table_join(kind: str, **options: Any) -> FakeTask:
    builder = StreamsBuilder()
    left, right = builder.table("left"), builder.table("right")
    getattr(left, kind)(right, pair, **options).to_stream().to("out")
    return FakeTask(builder.build())


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("join", [("k", "a+b", 5), ("k", None, 6)]),
        ("left_join", [("k", "a+None", 3), ("k", "a+b", 5), ("k", None, 6)]),
        ("outer_join", [("k", "a+None", 3), ("k", "a+b", 5), ("k", "None+b", 6)]),
    ],
)
def test_tables_are_joined_by_key(kind: str, expected: list[tuple[Any, ...]]) -> None:
    task = table_join(kind)
    task.feed("left", "k", "a", 3)
    task.feed("right", "k", "b", 5)
    task.feed("right", None, "b", 5)
    task.feed("left", "k", None, 6)
    assert task.out() == expected
    assert len(task.dropped) == 1


def test_joined_table_is_stored_when_a_store_is_named() -> None:
    task = table_join("outer_join", store="joined")
    task.feed("left", "k", "a", 3)
    assert task.stores["joined"].rows == {"k": ("a+None", 3)}


def test_joiner_may_see_the_key() -> None:
    builder = StreamsBuilder()
    joined = builder.table("left").join(builder.table("right"), with_key=lambda k, a, b: f"{k}:{a}{b}")
    joined.to_stream().to("out")
    task = FakeTask(builder.build())
    task.feed("right", "k", "b", 5)
    task.feed("left", "k", "a", 3)
    assert task.out() == [("k", "k:ab", 5)]


def test_joined_table_that_is_not_stored_is_read_through_the_tables_below_it() -> None:
    builder = StreamsBuilder()
    a, b, c = (builder.table(topic) for topic in "abc")
    a.left_join(b, pair).filter(lambda k, v: v != "x+None").map_values(str.upper).join(c, pair).to_stream().to("out")
    task = FakeTask(builder.build())
    task.feed("a", "k", "x", 1)
    task.feed("c", "k", "c", 2)
    assert task.out() == []
    task.feed("b", "k", "y", 9)
    task.feed("c", "k", "d", 3)
    assert task.out() == [("k", "X+Y+c", 9), ("k", "X+Y+d", 9)]


def test_failing_joiner_is_the_failure_of_its_side() -> None:
    builder = StreamsBuilder()
    builder.table("left").outer_join(builder.table("right"), lambda a, b: a + b, name="sum").to_stream().to("out")
    task = FakeTask(builder.build())
    task.feed("left", "k", 1, 1)
    assert [failure[0] for failure in task.failures] == ["sum-join-this"]


# -- streams with tables -------------------------------------------------------------------------------------


def test_stream_is_joined_with_the_row_as_it_is_now() -> None:
    builder = StreamsBuilder()
    table = builder.table("t")
    stream = builder.stream("s")
    stream.join(table, pair).to("inner")
    stream.left_join(table, with_key=lambda k, v, row: (k, v, row)).to("left")
    task = FakeTask(builder.build())
    task.feed("s", "k", "early", 1)
    task.feed("t", "k", "row", 5)
    task.feed("s", "k", "late", 2)
    task.feed("s", None, "keyless", 3)
    task.feed("s", "k", None, 4)
    assert task.out("inner") == [("k", "late+row", 2)]
    assert task.out("left") == [
        ("k", ("k", "early", None), 1),
        ("k", ("k", "late", "row"), 2),
        (None, (None, "keyless", None), 3),
    ]
    assert len(task.dropped) == 3


def test_topics_joined_by_key_form_a_copartition_group() -> None:
    builder = StreamsBuilder(key=STRING, value=STRING)
    builder.stream("s").select_key(lambda k, v: v).join(builder.table("t"), pair).to("out")
    builder.table("x").join(builder.table("y"), pair).to_stream().to("out2")
    groups = builder.build().metadata("app").copartition_groups
    assert groups == (frozenset({"app-KSTREAM-KEY-SELECT-0000000001-repartition", "t"}), frozenset({"x", "y"}))


def test_serdes_given_to_a_join_are_those_of_its_repartition() -> None:
    builder = StreamsBuilder()
    table = builder.table("t", key=INT64, value=STRING)
    builder.stream("s").select_key(lambda k, v: 1).join(table, pair, key=INT64, value=STRING, name="j").to("out")
    nodes = {node.name: node for node in builder.build().nodes}
    sink: Any = nodes["j-repartition-sink"]
    assert (sink.key_serde, sink.value_serde) == (INT64, STRING)


# -- refused -------------------------------------------------------------------------------------------------

OTHER = StreamsBuilder()

REFUSED: list[tuple[str, Callable[[StreamsBuilder], object]]] = [
    ("tables of one builder", lambda b: b.table("a").join(OTHER.table("b"), pair)),
    ("stream and a table of one builder", lambda b: b.stream("a").join(OTHER.table("c"), pair)),
    ("needs one function", lambda b: b.table("a").join(b.table("b"))),
    ("needs one function", lambda b: b.stream("a").join(b.table("b"), pair, with_key=lambda k, v, w: v)),
    (
        "either materialized= or store=",
        lambda b: b.table("a").join(b.table("b"), pair, store="s", materialized=Materialized("m")),
    ),
]


@pytest.mark.parametrize(("message", "describe"), REFUSED)
def test_join_is_refused_when_it_cannot_work(message: str, describe: Callable[[StreamsBuilder], object]) -> None:
    with pytest.raises(TopologyError, match=message):
        describe(StreamsBuilder())
