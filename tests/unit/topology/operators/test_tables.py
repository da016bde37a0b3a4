"""Aggregations and table operators: results, old values, timestamps, changelogs, caches, null rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streams_py.errors import ProcessingError
from streams_py.serdes import STRING
from streams_py.testing.driver import TopologyTestDriver
from streams_py.topology.declare.nodes import Change
from streams_py.topology.dsl.builder import StreamsBuilder
from streams_py.topology.dsl.kstream import KStream
from streams_py.topology.dsl.ktable import KTable
from streams_py.topology.topology import Topology
from tests.support.topology.driver_parts import written_by
from tests.support.topology.fakes import FakeNode, FakeTask


def of_stream(describe: Callable[[KStream[Any, Any]], KTable[Any, Any]]) -> Topology:
    builder = StreamsBuilder()
    describe(builder.stream("in")).to_stream().to("out")
    return builder.build()


def of_table(
    describe: Callable[[KTable[Any, Any]], KTable[Any, Any]], *, store: str | None = None, name: str | None = None
) -> Topology:
    builder = StreamsBuilder()
    describe(builder.table("in", store=store, name=name)).to_stream().to("out")
    return builder.build()


def feed(task: FakeTask, *records: tuple[Any, Any, int]) -> FakeTask:
    for record in records:
        task.feed("in", *record)
    return task


def none_for_seven(key: Any, value: int, total: int) -> int | None:
    return None if total + value == 7 else total + value


# -- grouped streams -----------------------------------------------------------------------------------------


def test_count_counts_per_key() -> None:
    task = feed(FakeTask(of_stream(lambda s: s.group_by_key().count())), ("a", "x", 5), ("b", "x", 6), ("a", "y", 7))
    assert task.out() == [("a", 1, 5), ("b", 1, 6), ("a", 2, 7)]


def test_aggregation_keeps_the_larger_timestamp() -> None:
    task = feed(FakeTask(of_stream(lambda s: s.group_by_key().count(store="c"))), ("k", "x", 10), ("k", "x", 5))
    assert task.out() == [("k", 1, 10), ("k", 2, 10)]
    assert task.stores["c"].log == [("k", 1, 10), ("k", 2, 10)]


def test_aggregate_starts_anew_after_a_result_of_none() -> None:
    topology = of_stream(lambda s: s.group_by_key().aggregate(lambda: 1, none_for_seven, store="sum"))
    task = feed(FakeTask(topology), ("k", 2, 9), ("k", 4, 3), ("k", 5, 4))
    # The result of a deletion has the larger timestamp, its changelog record that of the record.
    assert task.out() == [("k", 3, 9), ("k", None, 9), ("k", 6, 4)]
    assert task.stores["sum"].log == [("k", 3, 9), ("k", None, 3), ("k", 6, 4)]


def test_reduce_starts_with_the_first_value() -> None:
    topology = of_stream(lambda s: s.group_by_key().reduce(lambda x, y: None if y == "x" else x + y, store="r"))
    task = feed(FakeTask(topology), ("k", "a", 4), ("k", "b", 2), ("k", "x", 3), ("k", "x", 1))
    assert task.out() == [("k", "a", 4), ("k", "ab", 4), ("k", None, 4), ("k", "x", 1)]
    assert task.stores["r"].log == [("k", "a", 4), ("k", "ab", 4), ("k", None, 3), ("k", "x", 1)]


@pytest.mark.parametrize("aggregate", [lambda g: g.count(), lambda g: g.reduce(max), lambda g: g.aggregate(int, max)])
def test_aggregation_drops_null_keys_and_null_values(aggregate: Callable[..., KTable[Any, Any]]) -> None:
    task = feed(FakeTask(of_stream(lambda s: aggregate(s.group_by_key()))), (None, "x", 1), ("k", None, 2))
    assert (task.out(), len(task.dropped)) == ([], 2)


def test_failing_aggregator_is_reported_and_changes_nothing() -> None:
    task = FakeTask(of_stream(lambda s: s.group_by_key().aggregate(int, lambda k, v, total: total + v, store="sum")))
    feed(task, ("k", 1, 0), ("k", "no number", 1), ("k", 2, 2))
    assert task.out() == [("k", 1, 0), ("k", 3, 2)]
    assert [(type(failure[1]), *failure[2:]) for failure in task.failures] == [(TypeError, "k", "no number", 1)]


def test_cached_aggregation_forwards_only_when_the_cache_is_flushed() -> None:
    task = FakeTask(of_stream(lambda s: s.group_by_key().count(store="c")), cached=["c"])
    feed(task, ("k", "x", 1), ("k", "x", 2))
    assert task.out() == []
    store = task.stores["c"]
    assert store.listener is not None
    assert not store.sends_old_values
    store.listener("k", 2, None, 2)
    assert task.out() == [("k", 2, 2)]


# -- table sources -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", [None, "t"])
def test_table_gives_updates_and_deletions_and_drops_null_keys(store: str | None) -> None:
    task = FakeTask(of_table(lambda t: t, store=store))
    feed(task, ("k", "a", 5), (None, "b", 6), ("k", None, 7), ("k", "c", 2))
    assert task.out() == [("k", "a", 5), ("k", None, 7), ("k", "c", 2)]
    assert len(task.dropped) == 1
    if store:
        assert task.stores[store].log == [("k", "a", 5), ("k", None, 7), ("k", "c", 2)]


def test_to_table_is_stored_only_under_a_name() -> None:
    assert not of_stream(lambda s: s.to_table()).stores
    task = feed(FakeTask(of_stream(lambda s: s.to_table(store="t"))), ("k", "a", 5), ("k", None, 6))
    assert task.out() == [("k", "a", 5), ("k", None, 6)]
    assert task.stores["t"].rows == {}


# -- filter and map_values -----------------------------------------------------------------------------------


def is_long(key: Any, value: str) -> bool:
    return len(value) > 1


def test_filter_turns_rows_that_do_not_pass_into_deletions() -> None:
    task = feed(FakeTask(of_table(lambda t: t.filter(is_long))), ("k", "aa", 0), ("k", "b", 1), ("k", None, 2))
    assert task.out() == [("k", "aa", 0), ("k", None, 1), ("k", None, 2)]


def test_filter_of_a_stored_table_does_not_delete_what_never_passed() -> None:
    task = FakeTask(of_table(lambda t: t.filter(is_long), store="t"))
    feed(task, ("k", "b", 0), ("k", "aa", 1), ("k", "b", 2), ("k", None, 3))
    assert task.out() == [("k", "aa", 1), ("k", None, 2)]


def test_stored_filter_compares_with_its_own_store() -> None:
    task = FakeTask(of_table(lambda t: t.filter_not(is_long, store="f"), store="t"))
    feed(task, ("k", "aa", 0), ("k", "b", 1), ("k", "cc", 2), ("k", "dd", 3))
    assert task.out() == [("k", "b", 1), ("k", None, 2)]
    assert task.stores["f"].log == [("k", "b", 1), ("k", None, 2)]


def test_filter_does_not_make_a_source_table_stored() -> None:
    assert not of_table(lambda t: t.filter(is_long)).stores


def test_map_values_is_not_called_for_deletions() -> None:
    task = feed(FakeTask(of_table(lambda t: t.map_values(str.upper))), ("k", "a", 0), ("k", None, 1))
    assert (task.out(), task.failures) == ([("k", "A", 0), ("k", None, 1)], [])


def test_map_values_with_key_gets_the_key() -> None:
    task = feed(FakeTask(of_table(lambda t: t.map_values(with_key=lambda k, v: k + v, store="m"))), ("k", "a", 3))
    assert task.out() == [("k", "ka", 3)]
    assert task.stores["m"].rows == {"k": ("ka", 3)}


def test_failing_mapper_of_a_table_is_reported_with_the_change() -> None:
    task = feed(FakeTask(of_table(lambda t: t.map_values(str.upper))), ("k", 1, 4))
    assert [failure[2:] for failure in task.failures] == [("k", Change(1, None), 4)]


# -- old values ----------------------------------------------------------------------------------------------


def by_value(key: Any, value: Any) -> tuple[Any, Any]:
    return value, 1


def test_group_by_makes_a_source_table_stored() -> None:
    topology = of_table(lambda t: t.group_by(by_value).count(store="c"))
    assert sorted(topology.stores) == ["c", "in-STATE-STORE-0000000000"]


def test_group_by_asks_through_tables_that_are_not_stored() -> None:
    topology = of_table(lambda t: t.filter(is_long).map_values(str.upper).group_by(by_value).count(store="c"))
    assert sorted(topology.stores) == ["c", "in-STATE-STORE-0000000000"]
    task = feed(FakeTask(topology), ("k", "aa", 0), ("k", "bb", 1), ("k", "c", 2))
    assert task.out() == [("AA", 1, 0), ("AA", 0, 1), ("BB", 1, 1), ("BB", 0, 2)]


def test_group_by_asks_no_further_than_to_a_stored_table() -> None:
    topology = of_table(lambda t: t.map_values(str.upper, store="m").group_by(by_value).count(store="c"))
    assert sorted(topology.stores) == ["c", "m"]
    task = feed(FakeTask(topology), ("k", "a", 0), ("k", "b", 1))
    assert task.out() == [("A", 1, 0), ("A", 0, 1), ("B", 1, 1)]


def test_cache_of_a_table_is_asked_for_old_values_when_they_are_needed() -> None:
    topology = of_table(lambda t: t.group_by(by_value).count(store="c"), store="t")
    task = feed(FakeTask(topology, cached=["t"]), ("k", "a", 0))
    assert task.out() == []
    assert task.stores["t"].sends_old_values
    listener = task.stores["t"].listener
    assert listener is not None
    listener("k", "b", "a", 3)
    assert task.out() == [("a", None, 3), ("b", 1, 3)]  # group "a" was never counted: nothing to subtract from


# -- grouped tables ------------------------------------------------------------------------------------------


REPARTITION = "c-repartition"


def changes(task: FakeTask) -> list[tuple[Any, Any, int]]:
    return task.out(REPARTITION)


def test_change_within_a_group_travels_as_one_record() -> None:
    task = FakeTask(of_table(lambda t: t.group_by(lambda k, v: (v[0], v)).count(store="c")))
    feed(task, ("k", "a1", 10), ("k", "a2", 11), ("k", "b", 12))
    assert changes(task) == [
        ("a", Change("a1", None), 10),
        ("a", Change("a2", "a1"), 11),
        ("a", Change(None, "a2"), 12),
        ("b", Change("b", None), 12),
    ]


@pytest.mark.parametrize(
    ("release", "records"),
    [("3.4", 2), ("2.8", 2), ("0.10.0", 2), ("3.5", 1), ("3.9", 1), ("4.0", 1), (None, 1), ("", 1)],
)
def test_change_travels_as_two_records_while_old_releases_may_read_it(release: str | None, records: int) -> None:
    topology = of_table(lambda t: t.group_by(lambda k, v: ("g", v)).count(store="c"))
    task = FakeTask(topology, upgrade_from=release)
    feed(task, ("k", "a", 0), ("k", "b", 1))
    assert len(changes(task)) == 1 + records


@pytest.mark.parametrize(("config", "flags"), [({}, [1, 2]), ({"upgrade.from": "3.4"}, [1, 0, 1])])
def test_bytes_of_changes_are_those_that_the_release_of_other_members_reads(
    config: dict[str, str], flags: list[int]
) -> None:
    builder = StreamsBuilder(key=STRING, value=STRING)
    builder.table("t").group_by(lambda k, v: ("g", v), key=STRING, value=STRING, name="g").count()
    with TopologyTestDriver(builder.build(), config) as driver:
        driver.input_topic("t", key=STRING, value=STRING).send_all([("k", "a"), ("k", "b")])
        written = written_by(driver)
    sent = [(r.value() or b"")[-1] for at, rs in written.items() if at.topic.endswith("g-repartition") for r in rs]
    assert sent == flags


def test_group_by_leaves_out_null_groups_and_null_values() -> None:
    groups = {"a": ("g", 1), "b": (None, 1), "c": ("g", None)}
    task = FakeTask(of_table(lambda t: t.group_by(lambda k, v: groups[v]).count(store="c")))
    feed(task, ("k", "b", 0), ("k", "c", 1), ("k", "a", 2), ("k", "b", 3))
    assert changes(task) == [("g", Change(1, None), 2), ("g", Change(None, 1), 3)]


def test_grouped_table_aggregate_adds_and_subtracts() -> None:
    topology = of_table(
        lambda t: t.group_by(lambda k, v: (v[0], v[1])).aggregate(
            lambda: 100, lambda k, v, total: total + v, lambda k, v, total: total - v, store="sum"
        )
    )
    task = FakeTask(topology)
    feed(task, ("x", ("g", 1), 5), ("y", ("g", 2), 3), ("x", ("g", 7), 9), ("y", None, 4), ("x", ("h", 5), 10))
    assert task.out() == [("g", 101, 5), ("g", 103, 5), ("g", 109, 9), ("g", 107, 9), ("g", 100, 10), ("h", 105, 10)]


def test_grouped_table_reduce_starts_with_the_new_value_and_deletes_with_none() -> None:
    topology = of_table(
        lambda t: t.group_by(lambda k, v: ("g", v)).reduce(
            lambda x, y: f"{x}+{y}", lambda x, y: None if y == "x" else f"{x}-{y}", store="r"
        )
    )
    task = feed(FakeTask(topology), ("1", "x", 5), ("2", "b", 3), ("1", None, 4), ("2", "c", 1), ("2", "d", 2))
    assert task.out() == [("g", "x", 5), ("g", "x+b", 5), ("g", None, 5), ("g", "c", 1), ("g", "c-c+d", 2)]
    assert task.stores["r"].log[2] == ("g", None, 4)


def test_null_key_in_a_grouped_table_is_an_error() -> None:
    builder = StreamsBuilder()
    builder.table("in").group_by(by_value).count(store="c").to_stream().to("out")
    task = FakeTask(builder.build())
    entry = task._entry[REPARTITION]  # no record of the topic can have such a key
    entry(None, Change(1, None), 0)
    assert [type(failure[1]) for failure in task.failures] == [ProcessingError]
    assert "without a key" in str(task.failures[0][1])


def test_named_group_is_shared_by_several_aggregations_of_a_table() -> None:
    def describe(table: KTable[Any, Any]) -> KTable[Any, Any]:
        grouped = table.group_by(by_value, name="g")
        grouped.count(store="c2")
        return grouped.count(store="c")

    task = feed(FakeTask(of_table(describe)), ("k", "a", 0))
    assert len(task.out("g-repartition")) == 1
    assert (task.stores["c"].rows, task.stores["c2"].rows) == ({"a": (1, 0)}, {"a": (1, 0)})


@pytest.mark.parametrize(
    "describe",
    [
        lambda t: t.map_values(len, store="x"),
        lambda t: t.group_by(lambda k, v: (len(v), v)).count(store="x"),
        lambda t: t.group_by(by_value).reduce(lambda a, b: a.missing, lambda a, b: a.missing, store="x"),
    ],
)
def test_failing_function_of_a_table_drops_the_change(describe: Callable[[KTable[Any, Any]], KTable[Any, Any]]) -> None:
    task = feed(FakeTask(of_table(describe)), ("k", 1, 0), ("l", 1, 1))
    assert len(task.failures) >= 1
    assert all(value is not None for _, value, _ in task.out())


def test_failing_reducer_is_reported_and_changes_nothing() -> None:
    task = FakeTask(of_stream(lambda s: s.group_by_key().reduce(lambda a, b: a + b, store="r")))
    feed(task, ("k", "a", 0), ("k", 1, 1), ("k", "b", 2))
    assert [failure[2:] for failure in task.failures] == [("k", 1, 1)]
    assert task.out() == [("k", "a", 0), ("k", "ab", 2)]


def test_group_by_of_a_null_key_is_an_error() -> None:
    builder = StreamsBuilder()
    builder.table("in").group_by(by_value, name="g").count()
    task = FakeTask(builder.build())
    [select] = [node for node in builder.build().nodes if node.name == "g"]
    bound = select.operator.bind(FakeNode("g", task.record, {}, task))
    bound(None, Change("v", None), 3)
    assert [type(failure[1]) for failure in task.failures] == [ProcessingError]
