"""A cogrouped stream with several aggregations: one repartition per grouping, as in Kafka Streams."""

from __future__ import annotations

from typing import Any

import pytest

from streams_py.serdes import STRING
from streams_py.testing.driver import TopologyTestDriver
from streams_py.topology.declare.windows import SessionWindows, SlidingWindows, TimeWindows
from streams_py.topology.dsl.builder import StreamsBuilder
from streams_py.topology.topology import Topology


def joined(key: str, value: str, total: str) -> str:
    return total + value


def aggregated_four_times(name: str | None, *, counts: bool = False) -> Topology:
    builder = StreamsBuilder(key=STRING, value=STRING)
    options: dict[str, Any] = {} if name is None else {"name": name}
    one = builder.stream("a").select_key(lambda key, value: value[0], key=STRING).group_by_key(**options)
    other = builder.stream("b").group_by_key()
    if counts:
        one.count(store="before")
    both = one.cogroup(joined).cogroup(other, joined)
    both.aggregate(str, store="plain", value=STRING)
    both.windowed_by(TimeWindows.of(10)).aggregate(str, store="time", value=STRING)
    both.windowed_by(SlidingWindows.of(10)).aggregate(str, store="sliding", value=STRING)
    if counts:
        one.count(store="after")
    both.windowed_by(SessionWindows.of(10)).aggregate(str, lambda k, a, b: a + b, store="session", value=STRING)
    return builder.build()


@pytest.mark.parametrize(("name", "topic"), [(None, "plain-repartition"), ("g", "g-repartition")])
def test_one_repartition_serves_all_aggregations(name: str | None, topic: str) -> None:
    topology = aggregated_four_times(name)
    written = [node.topic for node in topology.nodes if getattr(node, "is_internal", False) and hasattr(node, "topic")]
    assert written == [topic]
    with TopologyTestDriver(topology, partitions=2) as driver:
        for source, value in (("a", "x1"), ("b", "x2"), ("a", "x3")):
            driver.input_topic(source, key=STRING, value=STRING).send("x", value, timestamp_ms=5)
        found = [driver.store("plain", partition=at).get("x") for at in range(2)]
        windows = [list(driver.store("time", partition=at).all()) for at in range(2)]
    assert [row.value for row in found if row is not None] == ["x1x2x3"]
    assert [row.value for rows in windows for _, row in rows] == ["x1x2x3"]


def test_named_grouping_is_shared_with_its_other_aggregations() -> None:
    topology = aggregated_four_times("g", counts=True)
    assert list(topology.metadata("app").subtopologies[1].repartition_sources) == ["app-g-repartition"]


def test_cogrouping_leaves_the_stream_it_was_called_on_as_it_was() -> None:
    """Kafka Streams changes that object."""
    builder = StreamsBuilder(key=STRING, value=STRING)
    one = builder.stream("a").group_by_key().cogroup(joined)
    one.cogroup(builder.stream("b").group_by_key(), joined).aggregate(str, store="both", value=STRING)
    one.aggregate(str, store="one", value=STRING)
    with TopologyTestDriver(builder.build()) as driver:
        driver.input_topic("b", key=STRING, value=STRING).send("k", "v")
        assert driver.store("both").get("k").value == "v"
        assert driver.store("one").get("k") is None
