"""topology.optimization, and the changes of the graph that do not depend on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streams_py.serdes import INT64, STRING
from streams_py.topology.declare.names import RepartitionNames
from streams_py.topology.declare.nodes import SinkNode
from streams_py.topology.dsl.builder import StreamsBuilder
from streams_py.topology.dsl.kstream import KStream
from streams_py.topology.logical.graph import GraphNode, LogicalGraph, ProcessorStep, RepartitionStep, Traits
from streams_py.topology.logical.optimise import Optimization, optimise, optimizations_in
from streams_py.topology.operators.stateless import PassThrough
from streams_py.topology.topology import Topology
from tests.support.topology.fakes import FakeTask


def built(describe: Callable[[KStream[Any, Any], StreamsBuilder], object], optimization: str = "all") -> Topology:
    builder = StreamsBuilder()
    describe(builder.stream("in", key=STRING, value=STRING), builder)
    return builder.build({"topology.optimization": optimization})


def repartitions(topology: Topology) -> list[str]:
    return [node.topic or "" for node in topology.nodes if isinstance(node, SinkNode) and node.is_internal]


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (None, set()),
        ("none", set()),
        ("", set()),
        (
            "all",
            {Optimization.MERGE_REPARTITIONS, Optimization.REUSE_SOURCE_TOPICS, Optimization.SINGLE_STORE_SELF_JOIN},
        ),
        ("merge.repartition.topics", {Optimization.MERGE_REPARTITIONS}),
        (
            "single.store.self.join, reuse.ktable.source.topics",
            {Optimization.SINGLE_STORE_SELF_JOIN, Optimization.REUSE_SOURCE_TOPICS},
        ),
    ],
)
def test_setting_names_the_optimisations(value: str | None, wanted: set[str]) -> None:
    assert optimizations_in({"topology.optimization": value}) == wanted


def test_nothing_is_optimised_without_a_configuration() -> None:
    builder = StreamsBuilder()
    builder.table("in", store="t").to_stream().to("out")
    assert builder.build().metadata("app").subtopologies[0].source_changelogs == frozenset()


# -- source topics as changelogs -----------------------------------------------------------------------------


def test_source_topic_becomes_the_changelog_of_a_stored_table() -> None:
    builder = StreamsBuilder()
    builder.table("in", store="t").to_stream().to("out")
    topology = builder.build({"topology.optimization": "reuse.ktable.source.topics"})
    store = topology.stores["t"]
    assert (store.source_topic, store.logging) == ("in", False)
    sub = topology.metadata("app").subtopologies[0]
    assert (sub.source_changelogs, sub.changelogs, sub.changelog_topics, sub.is_logged) == ({"in"}, {}, {"in"}, True)
    assert topology.changelog_topic("t", "app") == "in"


def test_table_that_is_not_stored_has_no_changelog_at_all() -> None:
    builder = StreamsBuilder()
    builder.table("in").to_stream().to("out")
    assert not builder.build({"topology.optimization": "all"}).metadata("app").subtopologies[0].is_logged


# -- merging repartitions ------------------------------------------------------------------------------------


def two(stream: KStream[Any, Any]) -> None:
    stream.group_by_key().count(store="one")
    stream.group_by_key().count(store="two")


MERGED: list[tuple[str, Callable[[KStream[Any, Any]], KStream[Any, Any]]]] = [
    ("select_key", lambda s: s.select_key(max)),
    ("map", lambda s: s.map(divmod)),
    ("flat_map", lambda s: s.flat_map(divmod)),
    ("filter in between", lambda s: s.select_key(max).filter(max)),
    ("two key changes", lambda s: s.select_key(max).select_key(max)),
]
NOT_MERGED: list[tuple[str, Callable[[KStream[Any, Any]], KStream[Any, Any]]]] = [
    ("value change in between", lambda s: s.select_key(max).map_values(str)),
    ("flat value change in between", lambda s: s.select_key(max).flat_map_values(list)),
]


@pytest.mark.parametrize("change", [pytest.param(change, id=id) for id, change in MERGED])
def test_repartitions_of_one_key_change_become_one(change: Callable[[KStream[Any, Any]], KStream[Any, Any]]) -> None:
    assert repartitions(built(lambda s, b: two(change(s)))) == ["one-repartition"]
    assert len(repartitions(built(lambda s, b: two(change(s)), "none"))) == 2


@pytest.mark.parametrize("change", [pytest.param(change, id=id) for id, change in NOT_MERGED])
def test_repartitions_stay_apart(change: Callable[[KStream[Any, Any]], KStream[Any, Any]]) -> None:
    assert repartitions(built(lambda s, b: two(change(s)))) == ["one-repartition", "two-repartition"]


def test_single_repartition_moves_up_to_the_key_change() -> None:
    topology = built(lambda s, b: s.select_key(max, name="key").filter(max, name="f").group_by_key().count(store="one"))
    assert [[node.name for node in sub.nodes] for sub in topology.subtopologies()] == [
        ["KSTREAM-SOURCE-0000000000", "key", "one-repartition-filter", "one-repartition-sink"],
        ["one-repartition-source", "f", "KSTREAM-AGGREGATE-0000000003"],
    ]


def test_merged_repartition_has_the_first_serde_that_is_known() -> None:
    def describe(stream: KStream[Any, Any], builder: StreamsBuilder) -> None:
        changed = stream.select_key(max)
        changed.group_by_key().count(store="one")
        changed.group_by_key(key=INT64).count(store="two")

    [sink] = [node for node in built(describe).nodes if isinstance(node, SinkNode)]
    assert (sink.key_serde, sink.value_serde) == (INT64, STRING)


def test_explicit_repartition_is_never_merged() -> None:
    def describe(stream: KStream[Any, Any], builder: StreamsBuilder) -> None:
        changed = stream.select_key(max)
        changed.repartition(name="own").to("out")
        two(changed)

    assert sorted(repartitions(built(describe))) == ["one-repartition", "own-repartition"]


def test_repartition_below_two_merges_moves_to_the_lower_one() -> None:
    def describe(stream: KStream[Any, Any], builder: StreamsBuilder) -> None:
        upper = stream.select_key(max).merge(builder.stream("b"), name="upper")
        two(builder.stream("c").merge(upper, name="lower"))

    topology = built(describe)
    assert repartitions(topology) == ["one-repartition"]
    names = [node.name for node in topology.subtopology(0).nodes]
    assert names.index("one-repartition-filter") > names.index("lower")


@pytest.mark.parametrize("swapped", [False, True])
def test_search_upwards_takes_the_first_that_a_parent_of_a_merge_gives(swapped: bool) -> None:
    def describe(stream: KStream[Any, Any], builder: StreamsBuilder) -> None:
        changed, other = stream.select_key(max).filter(max), builder.stream("b")
        two(other.merge(changed) if swapped else changed.merge(other))

    assert len(repartitions(built(describe))) == 1  # as recorded; the release 4.0 took the last: two when not swapped


def test_optimised_topology_gives_the_same_results() -> None:
    def describe(stream: KStream[Any, Any], builder: StreamsBuilder) -> None:
        changed = stream.select_key(lambda k, v: v)
        changed.filter(lambda k, v: v != "x").group_by_key().count(store="one").to_stream().to("out")
        changed.group_by_key().count(store="two").to_stream().to("out2")

    results = []
    for optimization in ("none", "all"):
        task = FakeTask(built(describe, optimization))
        for value in ("a", "x", None, "a"):
            task.feed("in", "k", value)
        results.append((task.out(), task.out("out2"), task.stores["one"].rows, task.stores["two"].rows))
    assert results[0] == results[1]
    assert results[0][0] == [("a", 1, 0), ("a", 2, 0)]


# -- null keys -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("accepts", [True, False])
def test_null_keys_pass_a_repartition_only_when_something_below_accepts_them(accepts: bool) -> None:
    graph = LogicalGraph()
    above, other = (RepartitionStep(RepartitionNames(name, graph.index), None, None) for name in ("above", "other"))
    between = ProcessorStep("between", PassThrough())
    graph.attach(above, graph.root)
    graph.attach(other, graph.root)
    graph.attach(between, above)
    graph.attach(GraphNode("below", Traits(accepts_null_keys=accepts)), between)
    optimise(graph, frozenset())
    assert (above.null_key_filter.pass_all, other.null_key_filter.pass_all) == (accepts, False)
