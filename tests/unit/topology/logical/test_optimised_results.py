"""Optimisation changes topics but not results: programs run with and without it, in several partitions."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from streams_py.serdes import INT64, STRING
from streams_py.testing.driver import TopologyTestDriver
from streams_py.topology.declare.nodes import SinkNode
from streams_py.topology.declare.processor import FixedKeyProcessor, Processor
from streams_py.topology.dsl.builder import StreamsBuilder
from streams_py.topology.topology import Topology

PARTITIONS = 4
RECORDS = [
    (None, f"{one}{other}{number}") for number, (one, other) in enumerate(["ax", "bx", "ay", "cz", "bz", "ax"] * 3)
]
Describe = Callable[[StreamsBuilder[Any, Any]], Any]


class Last(Processor[Any, Any, Any, Any]):
    def init(self, context: Any) -> None:
        self.context = context

    def process(self, record: Any) -> None:
        self.context.forward(record.with_key(record.value[1]))


class Length(FixedKeyProcessor[Any, Any, Any]):
    def init(self, context: Any) -> None:
        self.context = context

    def process(self, record: Any) -> None:
        if record.value[0] != "c":
            self.context.forward(record.with_value(len(record.value)))


def first(key: Any, value: str) -> str:
    return value[0]


def second(key: Any, value: str) -> str:
    return value[1]


def keyed(builder: StreamsBuilder[Any, Any]) -> Any:
    return builder.stream("in").select_key(first, key=STRING)


def aggregated(stream: Any) -> None:
    stream.group_by_key().count(store="one")
    stream.filter(lambda key, value: True).group_by_key().count(store="two")


def after_a_processor(builder: StreamsBuilder[Any, Any]) -> None:
    aggregated(keyed(builder).process(Last, key=STRING, value=STRING))


def after_a_generator(builder: StreamsBuilder[Any, Any]) -> None:
    def turn(record: Any, context: Any) -> Any:
        yield record.with_key(record.value[::-1])

    aggregated(keyed(builder).process(turn, key=STRING, value=STRING))


def after_values(builder: StreamsBuilder[Any, Any]) -> None:
    aggregated(keyed(builder).process_values(Length, value=INT64))


def after_a_global_join(builder: StreamsBuilder[Any, Any]) -> None:
    stream = keyed(builder).left_join(builder.global_table("g"), lambda v, g: len(v), on=first)
    aggregated(stream.map_values(lambda v: v, value=INT64))
    stream.group_by_key(value=INT64).count(store="three")


def behind_a_table_join(builder: StreamsBuilder[Any, Any]) -> None:
    table = builder.table("t", store="t")
    stream = keyed(builder).process(Last, key=STRING, value=STRING)
    stream.left_join(table, lambda v, t: v).group_by_key(key=STRING, value=STRING).count(store="one")
    stream.group_by_key().count(store="two")


def one_branch_of_a_merge(builder: StreamsBuilder[Any, Any]) -> None:
    one = keyed(builder)
    other = builder.stream("in").select_key(second, key=STRING)
    one.group_by_key().count(store="one")
    one.merge(other).group_by_key(key=STRING, value=STRING).count(store="two")


def merge_with_a_processor(builder: StreamsBuilder[Any, Any]) -> None:
    one, other = keyed(builder), builder.stream("in").select_key(second, key=STRING)
    merged = one.merge(other.process(Last, key=STRING, value=STRING))
    merged.group_by_key(key=STRING, value=STRING).count(store="one")
    merged.group_by_key(key=STRING, value=STRING).count(store="two")


def into_a_table(builder: StreamsBuilder[Any, Any]) -> None:
    stream = keyed(builder).process(Last, key=STRING, value=STRING)
    stream.to_table(store="one").group_by(lambda k, v: (v[0], v), key=STRING, value=STRING).count(store="two")


PROGRAMS = [
    after_a_processor, after_a_generator, after_values, after_a_global_join, behind_a_table_join, one_branch_of_a_merge,
    merge_with_a_processor, into_a_table,
]  # fmt: skip


def contents(topology: Topology) -> dict[str, list[Any]]:
    """Return the content of each store, by partition."""
    with TopologyTestDriver(topology, partitions=PARTITIONS) as driver:
        source = driver.input_topic("in", key=STRING, value=STRING)
        for number, (key, value) in enumerate(RECORDS):
            source.send(key or f"k{number}", value, timestamp_ms=number)
        return {
            name: [
                (partition, key, value)
                for partition in range(PARTITIONS)
                for key, value in driver.store(name, partition=partition).all()
            ]
            for name in sorted(topology.stores)
            if name in {"one", "two", "three"}
        }


def build(describe: Describe, config: dict[str, Any]) -> Topology:
    builder = StreamsBuilder(key=STRING, value=STRING)
    describe(builder)
    return builder.build(config)


@pytest.mark.parametrize("describe", PROGRAMS, ids=lambda describe: describe.__name__)
@pytest.mark.parametrize("optimization", ["all", "merge.repartition.topics"])
def test_results_are_the_same(describe: Describe, optimization: str) -> None:
    expected = contents(build(describe, {"topology.optimization": "none"}))
    assert any(expected.values())
    assert contents(build(describe, {"topology.optimization": optimization})) == expected


def test_repartitions_below_a_processor_become_one_below_it() -> None:
    topology = build(after_a_processor, {"topology.optimization": "all"})
    assert sum(isinstance(node, SinkNode) and node.is_internal for node in topology.nodes) == 1


def test_topics_of_kafka_streams_can_be_kept() -> None:
    """Kafka Streams moves the repartition before the processor, so its results are in other partitions."""
    topology = build(after_a_processor, {"topology.optimization": "all", "__reference.behaviour__": True})
    above = next(node for node in topology.nodes if "SELECT" in node.name)
    (child,) = (node for node in topology.nodes if above.name in getattr(node, "parents", ()))
    assert "repartition-filter" in child.name
    assert contents(topology) != contents(build(after_a_processor, {"topology.optimization": "none"}))


@pytest.mark.parametrize("seed", range(40))
def test_results_of_drawn_chains_are_the_same(seed: int) -> None:
    def describe(builder: StreamsBuilder[Any, Any]) -> None:
        draw = random.Random(seed)
        streams = [builder.stream("in")]
        text = {"key": STRING, "value": STRING}
        for _ in range(draw.randint(3, 8)):
            stream = draw.choice(streams)
            match draw.randrange(7):
                case 0:
                    streams.append(stream.select_key(first, key=STRING))
                case 1:
                    streams.append(stream.select_key(second, key=STRING))
                case 2:
                    streams.append(stream.process(Last, **text))
                case 3:
                    streams.append(stream.filter(lambda key, value: value[0] != "b"))
                case 4:
                    streams.append(stream.map_values(lambda value: value[1] + value, value=STRING))
                case 5:
                    streams.append(stream.merge(draw.choice(streams)))
                case _:
                    streams.append(stream.left_join(builder_global(builder), lambda v, g: v[1] + v, on=first))
        draw.choice(streams[1:]).group_by_key(**text).count(store="one")
        draw.choice(streams[1:]).group_by_key(**text).count(store="two")
        draw.choice(streams[1:]).group_by_key(**text).count(store="three")

    def builder_global(builder: StreamsBuilder[Any, Any]) -> Any:
        if builder not in tables:
            tables[builder] = builder.global_table("g")
        return tables[builder]

    tables: dict[Any, Any] = {}
    expected = contents(build(describe, {"topology.optimization": "none"}))
    tables.clear()
    assert contents(build(describe, {"topology.optimization": "all"})) == expected
