"""What other parts read from a topology: numbers, full topic names, configurations, groups, subscription, text."""

from __future__ import annotations

import re
from typing import Any

import pytest

from streams_py.serdes import INT64, STRING
from streams_py.topology.declare.nodes import ResetPolicy, SinkNode, SourceNode
from streams_py.topology.declare.processor import Processor, Record
from streams_py.topology.declare.stores import key_value_store
from streams_py.topology.declare.versioned_stores import versioned_key_value_store
from streams_py.topology.declare.window_stores import window_store
from streams_py.topology.declare.windows import JoinWindows
from streams_py.topology.dsl.builder import StreamsBuilder
from streams_py.topology.dsl.options import Materialized
from streams_py.topology.formats.change_serde import ChangeSerde
from streams_py.topology.physical.assembly import TopologyAssembly
from streams_py.topology.physical.metadata import InternalTopic, InternalTopicKind
from streams_py.topology.topology import Topology


class Noop(Processor[Any, Any, Any, Any]):
    def process(self, record: Record[Any, Any]) -> None:
        self.context.forward(record)


REPARTITION = {
    "cleanup.policy": "delete",
    "message.timestamp.type": "CreateTime",
    "retention.ms": "-1",
    "segment.bytes": "52428800",
}
CHANGELOG = {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"}


def word_count(**materialized: Any) -> Topology:
    builder = StreamsBuilder()
    kept = Materialized[Any, int]("counts", **materialized)
    builder.stream("words", value=STRING).group_by(max).count(materialized=kept).to_stream().to("out")
    return builder.build()


def test_metadata_has_full_names_by_subtopology() -> None:
    writing, reading = word_count().metadata("my-app").subtopologies.values()
    assert writing.source_topics == {"words"}
    assert writing.sink_topics == {"my-app-counts-repartition"}
    assert (writing.is_logged, writing.repartition_sources, writing.stores) == (False, {}, frozenset())
    assert reading.source_topics == {"my-app-counts-repartition"}
    assert reading.sink_topics == {"out"}
    assert reading.stores == {"counts"}
    name = "my-app-counts-repartition"
    assert reading.repartition_sources == {name: InternalTopic(name, InternalTopicKind.REPARTITION, None, REPARTITION)}
    name = "my-app-counts-changelog"
    assert reading.changelogs == {name: InternalTopic(name, InternalTopicKind.CHANGELOG, None, CHANGELOG)}
    assert reading.is_logged


def test_topic_settings_go_before_defaults_and_store_settings_before_them() -> None:
    topology = word_count(logging_config={"segment.ms": "7", "cleanup.policy": "compact,delete"})
    config = {"topic.segment.ms": 5, "topic.retention.ms": "9", "segment.bytes": "ignored"}
    reading = topology.metadata("app", config).subtopologies[1]
    assert reading.repartition_sources["app-counts-repartition"].config == {
        **REPARTITION,
        "segment.ms": "5",
        "retention.ms": "9",
    }
    assert reading.changelogs["app-counts-changelog"].config == {
        **CHANGELOG,
        "segment.ms": "7",
        "retention.ms": "9",
        "cleanup.policy": "compact,delete",
    }


def test_changelog_of_what_is_kept_to_be_joined_is_never_compacted() -> None:
    builder = StreamsBuilder(key=STRING, value=STRING)
    given = {"cleanup.policy": "compact", "segment.ms": "7"}
    builder.add_state_store(window_store("several", retention=20, size=5, keep_duplicates=True))
    builder.stream("a").left_join(
        builder.stream("b"), max, JoinWindows.of(5, grace=2), store="j", logging_config=given
    ).process(Noop, stores=["several"]).to("out")
    config = {"topic.cleanup.policy": "compact"}
    kept = {"cleanup.policy": "delete", "message.timestamp.type": "CreateTime"}
    (sub,) = builder.build().metadata("app", config).subtopologies.values()
    assert {name: topic.config for name, topic in sub.changelogs.items()} == {
        "app-j-this-join-store-changelog": {**kept, "segment.ms": "7", "retention.ms": "86400012"},
        "app-j-outer-other-join-store-changelog": {**kept, "segment.ms": "7", "retention.ms": "86400012"},
        "app-j-left-shared-join-store-changelog": {**CHANGELOG, "segment.ms": "7"},
        "app-several-changelog": {**kept, "retention.ms": "86400020"},
    }


def test_store_without_logging_has_no_changelog() -> None:
    reading = word_count(logging=False).metadata("app").subtopologies[1]
    assert (reading.changelogs, reading.is_logged, reading.stores) == ({}, False, {"counts"})


def test_materialized_options_reach_the_store() -> None:
    store = word_count(persistent=False, caching=False, key=STRING).stores["counts"]
    assert (store.persistent, store.caching, store.logging, store.key_serde) == (False, False, True, STRING)
    assert word_count().stores["counts"].caching


def test_serdes_of_a_repartition_come_from_the_grouping() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=STRING, value=STRING)
    stream.group_by(max).count(store="kept-value")
    stream.group_by(max, key=STRING).count(store="both")
    stream.map_values(str).group_by(max, key=STRING).count(store="lost-value")
    stream.repartition(name="explicit").to("out")
    serdes = {
        node.topic: (node.key_serde, node.value_serde) for node in builder.build().nodes if isinstance(node, SinkNode)
    }
    assert serdes == {
        "kept-value-repartition": (None, STRING),
        "both-repartition": (STRING, STRING),
        "lost-value-repartition": (STRING, None),
        "explicit-repartition": (None, STRING),  # the key serde is not inherited, as in Kafka Streams
        "out": (STRING, STRING),
    }


def test_merge_forgets_serdes_and_map_both_of_them() -> None:
    builder = StreamsBuilder()
    a, b = (builder.stream(topic, key=STRING, value=STRING) for topic in "ab")
    a.merge(b).to("merged")
    a.map(divmod).to("mapped")
    a.map_values(str).to("values")
    a.select_key(max).to("keys")
    a.filter(max).peek(max).to("filtered")
    a.process(Noop).to("processed")
    serdes = {
        node.topic: (node.key_serde, node.value_serde) for node in builder.build().nodes if isinstance(node, SinkNode)
    }
    assert serdes == {
        "merged": (None, None),
        "mapped": (None, None),
        "values": (STRING, None),
        "keys": (None, STRING),
        "filtered": (STRING, STRING),
        "processed": (None, None),
    }


# -- numbers -------------------------------------------------------------------------------------------------


def test_subtopologies_are_numbered_by_their_first_node_not_by_data_flow() -> None:
    topology = Topology()
    for source in "abc":
        topology.add_source(source, f"topic-{source}")
    topology.add_processor("c1", Noop, "c").add_processor("b1", Noop, "b").add_processor("ca", Noop, ["c1", "a"])
    assert [[node.name for node in sub.nodes] for sub in topology.subtopologies()] == [
        ["a", "c", "c1", "ca"],
        ["b", "b1"],
    ]


def test_shared_store_unites_subtopologies() -> None:
    topology = Topology().add_source("a", "ta").add_source("b", "tb")
    topology.add_processor("pa", Noop, "a").add_processor("pb", Noop, "b")
    assert len(topology.subtopologies()) == 2
    store = key_value_store("st")
    topology.add_state_store(store, "pa").connect_processor_and_state_stores("pb", "st")
    [only] = topology.subtopologies()
    assert (only.stores, only.source_topics) == ((store,), {"ta", "tb"})
    assert only.children_of("a") == ("pa",)


def test_store_without_processors_belongs_to_no_subtopology() -> None:
    topology = Topology().add_source("a", "ta").add_state_store(key_value_store("st"))
    assert topology.subtopology(0).stores == ()
    assert topology.metadata("app").subtopologies[0].stores == frozenset()


# -- co-partition groups -------------------------------------------------------------------------------------


def copartitioned(*groups: set[str]) -> list[list[str]]:
    assembly = TopologyAssembly()
    assembly.add_repartition_topic("r")
    assembly.add_source(SourceNode("int", ("r",), is_internal=True))
    for name in "abcde":
        assembly.add_source(SourceNode(name, (f"t-{name}",)))
    for group in groups:
        assembly.add_copartition_group(group, "join")
    metadata = Topology.from_assembly(assembly).metadata("app")
    return [sorted(group) for group in metadata.copartition_groups]


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ([], []),
        ([{"a", "int"}], [["app-r", "t-a"]]),
        ([{"a", "b"}, {"c", "d"}], [["t-a", "t-b"], ["t-c", "t-d"]]),
        ([{"a", "b"}, {"c", "d"}, {"b", "c"}], [["t-a", "t-b", "t-c", "t-d"]]),
        ([{"a", "gone"}, {"gone"}, {"lost", "b"}], [["t-a"], ["t-b"]]),
        ([{"a", "b"}, {"a", "b"}], [["t-a", "t-b"]]),
    ],
)
def test_copartition_groups_that_share_a_source_are_one(declared: list[set[str]], expected: list[list[str]]) -> None:
    assert copartitioned(*declared) == expected


# -- subscription --------------------------------------------------------------------------------------------


def test_subscription_is_the_sorted_list_of_full_names() -> None:
    assert word_count().subscription("app") == ("app-counts-repartition", "words")


def test_subscription_is_one_expression_when_a_pattern_is_read() -> None:
    builder = StreamsBuilder()
    builder.stream(re.compile("in-.*")).repartition(name="r").to("out")
    builder.stream("a.b").to("out2")
    topology = builder.build()
    expression = topology.subscription("app")
    assert isinstance(expression, re.Pattern)
    assert topology.has_patterns
    for topic in ("in-1", "in-", "app-r-repartition", "a.b"):
        assert expression.match(topic), topic
    for topic in ("xin-1", "app-r-repartition-2", "r-repartition", "a-b", "a.bc"):
        assert not expression.match(topic), topic


INTERNAL = (
    "__consumer_offsets",
    "__transaction_state",
    "__share_group_state",
    "app-counts-changelog",
    "app-r-repartition",
    "app-of-an-earlier-version-repartition",
    "app-KSTREAM-AGGREGATE-STATE-STORE-0000000003-changelog",
    "app-KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000006-topic",
    "app-KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-0000000014-topic",
    "app-mine-subscription-response-topic",
)


@pytest.mark.parametrize("pattern", [".*", ".*offsets|__.*|app-.*", "(?:a|_).*"])
def test_pattern_never_matches_internal_topics(pattern: str) -> None:
    builder = StreamsBuilder()
    builder.stream(re.compile(pattern)).repartition(name="r").group_by_key().count(store="counts")
    topology = builder.build()
    expression = topology.subscription("app")
    assert isinstance(expression, re.Pattern)
    others = [
        topic
        for topic in ("app-changelog-of-mine", "appl-x-changelog", "_offsets", "aa")
        if re.fullmatch(pattern, topic)
    ]
    for topic in INTERNAL:
        assert bool(expression.match(topic)) is (topic == "app-r-repartition"), topic
    for topic in others:
        assert expression.match(topic), topic
    subs = topology.metadata("app", available_topics=[*INTERNAL, *others]).subtopologies
    assert [sub.source_topics for sub in subs.values()] == [set(others), {"app-r-repartition"}]


def test_pattern_source_reads_what_matches_and_nobody_reads_by_name() -> None:
    topology = Topology().add_source("exact", "in-1").add_source("first", re.compile("x-.*"))
    topology.add_source("second", re.compile(".-2"))
    topics = topology.source_topics("app", available_topics=["x-2", "y-2", "x-1", "in-1", "other", "in-2"])
    assert topics == {"exact": ("in-1",), "first": ("x-1", "x-2"), "second": ("y-2",)}
    metadata = topology.metadata("app", available_topics=["x-2", "y-2"])
    assert [sub.source_topics for sub in metadata.subtopologies.values()] == [{"in-1"}, {"x-2"}, {"y-2"}]


def test_changelog_topic_is_named_even_when_nothing_is_logged() -> None:
    assert word_count(logging=False).changelog_topic("counts", "app") == "app-counts-changelog"


# -- description ---------------------------------------------------------------------------------------------


def test_description_sorts_nodes_by_what_is_below_them_then_by_name() -> None:
    topology = Topology().add_source("z", ["t2", "t1"]).add_source("a", re.compile("p.*"))
    topology.add_processor("top", Noop, ["z", "a"]).add_processor("left", Noop, "top").add_processor(
        "right", Noop, "top"
    )
    topology.add_state_store(key_value_store("s2"), "left").add_state_store(key_value_store("s1"), "left")
    topology.add_processor("bottom", Noop, ["right", "left"]).add_sink("out", lambda k, v, record: "x", "bottom")
    chooser = "test_description_sorts_nodes_by_what_is_below_them_then_by_name.<locals>.<lambda>"
    assert topology.describe() == (
        "Topologies:\n"
        "   Sub-topology: 0\n"
        "    Source: a (topics: p.*)\n      --> top\n"
        "    Source: z (topics: [t1, t2])\n      --> top\n"
        "    Processor: top (stores: [])\n      --> left, right\n      <-- z, a\n"
        "    Processor: left (stores: [s1, s2])\n      --> bottom\n      <-- top\n"
        "    Processor: right (stores: [])\n      --> bottom\n      <-- top\n"
        "    Processor: bottom (stores: [])\n      --> out\n      <-- right, left\n"
        f"    Sink: out (extractor class: {chooser})\n      <-- bottom\n"
        "\n"
    )


# -- what the DSL passes on ----------------------------------------------------------------------------------


def extractor(key: Any, value: Any, timestamp_ms: int, partition_time_ms: int) -> int:
    return timestamp_ms


def test_options_of_a_source_reach_its_node() -> None:
    policy = ResetPolicy.LATEST
    builder = StreamsBuilder()
    builder.stream("a", key=STRING, timestamp_extractor=extractor, reset_policy=policy).to("out")
    builder.table("b", value=STRING, timestamp_extractor=extractor, reset_policy=policy, name="t")
    nodes = {node.name: node for node in builder.build().nodes}
    assert nodes["KSTREAM-SOURCE-0000000000"] == SourceNode(
        "KSTREAM-SOURCE-0000000000", ("a",), None, STRING, None, extractor, policy
    )
    assert nodes["t-source"] == SourceNode("t-source", ("b",), None, None, STRING, extractor, policy)


def test_partitioner_reaches_sink_and_repartition() -> None:
    def by_value(topic: str, key: Any, value: Any, partitions: int) -> int:
        return 0

    builder = StreamsBuilder()
    builder.stream("a").repartition(name="r", partitioner=by_value, partitions=4).to("out", partitioner=by_value)
    topology = builder.build()
    assert [node.partitioner for node in topology.nodes if isinstance(node, SinkNode)] == [by_value, by_value]
    assert topology.metadata("app").subtopologies[1].repartition_sources["app-r-repartition"].partitions == 4


def test_internal_nodes_are_marked_and_have_no_policies_of_their_own() -> None:
    [source] = word_count().subtopology(1).sources
    [sink] = word_count().subtopology(0).sinks
    assert (source.is_internal, source.timestamp_extractor, source.reset_policy, sink.is_internal) == (
        True,
        None,
        None,
        True,
    )


def test_table_knows_the_store_the_user_named() -> None:
    builder = StreamsBuilder()
    table = builder.table("t", store="st")
    assert table.queryable_store_name == "st"
    assert table.filter(max, store="f").queryable_store_name == "f"
    assert table.map_values(str).queryable_store_name is None
    assert builder.stream("s").group_by_key().count().queryable_store_name is None


def test_default_serdes_of_the_builder_fill_what_was_left_open() -> None:
    builder = StreamsBuilder(key=STRING, value=STRING)
    words = builder.stream("in").flat_map_values(str.split)
    words.group_by(lambda key, word: word).count(store="counts").to_stream().to("out")
    builder.table("t", value=INT64).group_by(lambda k, v: (k, k)).count(store="rows")
    topology = builder.build()
    serdes = {node.name: (node.key_serde, node.value_serde) for node in topology.nodes if not hasattr(node, "operator")}
    assert serdes["KSTREAM-SOURCE-0000000000"] == (STRING, STRING)
    assert serdes["counts-repartition-sink"] == (STRING, STRING)
    assert serdes["KSTREAM-SINK-0000000008"] == (STRING, INT64)
    repartitioned = [value for _, value in serdes.values() if isinstance(value, ChangeSerde)]
    assert [serde.inner for serde in repartitioned] == [STRING, STRING]
    assert {name: (s.key_serde, s.value_serde) for name, s in topology.stores.items()} == {
        "counts": (STRING, INT64),
        "t-STATE-STORE-0000000009": (STRING, INT64),
        "rows": (STRING, INT64),
    }


def test_serde_given_with_a_function_is_known_to_everything_below() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=STRING, value=STRING)
    stream.map_values(len, value=INT64).group_by_key().reduce(max, store="longest")
    stream.map(lambda k, v: (len(v), k), key=INT64, value=STRING).group_by_key().reduce(max, store="by-length")
    stream.select_key(lambda k, v: len(v), key=INT64).to("out")
    topology = builder.build()
    kept = {name: (store.key_serde, store.value_serde) for name, store in topology.stores.items()}
    assert kept == {"longest": (STRING, INT64), "by-length": (INT64, STRING)}
    [sink] = [node for node in topology.nodes if isinstance(node, SinkNode) and node.topic == "out"]
    assert (sink.key_serde, sink.value_serde) == (INT64, STRING)


def test_changelog_of_a_versioned_store_keeps_its_history() -> None:
    topology = Topology()
    topology.add_source("source", "in").add_processor("p", Noop, "source")
    topology.add_state_store(versioned_key_value_store("versions", history=1000), "p")
    (sub,) = topology.metadata("app").subtopologies.values()
    (changelog,) = sub.changelogs.values()
    assert changelog.config == {
        "cleanup.policy": "compact",
        "message.timestamp.type": "CreateTime",
        "min.compaction.lag.ms": "86401000",
    }
