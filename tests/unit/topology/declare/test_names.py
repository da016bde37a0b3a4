"""The name counter: how many numbers each call takes, and the resulting names."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from streams_py.errors import TopologyError
from streams_py.serdes import INT64, STRING
from streams_py.topology.declare.names import Named, NameIndex, RepartitionNames
from streams_py.topology.declare.nodes import SinkNode
from streams_py.topology.declare.processor import Processor, Record
from streams_py.topology.dsl.builder import StreamsBuilder
from streams_py.topology.dsl.options import Materialized
from streams_py.topology.topology import Topology


class Noop(Processor[object, object, object, object]):
    def process(self, record: Record[object, object]) -> None:
        self.context.forward(record)


def key_of(key: object, value: object) -> object:
    return value


def short(name: str) -> str:
    """Shorten KSTREAM-SOURCE-0000000007 to SOURCE-7, also inside longer names."""
    return re.sub(r"(?:KSTREAM|KTABLE)-(.*?)-?0{0,9}(\d+)(?=$|-)", r"\1-\2", name)


def n1(b: StreamsBuilder) -> None:
    b.stream("in").select_key(key_of).group_by_key().count().to_stream().to("out")


def n2(b: StreamsBuilder) -> None:
    b.stream("in").group_by(key_of).count(materialized=Materialized(key=STRING, value=INT64))


def n3(b: StreamsBuilder) -> None:
    b.stream("in").group_by(key_of).count(store="cnt")


def n4(b: StreamsBuilder) -> None:
    b.stream("in").group_by(key_of, name="grp").count()


def n5(b: StreamsBuilder) -> None:
    b.stream("in").group_by_key().reduce(lambda x, y: y)


def n6(b: StreamsBuilder) -> None:
    b.table("t").to_stream().to("out")


def n6_stored(b: StreamsBuilder) -> None:
    b.table("t", store="st").to_stream().to("out")


def n11(b: StreamsBuilder) -> None:
    b.table("x").group_by(lambda k, v: (v, k)).count().to_stream().to("out")


def n14(b: StreamsBuilder) -> None:
    b.stream("a").repartition().to("out")


def n15(b: StreamsBuilder) -> None:
    b.stream("a").select_key(key_of).to_table(store="tt")


def n18(b: StreamsBuilder) -> None:
    s = b.stream("in").select_key(key_of)
    s.group_by_key().count()
    s.group_by_key().reduce(lambda x, y: y)


def n19(b: StreamsBuilder) -> None:
    b.stream("s").to("o")
    b.stream("s").map_values(with_key=key_of).to("o2")


AGG, RED = "KSTREAM-AGGREGATE-STATE-STORE-000000000", "KSTREAM-REDUCE-STATE-STORE-000000000"

EXAMPLES = [
    # id, program, nodes by sub-topology, internal topics (short names)
    pytest.param(
        n1,
        ["SOURCE-0 KEY-SELECT-1 FILTER-5 SINK-4", "SOURCE-6 AGGREGATE-3 TOSTREAM-7 SINK-8"],
        {f"{AGG}2-repartition", f"{AGG}2-changelog"},
        id="N1",
    ),
    pytest.param(
        n2,
        ["SOURCE-0 KEY-SELECT-1 FILTER-6 SINK-5", "SOURCE-7 AGGREGATE-4"],
        {f"{AGG}3-repartition", f"{AGG}3-changelog"},
        id="N2",
    ),
    pytest.param(
        n3,
        ["SOURCE-0 KEY-SELECT-1 cnt-repartition-filter cnt-repartition-sink", "cnt-repartition-source AGGREGATE-2"],
        {"cnt-repartition", "cnt-changelog"},
        id="N3",
    ),
    pytest.param(
        n4,
        ["SOURCE-0 grp grp-repartition-filter grp-repartition-sink", "grp-repartition-source AGGREGATE-3"],
        {"grp-repartition", f"{AGG}2-changelog"},
        id="N4",
    ),
    pytest.param(n5, ["SOURCE-0 REDUCE-2"], {f"{RED}1-changelog"}, id="N5"),
    pytest.param(n6, ["SOURCE-1 SOURCE-2 TOSTREAM-3 SINK-4"], set(), id="N6"),
    pytest.param(n6_stored, ["SOURCE-0 SOURCE-1 TOSTREAM-2 SINK-3"], {"st-changelog"}, id="N6-stored"),
    pytest.param(
        n11,
        ["SOURCE-1 SOURCE-2 SELECT-3 SINK-5", "SOURCE-6 AGGREGATE-7 TOSTREAM-8 SINK-9"],
        {
            "KTABLE-AGGREGATE-STATE-STORE-0000000004-repartition",
            "KTABLE-AGGREGATE-STATE-STORE-0000000004-changelog",
            "x-STATE-STORE-0000000000-changelog",
        },
        id="N11",
    ),
    pytest.param(
        n14, ["SOURCE-0 FILTER-3 SINK-2", "SOURCE-4 SINK-5"], {"KSTREAM-REPARTITION-0000000001-repartition"}, id="N14"
    ),
    pytest.param(
        n15,
        ["SOURCE-0 KEY-SELECT-1 FILTER-4 SINK-3", "SOURCE-5 TOTABLE-2"],
        {"KSTREAM-TOTABLE-0000000002-repartition", "tt-changelog"},
        id="N15",
    ),
    pytest.param(
        n18,
        ["SOURCE-0 KEY-SELECT-1 FILTER-5 SINK-4 FILTER-10 SINK-9", "SOURCE-6 AGGREGATE-3", "SOURCE-11 REDUCE-8"],
        {f"{AGG}2-repartition", f"{AGG}2-changelog", f"{RED}7-repartition", f"{RED}7-changelog"},
        id="N18",
    ),
    pytest.param(n19, ["SOURCE-0 SINK-1 MAPVALUES-3 SINK-4"], set(), id="N19"),
]


def internal_topics(topology: Topology) -> set[str]:
    metadata = topology.metadata("")
    names = [name for sub in metadata.subtopologies.values() for name in (*sub.repartition_sources, *sub.changelogs)]
    return {name.removeprefix("-") for name in names}


@pytest.mark.parametrize(("program", "nodes", "topics"), EXAMPLES)
def test_example_has_the_nodes_subtopologies_and_topics_of_kafka_streams(
    program: Callable[[StreamsBuilder], None], nodes: list[str], topics: set[str]
) -> None:
    builder = StreamsBuilder()
    program(builder)
    topology = builder.build()
    assert [" ".join(short(node.name) for node in sub.nodes) for sub in topology.subtopologies()] == nodes
    assert internal_topics(topology) == topics


def test_example_n18_has_one_repartition_when_optimised() -> None:
    builder = StreamsBuilder()
    n18(builder)
    topology = builder.build({"topology.optimization": "all"})
    base = f"{AGG}2-repartition"
    assert [[node.name for node in sub.nodes] for sub in topology.subtopologies()] == [
        ["KSTREAM-SOURCE-0000000000", "KSTREAM-KEY-SELECT-0000000001", f"{base}-filter", f"{base}-sink"],
        [f"{base}-source", "KSTREAM-AGGREGATE-0000000003", "KSTREAM-REDUCE-0000000008"],
    ]
    assert internal_topics(topology) == {base, f"{AGG}2-changelog", f"{RED}7-changelog"}


# -- the counter ---------------------------------------------------------------------------------------------


def taken(*calls: Callable[[StreamsBuilder], object]) -> int:
    """Return how many numbers the calls take from the counter."""
    builder = StreamsBuilder()
    for call in calls:
        call(builder)
    builder.stream("probe").to("probe-out")
    sinks = [node.name for node in builder.build().nodes if isinstance(node, SinkNode) and node.topic == "probe-out"]
    return int(sinks[0].rsplit("-", 1)[1]) - 1


OPERATIONS: list[tuple[str, int, Callable[[StreamsBuilder], object]]] = [
    ("stream", 1, lambda b: b.stream("in")),
    ("stream named", 1, lambda b: b.stream("in", name="n")),
    ("table", 3, lambda b: b.table("in")),
    ("table stored", 2, lambda b: b.table("in", store="s")),
    ("table named", 3, lambda b: b.table("in", name="n")),
    ("filter named", 2, lambda b: b.stream("in").filter(key_of, name="n")),
    ("group_by_key alone", 1, lambda b: b.stream("in").group_by_key()),
    ("group_by", 2, lambda b: b.stream("in").group_by(key_of)),
    ("group_by named", 2, lambda b: b.stream("in").group_by(key_of, name="n")),
    ("count", 3, lambda b: b.stream("in").group_by_key().count()),
    ("count named", 3, lambda b: b.stream("in").group_by_key().count(name="n")),
    ("count stored", 2, lambda b: b.stream("in").group_by_key().count(store="s")),
    ("count with serdes only", 4, lambda b: b.stream("in").group_by_key().count(materialized=Materialized(key=STRING))),
    (
        "reduce with serdes only",
        3,
        lambda b: b.stream("in").group_by_key().reduce(max, materialized=Materialized(key=STRING)),
    ),
    ("aggregate with a serde only", 3, lambda b: b.stream("in").group_by_key().aggregate(int, max, value=INT64)),
    ("count after key change", 7, lambda b: b.stream("in").group_by(key_of).count()),
    ("process", 2, lambda b: b.stream("in").process(Noop)),
    ("process named", 1, lambda b: b.stream("in").process(Noop, name="n")),
    ("split with two branches", 4, lambda b: b.stream("in").split().branch(key_of).branch(key_of)),
    ("split with a default", 3, lambda b: b.stream("in").split(name="n").default_branch(name="x")),
    ("repartition", 5, lambda b: b.stream("in").repartition()),
    ("repartition named", 4, lambda b: b.stream("in").repartition(name="n")),
    ("to_table", 3, lambda b: b.stream("in").to_table()),
    ("to_table stored", 2, lambda b: b.stream("in").to_table(store="s")),
    ("to_table after key change", 7, lambda b: b.stream("in").select_key(key_of).to_table()),
    ("table filter", 4, lambda b: b.table("in").filter(key_of)),
    ("table filter stored", 4, lambda b: b.table("in").filter(key_of, store="s")),
    ("table filter with serdes only", 5, lambda b: b.table("in").filter(key_of, materialized=Materialized())),
    ("table map_values with serdes only", 5, lambda b: b.table("in").map_values(str, value=STRING)),
    ("to_stream", 4, lambda b: b.table("in").to_stream()),
    ("to_stream with a selector", 5, lambda b: b.table("in").to_stream(key_of)),
    ("table group_by", 4, lambda b: b.table("in").group_by(divmod)),
    ("table count", 8, lambda b: b.table("in").group_by(divmod).count()),
    ("table count stored", 7, lambda b: b.table("in").group_by(divmod).count(store="s")),
    ("table reduce named", 8, lambda b: b.table("in").group_by(divmod).reduce(max, min, name="n")),
]


@pytest.mark.parametrize(("values", "call"), [pytest.param(count, call, id=id) for id, count, call in OPERATIONS])
def test_call_takes_its_values_from_the_counter(values: int, call: Callable[[StreamsBuilder], object]) -> None:
    assert taken(call) == values


def test_shared_named_repartition_takes_values_again_when_it_is_reused() -> None:
    def twice(builder: StreamsBuilder) -> None:
        grouped = builder.stream("in").group_by(key_of, name="g")
        grouped.count()
        grouped.count()

    assert taken(twice) == 2 + 2 * 5


def test_counter_gives_ten_digits() -> None:
    index = NameIndex()
    assert [index.node_name("A-"), index.store_name("B-")] == ["A-0000000000", "B-STATE-STORE-0000000001"]


# -- repartition names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "topic", "sink"),
    [
        ("KSTREAM-AGGREGATE-STATE-STORE-0000000002", None, "KSTREAM-SINK-0000000000"),
        ("cnt", "cnt-repartition", "cnt-repartition-sink"),
        ("x-repartition", "x-repartition", "x-repartition-sink"),
        ("KSTREAM-X-12345", None, "KSTREAM-X-12345-repartition-sink"),
        ("KSTREAM-X-0000000001-repartition", "KSTREAM-X-0000000001-repartition", None),
        ("COGROUPKSTREAM-AGGREGATE-STATE-STORE-0000000003", None, None),
    ],
)
def test_repartition_names_are_generated_only_for_generated_base_names(
    base: str, topic: str | None, sink: str | None
) -> None:
    index = NameIndex()
    names = RepartitionNames(base, index)
    assert names.topic == (topic or f"{base}-repartition")
    assert names.sink == (sink or f"{names.topic}-sink")
    assert index.node_name("") == "0000000003"


@pytest.mark.parametrize("given", [{"name": "x-repartition"}, {"store": "x-repartition"}])
def test_topic_of_a_grouped_table_has_the_suffix_also_when_the_name_given_ends_with_it(given: dict[str, str]) -> None:
    """Unlike for a grouped stream, as in Kafka Streams."""
    builder = StreamsBuilder()
    builder.table("t").group_by(lambda k, v: (v, k), name=given.get("name")).count(store=given.get("store"))
    builder.stream("s").group_by(lambda k, v: v, name="y-repartition").count()
    internal = {
        topic for sub in builder.build().metadata("app").subtopologies.values() for topic in sub.repartition_sources
    }
    assert internal == {"app-x-repartition-repartition", "app-y-repartition"}


# -- names set by users --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ä", "x" * 250, "a\n"])
def test_name_is_refused_when_it_could_not_be_a_topic_name(name: str) -> None:
    stream = StreamsBuilder().stream("in")
    for call in (
        lambda: stream.filter(key_of, name=name),
        lambda: stream.group_by_key(name=name).count(),
        lambda: stream.group_by(key_of, name=name),
        lambda: stream.repartition(name=name),
        lambda: stream.split(name=name),
        lambda: stream.process(Noop, name=name),
        lambda: stream.to_table(store=name),
        lambda: Materialized(name),
        lambda: Named(name),
    ):
        with pytest.raises(TopologyError, match="name"):
            call()


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "..."])
def test_name_is_accepted_when_it_could_be_a_topic_name(name: str) -> None:
    builder = StreamsBuilder()
    builder.stream("in").filter(key_of, name=Named(name))
    assert builder.build().nodes[1].name == name


def test_name_is_refused_when_it_is_too_long_with_its_suffix() -> None:
    with pytest.raises(TopologyError, match="characters"):
        StreamsBuilder().table("in", name="x" * 245)
