"""One test for each rule of a valid topology."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from streams_py.errors import ConfigError, TopologyError
from streams_py.serdes import INT64, STRING
from streams_py.topology.declare.nodes import ResetPolicy, SinkNode, SourceNode
from streams_py.topology.declare.processor import FixedKeyProcessor, FixedKeyRecord, Processor, Record
from streams_py.topology.declare.stores import key_value_store, timestamped_key_value_store
from streams_py.topology.declare.windows import JoinWindows
from streams_py.topology.dsl.builder import StreamsBuilder
from streams_py.topology.dsl.options import Materialized
from streams_py.topology.physical.assembly import TopologyAssembly
from streams_py.topology.topology import Topology


class Noop(Processor[object, object, object, object]):
    def process(self, record: Record[object, object]) -> None:
        self.context.forward(record)


class NoopValues(FixedKeyProcessor[object, object, object]):
    def process(self, record: FixedKeyRecord[object, object]) -> None:
        self.context.forward(record)


STORE = key_value_store("st", key=STRING, value=STRING)


def start() -> Topology:
    """Return source -> processor -> sink, with a store."""
    topology = Topology().add_source("source", "in").add_processor("processor", Noop, "source")
    return topology.add_sink("sink", "out", "processor").add_state_store(STORE, "processor")


RULES: list[tuple[str, str, Callable[[Topology], object]]] = [
    ("node name used twice", "'source' is added twice", lambda t: t.add_source("source", "other")),
    ("processor name used twice", "'sink' is added twice", lambda t: t.add_processor("sink", Noop, "source")),
    ("sink name used twice", "'processor' is added twice", lambda t: t.add_sink("processor", "o", "source")),
    ("node without name", "needs a name", lambda t: t.add_source("", "other")),
    ("topic read twice", "'in' is already read by source 'source'", lambda t: t.add_source("s2", ["x", "in"])),
    ("pattern over a topic", "matches topic 'in'", lambda t: t.add_source("s2", re.compile("i."))),
    (
        "topic under a pattern",
        "'x-1' is already read by 's2'",
        lambda t: t.add_source("s2", re.compile("x-.*")).add_source("s3", "x-1"),
    ),
    ("pattern with flags", "has flags", lambda t: t.add_source("s2", re.compile("x", re.IGNORECASE))),
    ("source without topic", "at least one topic or a pattern", lambda t: t.add_source("s2", [])),
    ("parent unknown", "parent 'unknown' of node 'p2'", lambda t: t.add_processor("p2", Noop, "unknown")),
    ("parent of a sink unknown", "parent 'unknown'", lambda t: t.add_sink("k2", "o", "unknown")),
    ("its own parent", "parent 'p2' of node 'p2'", lambda t: t.add_processor("p2", Noop, "p2")),
    ("processor without parent", "at least one parent", lambda t: t.add_processor("p2", Noop, [])),
    ("sink without parent", "at least one parent", lambda t: t.add_sink("k2", "o", [])),
    ("sink as parent", "sink 'sink' cannot be the parent", lambda t: t.add_processor("p2", Noop, "sink")),
    ("store name used twice", "'st' is declared twice", lambda t: t.add_state_store(key_value_store("st"))),
    (
        "store unknown",
        "'nothing' is not added yet",
        lambda t: t.connect_processor_and_state_stores("processor", "nothing"),
    ),
    (
        "store unknown at the processor",
        "'nothing' is not added yet",
        lambda t: t.add_processor("p2", Noop, "source", stores=["nothing"]),
    ),
    (
        "processor of a store unknown",
        "'unknown' is not added yet",
        lambda t: t.connect_processor_and_state_stores("unknown", "st"),
    ),
    ("store at a source", "only processors", lambda t: t.connect_processor_and_state_stores("source", "st")),
    ("store at a sink", "only processors", lambda t: t.connect_processor_and_state_stores("sink", "st")),
    ("store name illegal", "characters other than", lambda t: t.add_state_store(key_value_store("a/b"))),
    (
        "supplier of one object",
        "the same Noop twice",
        lambda t: t.add_processor("p2", (lambda p: lambda: p)(Noop()), "source"),
    ),
    ("supplier of something else", "must return a Processor", lambda t: t.add_processor("p2", NoopValues, "source")),
    ("supplier that is a processor", "cannot be called", lambda t: t.add_processor("p2", Noop(), "source")),
]


@pytest.mark.parametrize(("message", "call"), [pytest.param(text, call, id=id) for id, text, call in RULES])
def test_topology_error_when_the_rule_is_broken(message: str, call: Callable[[Topology], object]) -> None:
    topology = start()
    with pytest.raises(TopologyError, match=re.escape(message)):
        call(topology)


def test_topology_is_accepted_when_no_rule_is_broken() -> None:
    start().add_state_store(STORE).add_processor("p2", Noop, ["processor", "source"], stores=["st"]).describe()


def test_sink_is_refused_without_topic_and_chooser() -> None:
    assembly = TopologyAssembly()
    assembly.add_source(SourceNode("s", ("in",)))
    with pytest.raises(TopologyError, match="a topic or a topic chooser"):
        assembly.add_sink(SinkNode("k", ("s",)))


def test_internal_topic_is_refused_when_declared_twice() -> None:
    builder = StreamsBuilder()
    builder.stream("a").group_by(max, name="same").count()
    builder.stream("b").group_by(max, name="same").count()
    with pytest.raises(TopologyError, match="'same"):
        builder.build()


def test_metadata_is_refused_when_the_topology_is_empty() -> None:
    for topology in (Topology(), StreamsBuilder().build()):
        with pytest.raises(TopologyError, match="empty"):
            topology.metadata("app")


def test_subtopology_is_refused_when_there_is_none_of_that_number() -> None:
    assert start().subtopology(0).id == 0
    for id in (-1, 1):
        with pytest.raises(TopologyError, match=f"sub-topology {id} does not exist"):
            start().subtopology(id)


# -- DSL -----------------------------------------------------------------------------------------------------


def built(*describe: Callable[[StreamsBuilder], object]) -> Topology:
    builder = StreamsBuilder()
    for call in describe:
        call(builder)
    return builder.build()


def test_streams_of_equal_topics_share_a_source() -> None:
    topology = built(lambda b: b.stream(["x", "y"]).to("o"), lambda b: b.stream(["y", "x"]).to("o2"))
    assert len(topology.subtopologies()) == 1
    assert topology.source_topics("app") == {"KSTREAM-SOURCE-0000000000": ("x", "y")}


def test_streams_of_equal_patterns_share_a_source() -> None:
    pattern = "in-.*"
    topology = built(lambda b: b.stream(re.compile(pattern)).to("o"), lambda b: b.stream(re.compile(pattern)).to("o2"))
    assert len(topology.subtopologies()) == 1


def test_streams_of_overlapping_topics_are_refused() -> None:
    with pytest.raises(TopologyError, match="different sets") as refused:
        built(lambda b: b.stream(["x", "y"]), lambda b: b.stream("x"))
    assert len(re.findall(r"test_rules\.py:\d+", str(refused.value))) == 2


def test_streams_of_equal_topics_are_refused_when_reset_policies_differ() -> None:
    with pytest.raises(TopologyError, match="reset policies") as refused:
        built(lambda b: b.stream("x"), lambda b: b.stream("x", reset_policy=ResetPolicy.LATEST))
    assert len(re.findall(r"test_rules\.py:\d+", str(refused.value))) == 2


def test_store_that_is_declared_twice_names_who_has_it_with_both_lines() -> None:
    with pytest.raises(
        TopologyError, match=r"first for 'one' at .*test_rules\.py:\d+; .*test_rules\.py:\d+"
    ) as refused:
        built(
            lambda b: b.stream("x").group_by_key().count(store="st", name="one"),
            lambda b: b.stream("y").group_by_key().count(store="st", name="two"),
        )
    assert "'st'" in str(refused.value)


def test_table_of_a_topic_that_is_read_is_refused() -> None:
    with pytest.raises(TopologyError, match="already read"):
        built(lambda b: b.stream("x"), lambda b: b.table("x"))


def test_stream_of_no_topic_is_refused() -> None:
    with pytest.raises(TopologyError, match="at least one topic"):
        StreamsBuilder().stream([])


def test_streams_of_two_builders_cannot_be_merged() -> None:
    with pytest.raises(TopologyError, match="one builder"):
        StreamsBuilder().stream("a").merge(StreamsBuilder().stream("b"))


def test_call_is_refused_after_the_topology_was_built() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("x")
    assert builder.build() is builder.build()
    with pytest.raises(TopologyError, match="already built"):
        stream.to("o")
    with pytest.raises(TopologyError, match="already built"):
        builder.build({"topology.optimization": "all"})


def test_split_is_complete_after_the_default_branch() -> None:
    split = StreamsBuilder().stream("x").split()
    split.default_branch()
    with pytest.raises(TopologyError, match="complete"):
        split.branch(max)


def test_option_object_and_keyword_together_are_refused() -> None:
    stream = StreamsBuilder().stream("x")
    with pytest.raises(TopologyError, match="either materialized= or store="):
        stream.group_by_key().count(store="n", materialized=Materialized("m"))
    with pytest.raises(TopologyError, match="either materialized= or value="):
        stream.group_by_key().aggregate(int, lambda k, v, a: a, value=INT64, materialized=Materialized("m"))


def test_map_values_needs_a_function() -> None:
    stream, table = StreamsBuilder().stream("x"), StreamsBuilder().table("x")
    for call in (stream.map_values, stream.flat_map_values, table.map_values):
        with pytest.raises(TopologyError, match=r"needs (a|one) function"):
            call()


def test_repartition_needs_a_partition() -> None:
    with pytest.raises(TopologyError, match="at least one partition"):
        StreamsBuilder().stream("x").repartition(partitions=0)


def test_repartitions_that_are_joined_have_equal_numbers_where_all_are_given() -> None:
    def build(left: int | None, right: int | None) -> None:
        builder = StreamsBuilder()
        one = builder.stream("a").repartition(name="x", partitions=left)
        builder.stream("b").repartition(name="y", partitions=right).join(one, max, JoinWindows.of(5))
        builder.build()

    build(2, 2)
    build(2, None)
    with pytest.raises(TopologyError, match=r"'KSTREAM-MERGE-.* x-repartition \(2\), y-repartition \(3\).*test_rules"):
        build(2, 3)


@pytest.mark.parametrize("value", ["all,none", "al", "none,merge.repartition.topics", "all, merge.repartition.topics"])
def test_optimization_is_refused_when_it_is_not_known(value: str) -> None:
    with pytest.raises(ConfigError, match=r"topology\.optimization") as raised:
        StreamsBuilder().build({"topology.optimization": value})
    assert raised.value.key == "topology.optimization"


def test_supplier_brings_and_connects_its_own_stores() -> None:
    store = timestamped_key_value_store("own")

    class Supplier:
        def stores(self) -> list[object]:
            return [store]

        def __call__(self) -> Noop:
            return Noop()

    topology = Topology().add_source("s", "in")
    topology.add_processor("p", Supplier(), "s").add_processor("q", Supplier(), "s")
    assert topology.stores == {"own": store}
    assert [node.stores for node in topology.subtopology(0).processors] == [("own",), ("own",)]

    dsl = built(lambda b: b.stream("in").process(Supplier()).to("out"))
    assert dsl.subtopology(0).stores == (store,)


def test_processor_class_brings_stores_by_class_method_only() -> None:
    class WithMethod(Noop):
        def stores(self) -> list[object]:
            raise AssertionError("not a supplier's")

    class WithClassMethod(Noop):
        @classmethod
        def stores(cls) -> list[object]:
            return [STORE]

    topology = Topology().add_source("s", "in")
    topology.add_processor("p", WithMethod, "s").add_processor("q", WithClassMethod, "s")
    assert [node.stores for node in topology.subtopology(0).processors] == [(), ("st",)]


def test_topology_and_its_description_show_as_text_in_a_notebook() -> None:
    topology = Topology().add_source("source", "in").add_sink("sink", "out", "source")
    assert repr(topology) == repr(topology.describe()) == topology.describe()
    assert "\n    Source: source (topics: [in])" in repr(topology)
    assert repr(Topology()) == "an empty topology"
