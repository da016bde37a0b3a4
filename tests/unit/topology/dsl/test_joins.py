"""Joins: what is refused, what is stored, which repartitions are shared. Results are compared with recorded runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streams_py.errors import StreamsError, TopologyError
from streams_py.serdes import INT64, STRING
from streams_py.testing.driver import TopologyTestDriver
from streams_py.topology.declare.processor import Processor, Record
from streams_py.topology.declare.stores import key_value_store
from streams_py.topology.declare.windows import JoinWindows
from streams_py.topology.dsl.builder import StreamsBuilder
from streams_py.topology.dsl.options import Materialized
from streams_py.topology.formats.join_serdes import JoinSideKey, JoinSideValue
from streams_py.topology.topology import Topology
from tests.support.topology.fakes import FakeTask


def pair(left: Any, right: Any) -> str:
    return f"{left}+{right}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"windows": JoinWindows.of(5), "grace": 1}, "a join with a stream has no option grace=; it has key, value,"),
        ({"of": "table", "other_value": STRING}, "a join with a table has no option other_value=; it has key, value,"),
        (
            {"of": "global_table", "on": pair, "grace": 1},
            "a join with a global table has no option grace=; it has name",
        ),
    ],
    ids=["stream", "table", "global table"],
)
@pytest.mark.parametrize("kind", ["join", "left_join"])
def test_option_of_another_kind_of_join_is_refused(kind: str, options: dict[str, Any], message: str) -> None:
    builder = StreamsBuilder()
    rest = {name: value for name, value in options.items() if name != "of"}
    other = getattr(builder, options.get("of", "stream"))("other")
    with pytest.raises(TopologyError, match=message) as raised:
        getattr(builder.stream("in"), kind)(other, pair, **rest)
    assert "test_joins.py" in str(raised.value)


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
    ("streams and tables of one builder", lambda b: b.stream("a").join(OTHER.table("c"), pair)),
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


# -- streams with streams ------------------------------------------------------------------------------------


def run_join(kind: str, windows: JoinWindows, *inputs: tuple[str, Any, Any, int], **options: Any) -> list[Any]:
    """Return the output of a join of topics a and b, as (key, value, timestamp)."""
    builder = StreamsBuilder(key=STRING, value=STRING)
    a, b = builder.stream("a"), builder.stream("b")
    getattr(a, kind)(b, pair, windows, **options).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        topics = {name: driver.input_topic(name, key=STRING, value=STRING) for name in "ab"}
        for topic, key, value, timestamp_ms in inputs:
            topics[topic].send(key, value, timestamp_ms=timestamp_ms)
        return [record[:3] for record in driver.output_topic("out", key=STRING, value=STRING).read_all()]


def test_streams_are_joined_within_the_window() -> None:
    inputs = [
        ("a", "k", "a1", 10),
        ("b", "k", "b1", 15),
        ("b", "k", "b2", 16),
        ("b", "l", "x", 10),
        ("a", "k", "a2", 20),
    ]
    assert run_join("join", JoinWindows.of(5), *inputs) == [("k", "a1+b1", 15), ("k", "a2+b1", 20), ("k", "a2+b2", 20)]


def test_window_may_look_in_one_direction_only() -> None:
    windows = JoinWindows.of(5, before=0)
    inputs = [("a", "k", "a", 10), ("b", "k", "early", 9), ("b", "k", "same", 10), ("b", "k", "late", 15)]
    assert [value for _, value, _ in run_join("join", windows, *inputs)] == ["a+same", "a+late"]


def test_record_without_a_partner_comes_out_alone_when_its_window_is_closed() -> None:
    inputs = [("a", "k", "a", 10), ("b", "l", "b", 12), ("a", "m", "later", 17), ("a", "m", "later still", 18)]
    assert run_join("left_join", JoinWindows.of(5, grace=2), *inputs) == [("k", "a+None", 10)]
    inputs.append(("a", "m", "end", 40))
    assert run_join("outer_join", JoinWindows.of(5, grace=2), *inputs) == [
        ("k", "a+None", 10),
        ("l", "None+b", 12),
        ("m", "later+None", 17),
        ("m", "later still+None", 18),
    ]


@pytest.mark.parametrize("grace_ms", [0, 1])
def test_record_that_waits_since_before_a_restart_comes_out_by_the_first_one_after_it(grace_ms: int) -> None:
    builder = StreamsBuilder(key=STRING, value=STRING)
    builder.stream("a").left_join(builder.stream("b"), pair, JoinWindows.of(5, after=0, grace=grace_ms)).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        (pending,) = (store for name, store in driver.stores().items() if "OUTERSHARED" in name)
        pending.put(JoinSideKey(10, True, "k"), [JoinSideValue(True, "old")])  # as after a restore
        driver.input_topic("a", key=STRING, value=STRING).send("m", "new", timestamp_ms=40)
        out = driver.output_topic("out", key=STRING, value=STRING).read_all()
    assert [record[:3] for record in out] == [("k", "old+None", 10)]


def test_record_that_found_a_partner_does_not_come_out_alone() -> None:
    inputs = [("a", "k", "a", 10), ("b", "k", "b", 12), ("a", "m", "end", 40)]
    assert run_join("left_join", JoinWindows.of(5), *inputs) == [("k", "a+b", 12)]


def test_join_of_streams_keeps_its_state_when_the_task_moves() -> None:
    builder = StreamsBuilder(key=STRING, value=STRING)
    builder.stream("a").outer_join(builder.stream("b"), pair, JoinWindows.of(5), store="js").to("out")
    stores = builder.build().stores
    windows = [store.windows for store in stores.values() if store.windows is not None]
    assert [retention.retention_ms for retention in windows] == [10, 10]
    assert all(store.logging for store in stores.values())
    assert sorted(stores) == ["js-outer-other-join-store", "js-outer-shared-join-store", "js-outer-this-join-store"]


@pytest.mark.parametrize(
    "make", [lambda: JoinWindows.of(-1), lambda: JoinWindows.of(5, before=-6), lambda: JoinWindows.of(5, grace=-1)]
)
def test_join_windows_are_refused_when_nothing_could_be_joined(make: Callable[[], object]) -> None:
    with pytest.raises(TopologyError, match="JoinWindows"):
        make()


def test_self_join_keeps_records_once_only_when_asked_for() -> None:
    def stores(optimization: str) -> int:
        builder = StreamsBuilder(key=STRING, value=STRING)
        builder.stream("s").join(builder.stream("s"), pair, JoinWindows.of(5)).to("out")
        return len(builder.build({"topology.optimization": optimization}).stores)

    assert (stores("none"), stores("single.store.self.join")) == (2, 1)


# -- global tables and stores --------------------------------------------------------------------------------


class Length(Processor[str, str, None, None]):
    """Stores lengths of values."""

    def process(self, record: Record[str, str]) -> None:
        self.context.get_state_store("lengths").put(record.key, len(record.value))


def test_stream_is_joined_with_any_row_of_a_global_table() -> None:
    builder = StreamsBuilder(key=STRING, value=STRING)
    regions = builder.global_table("regions", store="by-code")
    stream = builder.stream("s")
    stream.join(regions, pair, on=lambda key, value: value[:2]).to("inner")
    stream.left_join(regions, with_key=lambda key, value, row: f"{key}{value}{row}", on=lambda k, v: v[:2]).to("left")
    with TopologyTestDriver(builder.build(), partitions=3) as driver:
        rows, records = (driver.input_topic(name, key=STRING, value=STRING) for name in ("regions", "s"))
        rows.send_all([("de", "Germany"), ("fr", "France"), ("fr", None)])
        records.send_all([("k", "de-1"), ("l", "fr-2"), ("m", None)])
        inner, left = (driver.output_topic(name, key=STRING, value=STRING) for name in ("inner", "left"))
        assert sorted(inner.read_pairs()) == [("k", "de-1+Germany")]
        assert sorted(left.read_pairs()) == [("k", "kde-1Germany"), ("l", "lfr-2None")]


def test_global_store_is_written_by_its_processor_and_read_by_all() -> None:
    builder = StreamsBuilder(key=STRING, value=STRING)
    builder.add_global_store(key_value_store("lengths", value=INT64, logging=False), "g", Length)

    def length(record: Record[str, str], context: Any) -> Any:
        yield record.with_value(str(context.get_state_store("lengths").get(record.key)))

    builder.stream("s").process(length).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.input_topic("g", key=STRING, value=STRING).send("k", "four")
        driver.input_topic("s", key=STRING, value=STRING).send("k", "?")
        assert driver.output_topic("out", key=STRING, value=STRING).read_pairs() == [("k", "4")]


def test_global_store_cannot_be_changed_by_others() -> None:
    builder = StreamsBuilder(key=STRING, value=STRING)
    builder.global_table("g", store="rows")

    def meddle(record: Record[str, str], context: Any) -> Any:
        context.get_state_store("rows").put("k", "mine")
        yield record

    builder.stream("s").process(meddle).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        records = driver.input_topic("s", key=STRING, value=STRING)
        with pytest.raises(StreamsError, match="is read-only here"):
            records.send("k", "v")


def test_topics_of_global_stores_are_not_subscribed_to() -> None:
    builder = StreamsBuilder(key=STRING, value=STRING)
    builder.global_table("g", store="rows")
    builder.stream("s").to("out")
    topology = builder.build()
    assert topology.subscription("app") == ("s",)
    metadata = topology.metadata("app")
    assert list(metadata.subtopologies) == [1]
    assert metadata.source_topics == {"s"}


GLOBAL_RULES: list[tuple[str, Callable[[Topology], object]]] = [
    ("logging=False", lambda t: t.add_global_store(key_value_store("x"), "a", "g2", "b", Length)),
    ("already read", lambda t: t.add_source("again", "g")),
    ("declared twice", lambda t: t.add_global_store(key_value_store("gs", logging=False), "a", "g2", "b", Length)),
    ("every processor can read it", lambda t: t.connect_processor_and_state_stores("other", "gs")),
    ("fills a global store", lambda t: t.connect_processor_and_state_stores("filler", "own")),
]


@pytest.mark.parametrize(("message", "break_rule"), GLOBAL_RULES)
def test_topology_with_a_global_store_is_refused(message: str, break_rule: Callable[[Topology], object]) -> None:
    topology = Topology().add_source("s", "in").add_processor("other", Length, "s")
    topology.add_state_store(key_value_store("own"), "other")
    topology.add_global_store(key_value_store("gs", logging=False), "source", "g", "filler", Length)
    with pytest.raises(TopologyError, match=message):
        break_rule(topology)
