"""TopologyTestDriver."""

from __future__ import annotations

import re
from typing import Any

import pytest

from streams_py import serdes
from streams_py.errors import DeserializationError, IllegalStateError, TopologyError, UnknownStateStoreError
from streams_py.testing.driver import TopologyTestDriver
from streams_py.topology.dsl.builder import StreamsBuilder
from streams_py.topology.nodes import Punctuation
from streams_py.topology.partitioning import partition_for
from streams_py.topology.processor import Processor, Record
from streams_py.topology.topology import Topology

S, N = serdes.STRING, serdes.INT64


def word_count() -> Topology:
    builder = StreamsBuilder()
    builder.stream("lines", key=S, value=S).flat_map_values(lambda line: line.split()).group_by(
        lambda key, word: word, key=S, value=S
    ).count(store="counts").to_stream().to("counts", key=S, value=N)
    return builder.build()


@pytest.mark.parametrize("partitions", [1, 4])
@pytest.mark.parametrize("cache_bytes", [0, 10_000_000])
def test_driver_counts_words_over_two_subtopologies(partitions: int, cache_bytes: int) -> None:
    config = {"statestore.cache.max.bytes": cache_bytes, "application.id": "wc"}
    with TopologyTestDriver(word_count(), config, partitions=partitions) as driver:
        lines = driver.input_topic("lines", key=S, value=S)
        counts = driver.output_topic("counts", key=S, value=N)
        lines.send("k", "hello big world", timestamp_ms=5)
        lines.send("j", "hello", timestamp_ms=3)
        written = [tuple(r) for r in counts.read_all()]
        expected: list[Any] = [("hello", 1, 5, ()), ("big", 1, 5, ()), ("world", 1, 5, ()), ("hello", 2, 5, ())]
        if partitions == 1:
            assert written == expected
        assert sorted(written) == sorted(expected)  # between partitions there is no order
        found = {key: pair.value for n in range(partitions) for key, pair in driver.store("counts", partition=n).all()}
        assert found == {"hello": 2, "big": 1, "world": 1}
        assert driver.produced_topics == {"counts", "wc-counts-repartition", "wc-counts-changelog"}
        changelog = driver.output_topic("wc-counts-changelog", key=S, value=N)
        assert changelog.read_to_dict() == found


def test_output_topics_read_each_for_itself() -> None:
    with TopologyTestDriver(word_count()) as driver:
        driver.input_topic("lines", key=S, value=S).send_all([("k", "a"), ("k", "b"), ("k", "a")], timestamp_ms=1)
        first, second = (driver.output_topic("counts", key=S, value=N) for _ in range(2))
        assert len(first) == 3
        assert first.read() == Record("a", 1, 1)
        assert second.read_pairs() == [("a", 1), ("b", 1), ("a", 2)]
        assert first.read_to_dict() == {"b": 1, "a": 2}
        with pytest.raises(LookupError, match="no more records in counts: 3 were written"):
            first.read()


def test_headers_and_nulls_pass_through() -> None:
    topology = Topology().add_source("s", "in", key=S, value=S).add_sink("o", "out", "s", key=S, value=S)
    with TopologyTestDriver(topology) as driver:
        driver.input_topic("in", key=S, value=S).send(None, None, headers=[("h", b"1"), ("g", None)])
        assert driver.output_topic("out", key=S, value=S).read() == Record(None, None, 0, (("h", b"1"), ("g", None)))


class Ticking(Processor[Any, Any, Any, Any]):
    def init(self, context: Any) -> None:
        super().init(context)
        context.schedule(100, Punctuation.WALL_CLOCK_TIME, lambda now: context.forward(Record("tick", now, now)))

    def process(self, record: Record[Any, Any]) -> None:
        pass


def test_clock_stands_still_until_it_is_moved() -> None:
    topology = Topology().add_source("s", "in", key=S, value=S).add_processor("t", Ticking, "s")
    topology.add_sink("o", "out", "t", key=S, value=N)
    with TopologyTestDriver(topology, wall_clock_ms=1_000) as driver:
        out = driver.output_topic("out", key=S, value=N)
        driver.input_topic("in", key=S, value=S).send("k", "v")
        driver.advance_wall_clock(99)
        assert len(out) == 0
        driver.advance_wall_clock(1)
        driver.advance_wall_clock(250)
        assert out.read_pairs() == [("tick", 1_100), ("tick", 1_350)]
        assert driver.wall_clock_ms == 1_350


def test_record_gets_the_time_of_the_clock_when_none_is_given() -> None:
    topology = Topology().add_source("s", "in", key=S, value=S).add_sink("o", "out", "s", key=S, value=S)
    with TopologyTestDriver(topology, wall_clock_ms=77) as driver:
        driver.input_topic("in", key=S, value=S).send("k", "v")
        assert driver.output_topic("out", key=S, value=S).read().timestamp == 77


def test_pattern_source_reads_topics_as_they_are_written_to() -> None:
    topology = Topology().add_source("s", re.compile("in-.*"), key=S, value=S)
    topology.add_sink("o", "out", "s", key=S, value=S)
    with TopologyTestDriver(topology, partitions=2) as driver:
        out = driver.output_topic("out", key=S, value=S)
        driver.input_topic("in-a", key=S, value=S).send("k", "1")
        driver.input_topic("in-b", key=S, value=S).send("j", "2", partition=1)
        driver.input_topic("in-a", key=S, value=S).send("k", "3")
        assert out.read_pairs() == [("k", "1"), ("j", "2"), ("k", "3")]


def test_input_topic_names_the_sources_when_nothing_reads_the_topic() -> None:
    with (
        TopologyTestDriver(word_count(), {"application.id": "wc"}) as driver,
        pytest.raises(TopologyError, match="no source reads topic 'line'; this topology reads lines, wc-counts-re"),
    ):
        driver.input_topic("line", key=S, value=S)


def test_store_names_those_that_exist_when_there_is_none_of_that_name() -> None:
    says = "no store 'count'; the topology has counts"
    with TopologyTestDriver(word_count()) as driver, pytest.raises(UnknownStateStoreError, match=says):
        driver.store("count")


def test_errors_of_processing_are_raised_by_send() -> None:
    topology = Topology().add_source("s", "in", key=S, value=serdes.JSON)
    with TopologyTestDriver(topology) as driver, pytest.raises(DeserializationError, match="in-0 at offset 0"):
        driver.input_topic("in", key=S, value=S).send("k", "{")


def test_configured_handler_is_used() -> None:
    topology = Topology().add_source("s", "in", key=S, value=serdes.JSON)
    topology.add_sink("o", "out", "s", key=S, value=serdes.JSON)
    with TopologyTestDriver(topology, {"deserialization.exception.handler": "log_and_continue"}) as driver:
        driver.input_topic("in", key=S, value=S).send_all([("k", "{"), ("k", "[1]")])
        assert driver.output_topic("out", key=S, value=serdes.JSON).read_pairs() == [("k", [1])]


def test_configured_serdes_are_used() -> None:
    topology = Topology().add_source("s", "in").add_sink("o", "out", "s")
    with TopologyTestDriver(topology, {"default.key.serde": "string", "default.value.serde": N}) as driver:
        driver.input_topic("in", key=S, value=N).send("k", 7)
        assert driver.output_topic("out", key=S, value=N).read_pairs() == [("k", 7)]


def test_driver_refuses_records_when_it_is_closed() -> None:
    driver = TopologyTestDriver(word_count())
    lines = driver.input_topic("lines", key=S, value=S)
    driver.close()
    driver.close()
    with pytest.raises(IllegalStateError, match="closed"):
        lines.send("k", "v")


def test_processors_are_closed_with_the_driver() -> None:
    closed: list[int] = []

    class Closing(Ticking):
        def close(self) -> None:
            closed.append(self.context.task_id.partition)

    topology = Topology().add_source("s", "in", key=S, value=S).add_processor("t", Closing, "s")
    with TopologyTestDriver(topology, partitions=3):
        pass
    assert closed == [0, 1, 2]


def test_records_go_to_the_partition_of_their_key_in_every_topic() -> None:
    builder = StreamsBuilder(key=S, value=S)
    builder.stream("in").select_key(lambda k, v: v).repartition(name="r").to("out")
    with TopologyTestDriver(builder.build(), partitions=4) as driver:
        driver.input_topic("in", key=S, value=S).send_all([("k", letter) for letter in "abcdefgh"])
        written = {record.key(): record.partition() for record in driver._written["test-r-repartition"]}
    assert written == {letter.encode(): partition_for(letter.encode(), 4) for letter in "abcdefgh"}
    assert len(set(written.values())) > 1
