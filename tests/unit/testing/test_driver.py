"""The TopologyTestDriver."""

from __future__ import annotations

import re
import threading
from datetime import timedelta
from typing import Any

import pytest

from streams_py import serdes
from streams_py.errors import DeserializationError, IllegalStateError, TopologyError, UnknownStateStoreError
from streams_py.testing.driver import TopologyTestDriver
from streams_py.topology.declare.nodes import Punctuation
from streams_py.topology.declare.processor import Processor, Record
from streams_py.topology.declare.stores import key_value_store
from streams_py.topology.declare.windows import JoinWindows
from streams_py.topology.dsl.builder import StreamsBuilder
from streams_py.topology.dsl.options import Materialized
from streams_py.topology.partitioning import partition_for
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
        assert sorted(written) == sorted(expected)  # the order between partitions is not defined
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
    says = "store 'count' does not exist; the topology has counts"
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
        # The driver shows no partitions.
        written = {record.key(): record.partition() for record in driver._written["test-r-repartition"]}
    assert written == {letter.encode(): partition_for(letter.encode(), 4) for letter in "abcdefgh"}
    assert len(set(written.values())) > 1


def passing() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", key=S, value=S).filter(lambda key, value: value != "no").to("out")
    return builder.build()


def test_input_topic_has_a_time_of_its_own_when_it_is_given_one() -> None:
    with TopologyTestDriver(passing(), wall_clock_ms=1) as driver:
        topic = driver.input_topic("in", key=S, value=S, start_ms=100, advance=timedelta(seconds=1))
        out = driver.output_topic("out", key=S, value=S)
        topic.send("k", "a")
        topic.send("k", "b", timestamp_ms=7)
        topic.send("k", "c")
        topic.advance_time(10)
        topic.send_all([("k", "d"), (None, "e")])
        assert [record.timestamp for record in out.read_all()] == [100, 7, 1100, 2110, 3110]
        topic.send_all([("k", "f"), ("k", "g")], timestamp_ms=5, advance=3)
        topic.send_values(["h", "i"], timestamp_ms=20, advance=1)
        assert [(r.key, r.timestamp) for r in out.read_all()] == [("k", 5), ("k", 8), (None, 20), (None, 21)]
        clock = driver.input_topic("in", key=S, value=S)
        clock.send("k", "j")
        clock.advance_time(4)
        clock.send("k", "k")
        clock.send("k", "l")
        assert [record.timestamp for record in out.read_all()] == [1, 5, 5]


def test_records_are_sent_and_read_whole_or_in_parts() -> None:
    with TopologyTestDriver(passing()) as driver:
        out = driver.output_topic("out", key=S, value=S)
        assert out.is_empty
        sent: list[Record[str | None, str | None]] = [
            Record("k", value, number, (("h", b"x"),)) for number, value in enumerate("abcde")
        ]
        driver.input_topic("in", key=S, value=S).send_records(sent)
        assert (out.read_value(), out.read_pair(), out.read()) == ("a", ("k", "b"), sent[2])
        assert not out.is_empty
        assert out.read_values() == ["d", "e"]


def test_all_stores_are_there_by_name() -> None:
    with TopologyTestDriver(word_count()) as driver:
        driver.input_topic("lines", key=S, value=S).send("k", "hello")
        assert {name: [key for key, _ in store.all()] for name, store in driver.stores().items()} == {  # type: ignore[union-attr]
            "counts": ["hello"]
        }


def test_metrics_have_the_names_and_tags_of_a_client() -> None:
    with TopologyTestDriver(word_count()) as driver:
        lines = driver.input_topic("lines", key=S, value=S)
        lines.send("k", "hello world")
        driver.advance_wall_clock(timedelta(seconds=2))
        metrics = driver.metrics()
        thread = threading.current_thread().name
        assert metrics[f"stream-thread-metrics{{thread-id={thread}}}"] == {
            "process-total": 3,
            "process-rate": 1.5,
            "thread-start-time": 0,
        }
        assert metrics[f"stream-task-metrics{{thread-id={thread},task-id=0_0}}"]["dropped-records-total"] == 0
        assert f"stream-task-metrics{{thread-id={thread},task-id=1_0}}" in metrics


class Forgetful(Processor[str, str, str, str]):
    """Opens iterators of its store, and closes only some of them."""

    def init(self, context: Any) -> None:
        super().init(context)
        self.store = context.get_state_store("notes")
        self.open: list[Any] = []

    def process(self, record: Record[str, str]) -> None:
        self.store.put(record.key, record.value)
        self.open.append(self.store.all())
        assert [key for key, _ in self.store.prefix_scan(b"a")] == ["a"]
        if record.value == "end":
            self.open.pop(0).close()


def test_stores_tell_of_open_iterators_and_of_the_age_of_records() -> None:
    topology = (
        Topology()
        .add_source("in", "in", key=S, value=S)
        .add_processor("forgetful", Forgetful, "in")
        .add_state_store(key_value_store("notes", key=S, value=S, persistent=False), "forgetful")
    )

    def notes(driver: TopologyTestDriver) -> dict[str, Any]:
        [found] = [of for group, of in driver.metrics().items() if group.endswith("in-memory-state-id=notes}")]
        return found

    with TopologyTestDriver(topology, {"metrics.recording.level": "TRACE"}, wall_clock_ms=10_000) as driver:
        records = driver.input_topic("in", key=S, value=S)
        records.send("a", "x", timestamp_ms=9_300)
        driver.advance_wall_clock(timedelta(seconds=5))
        records.send("a", "x", timestamp_ms=14_900)
        found = notes(driver)
        assert (found["num-open-iterators"], found["oldest-iterator-open-since-ms"]) == (2, 10_000)
        assert [found[f"record-e2e-latency-{of}"] for of in ("avg", "min", "max")] == [400, 100, 700]
        assert (found["num-keys"], found["iterator-duration-max"] > 0) == (1, True)
        records.send("a", "end", timestamp_ms=15_000)
        found = notes(driver)
        assert (found["num-open-iterators"], found["oldest-iterator-open-since-ms"]) == (2, 15_000)
    with TopologyTestDriver(topology) as driver:
        driver.input_topic("in", key=S, value=S).send("a", "x")
        assert notes(driver) == {"num-open-iterators": 1, "num-keys": 1}


def dropped(driver: TopologyTestDriver) -> float:
    tasks = [metrics for group, metrics in driver.metrics().items() if group.startswith("stream-task-metrics")]
    return sum(float(metrics["dropped-records-total"]) for metrics in tasks)


def test_dropped_records_are_counted() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=S, value=S).group_by_key().count()
    with TopologyTestDriver(builder.build()) as driver:
        driver.input_topic("in", key=S, value=S).send(None, "v")
        assert dropped(driver) == 1


@pytest.mark.parametrize("store", ["in_memory", "rocksdb"])
@pytest.mark.parametrize(("topic", "counted"), [("left", [89, 80, 79]), ("rows", [79])])
def test_record_older_than_what_a_join_or_a_versioned_table_keeps_is_counted(
    topic: str, counted: list[int], store: str
) -> None:
    """No other output shows it. A record exactly at the edge of the window or of the history is still processed."""
    builder = StreamsBuilder(key=S, value=S)
    left, right = builder.stream("left"), builder.stream("right")
    left.join(right, lambda one, other: one + other, windows=JoinWindows.of(10)).to("out")
    builder.table("rows", materialized=Materialized("rows", history=20)).to_stream().to("out")
    with TopologyTestDriver(builder.build(), {"dsl.store.suppliers.class": store}) as driver:
        given, seen = driver.input_topic(topic, key=S, value=S), []
        for timestamp_ms in (100, 90, 89, 80, 79, 101):
            before = dropped(driver)
            given.send("k", "v", timestamp_ms=timestamp_ms)
            seen += [timestamp_ms] * round(dropped(driver) - before)
    assert seen == counted
