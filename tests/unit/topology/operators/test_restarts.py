"""Stream times of operators and stores over a restart: a closed window stays closed, whatever the task restores.

A restart here means that a task is suspended and started again with the committed offsets. Stores are in memory and
keep their content.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streams_py.runtime.tasks.record.offset_metadata import (
    OffsetMetadata,
    decode_offset_metadata,
    encode_offset_metadata,
)
from streams_py.serdes import INT64, STRING, Windowed
from streams_py.testing.driver import TopologyTestDriver
from streams_py.topology.declare.processor import Processor, Record
from streams_py.topology.declare.window_stores import session_store, window_store
from streams_py.topology.declare.windows import EmitStrategy, JoinWindows, SessionWindows, SlidingWindows, TimeWindows
from streams_py.topology.dsl.builder import StreamsBuilder
from streams_py.topology.dsl.options import Materialized
from streams_py.topology.dsl.suppressed import Suppressed
from tests.support.topology.driver_parts import tasks_of
from tests.support.topology.restarts import restart

ON_CLOSE = EmitStrategy.ON_WINDOW_CLOSE
FRESH = {"statestore.cache.max.bytes": 0}
Describe = Callable[[Any], Any]


def count(windows: Any, emit: EmitStrategy = EmitStrategy.ON_WINDOW_UPDATE, **options: Any) -> Describe:
    def describe(stream: Any) -> Any:
        return stream.group_by_key().windowed_by(windows, emit=emit).count(**options).to_stream()

    return describe


def cogrouped(windows: Any) -> Describe:
    def describe(stream: Any) -> Any:
        one = stream.group_by_key()
        other = stream.filter(lambda key, value: value != "v").group_by_key()
        both = one.cogroup(lambda key, value, total: total + 1).cogroup(other, lambda key, value, total: total + 10)
        merger = [lambda key, left, right: left + right] if isinstance(windows, SessionWindows) else []
        return both.windowed_by(windows).aggregate(lambda: 0, *merger, store="c", value=INT64).to_stream()

    return describe


def suppressed(suppress: Suppressed) -> Describe:
    def describe(stream: Any) -> Any:
        table = stream.group_by_key().windowed_by(TimeWindows.of(10)).count(store="c")
        return table.suppress(suppress).to_stream()

    return describe


def limited(stream: Any) -> Any:
    return stream.group_by_key().count(store="c").suppress(Suppressed.until_time_limit(10)).to_stream()


def joined_with_versions(stream: Any) -> Any:
    table = stream.to_table(materialized=Materialized("t", history=100))
    return stream.join(table, lambda left, right: f"{left}/{right}", grace=10)


def joined(how: str, windows: JoinWindows) -> Describe:
    return lambda stream: getattr(stream, how)(
        stream.map_values(str.upper), lambda left, right: f"{left}/{right}", windows
    )


PROGRAMS: dict[str, Describe] = {
    "tumbling": count(TimeWindows.of(10)),
    "hopping": count(TimeWindows.of(10, advance=4)),
    "grace": count(TimeWindows.of(10, grace=3)),
    "kept longer": count(TimeWindows.of(10), materialized=Materialized("c", retention=3_600_000)),
    "sliding": count(SlidingWindows.of(10)),
    "sliding, kept longer": count(SlidingWindows.of(10), materialized=Materialized("c", retention=3_600_000)),
    "sessions": count(SessionWindows.of(10)),
    "sessions, kept longer": count(SessionWindows.of(10), materialized=Materialized("c", retention=3_600_000)),
    "tumbling on close": count(TimeWindows.of(10), ON_CLOSE),
    "sliding on close": count(SlidingWindows.of(10), ON_CLOSE),
    "sessions on close": count(SessionWindows.of(10), ON_CLOSE),
    "cogrouped": cogrouped(TimeWindows.of(10)),
    "cogrouped sliding": cogrouped(SlidingWindows.of(10)),
    "cogrouped sessions": cogrouped(SessionWindows.of(10)),
    "suppressed until close": suppressed(Suppressed.until_window_closes()),
    "suppressed for a time": suppressed(Suppressed.until_time_limit(5)),
    "table suppressed for a time": limited,
    "join": joined("join", JoinWindows.of(10)),
    "left join": joined("left_join", JoinWindows.of(10, before=-1, after=10)),
    "outer join": joined("outer_join", JoinWindows.of(10, grace=5, before=-1, after=10)),
    "self join": lambda stream: stream.join(stream, lambda left, right: f"{left}/{right}", JoinWindows.of(10)),
    "table join with grace": joined_with_versions,
}
RECORDS = [("k", "v", 1), ("k", "v", 9), ("a", "w", 25), ("k", "late", 5), ("k", "v", 24), ("k", "late", 7)]
AFTER = [("k", "late", 5), ("a", "late", 14), ("k", "x", 22), ("b", "v", 60), ("b", "v", 90), ("b", "v", 130)]


def results(describe: Describe, *, restarts: bool, optimization: str = "none", cache: int = 0) -> list[Any]:
    builder = StreamsBuilder(key=STRING, value=STRING)
    describe(builder.stream("in")).map(lambda key, value: (str(key), str(value)), key=STRING, value=STRING).to("out")
    topology = builder.build({"topology.optimization": optimization})
    with TopologyTestDriver(topology, {"statestore.cache.max.bytes": cache}) as driver:
        source = driver.input_topic("in", key=STRING, value=STRING)
        for key, value, timestamp_ms in RECORDS:
            source.send(key, value, timestamp_ms=timestamp_ms)
        if restarts:
            restart(driver)
        for key, value, timestamp_ms in AFTER:
            source.send(key, value, timestamp_ms=timestamp_ms)
        found = driver.output_topic("out", key=STRING, value=STRING).read_all()
    return [(record.key, record.value, record.timestamp) for record in found]


@pytest.mark.parametrize("optimization", ["none", "all"])
@pytest.mark.parametrize("cache", [0, 10_000_000])
@pytest.mark.parametrize("describe", PROGRAMS.values(), ids=PROGRAMS)
def test_restart_changes_no_result(describe: Describe, optimization: str, cache: int) -> None:
    expected = results(describe, restarts=False, optimization=optimization, cache=cache)
    assert expected
    assert results(describe, restarts=True, optimization=optimization, cache=cache) == expected


@pytest.mark.parametrize("kind", [cogrouped(TimeWindows.of(10)), cogrouped(SessionWindows.of(10))])
def test_slow_stream_of_a_cogroup_starts_no_second_aggregate_of_an_expired_window(kind: Describe) -> None:
    """The first stream has advanced the time of the store. The other stream has not reached that time."""
    builder = StreamsBuilder(key=STRING, value=STRING)
    kind(builder.stream("in")).map(lambda key, value: (str(key), str(value)), key=STRING, value=STRING).to("out")
    with TopologyTestDriver(builder.build(), FRESH) as driver:
        source = driver.input_topic("in", key=STRING, value=STRING)
        for value, timestamp_ms in (("v", 1), ("v", 100), ("other", 1)):
            source.send("k", value, timestamp_ms=timestamp_ms)
        out = driver.output_topic("out", key=STRING, value=STRING).read_all()
    assert [record.value for record in out] == ["1", "1"]


def test_time_of_a_java_member_that_does_not_know_the_number_is_that_of_the_store() -> None:
    """The committed numbers are old or missing. A window that the store has expired still stays closed."""
    builder = StreamsBuilder(key=STRING, value=STRING)
    count(TimeWindows.of(10))(builder.stream("in")).map(lambda key, value: (str(key), value), key=STRING).to(
        "out", value=INT64
    )
    with TopologyTestDriver(builder.build(), FRESH) as driver:
        source = driver.input_topic("in", key=STRING, value=STRING)
        for timestamp_ms in (1, 25):
            source.send("k", "v", timestamp_ms=timestamp_ms)
        out = driver.output_topic("out", key=STRING, value=INT64)
        out.read_all()
        (task,) = tasks_of(driver)
        committed = {
            at: entry._replace(metadata=encode_offset_metadata(OffsetMetadata(25)))
            for at, entry in task.committable_offsets().items()
        }
        task.suspend()
        task.resume()
        task.complete_restoration(committed)
        source.send("k", "late", timestamp_ms=5)
        assert out.read_all() == []


def test_numbers_of_others_are_committed_again() -> None:
    builder = StreamsBuilder(key=STRING, value=STRING)
    count(TimeWindows.of(10))(builder.stream("in")).foreach(lambda key, value: None)
    with TopologyTestDriver(builder.build(), FRESH) as driver:
        (task,) = tasks_of(driver)
        source = driver.input_topic("in", key=STRING, value=STRING)
        source.send("k", "v", timestamp_ms=25)
        committed = {
            at: entry._replace(metadata=encode_offset_metadata(OffsetMetadata(25, {"of a Java member": 7})))
            for at, entry in task.committable_offsets().items()
        }
        task.suspend()
        task.resume()
        task.complete_restoration(committed)
        source.send("k", "v", timestamp_ms=31)
        (entry,) = task.committable_offsets().values()
        numbers = decode_offset_metadata(entry.metadata).processors
    assert numbers["of a Java member"] == 7
    assert sorted(numbers.values()) == [7, 31]


class Keeps(Processor[str, str, str, str]):
    """Puts each record into its stores and forwards what the stores then contain."""

    def init(self, context: Any) -> None:
        self.context = context
        self.windows, self.sessions = context.get_state_store("w"), context.get_state_store("s")

    def process(self, record: Record[str, str]) -> None:
        at = record.timestamp
        self.windows.put(record.key, record.value, at)
        self.sessions.put(Windowed(record.key, at, at), record.value)
        found = (self.windows.fetch(record.key, at), self.sessions.fetch_session(record.key, at, at))
        self.context.forward(record.with_value(str(found)))


def test_stores_of_processors_keep_their_stream_time() -> None:
    def describe(stream: Any) -> Any:
        return stream.process(Keeps, stores=["w", "s"], key=STRING, value=STRING)

    def run(*, restarts: bool) -> list[str]:
        builder = StreamsBuilder(key=STRING, value=STRING)
        builder.add_state_store(window_store("w", retention=10, size=5, key=STRING, value=STRING))
        builder.add_state_store(session_store("s", retention=10, key=STRING, value=STRING))
        describe(builder.stream("in")).to("out")
        with TopologyTestDriver(builder.build(), FRESH) as driver:
            source = driver.input_topic("in", key=STRING, value=STRING)
            source.send("k", "v", timestamp_ms=100)
            source.send("k", None, timestamp_ms=130)  # advances stream time and stores nothing
            if restarts:
                # What a reopened store has read.
                restart(driver, lambda: [store._expiring.roll_back() for store in driver.stores().values()])
            source.send("k", "late", timestamp_ms=115)
            return driver.output_topic("out", key=STRING, value=STRING).read_values()

    assert run(restarts=True) == run(restarts=False)
    assert run(restarts=False)[-1] == "(None, None)"


def test_record_of_a_join_replaces_none_of_its_key_and_time_after_a_restart() -> None:
    """Stored records are numbered. In Kafka Streams the numbers start again with each owner of the task."""
    builder = StreamsBuilder(key=STRING, value=STRING)
    builder.stream("L").join(builder.stream("R"), lambda left, right: f"{left}/{right}", JoinWindows.of(10)).to("out")
    with TopologyTestDriver(builder.build(), FRESH) as driver:
        left, right = (driver.input_topic(side, key=STRING, value=STRING) for side in "LR")
        left.send("k", "before", timestamp_ms=5)
        restart(driver)
        left.send("k", "after", timestamp_ms=5)
        right.send("k", "r", timestamp_ms=5)
        out = driver.output_topic("out", key=STRING, value=STRING).read_values()
    assert out == ["before/r", "after/r"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [((7, 16), 3)]),
        ({"retention": 100}, [((0, 16), 4)]),  # a session that the store keeps is merged, as in Kafka Streams
    ],
)
@pytest.mark.parametrize("emit", [EmitStrategy.ON_WINDOW_UPDATE, ON_CLOSE])
@pytest.mark.parametrize("cache", [0, 10_000_000])
@pytest.mark.parametrize("restart_at", [None, 15, 16, 7])
def test_a_record_between_sessions_merges_no_expired_session(
    options: dict[str, Any], expected: list[Any], emit: EmitStrategy, cache: int, restart_at: int | None
) -> None:
    """The result does not depend on whether the expired session is still in the record cache."""
    builder = StreamsBuilder(key=STRING, value=STRING)
    windows = SessionWindows.of(10, grace=5)
    count(windows, emit, materialized=Materialized("c", **options))(builder.stream("in"))
    with TopologyTestDriver(builder.build(), {"statestore.cache.max.bytes": cache}) as driver:
        source = driver.input_topic("in", key=STRING, value=STRING)
        for timestamp_ms in (0, 15, 16, 7):  # at 16, the session of the first record is expired
            if timestamp_ms == restart_at:
                restart(driver)
            source.send("k", "v", timestamp_ms=timestamp_ms)
        restart(driver)  # writes the cache to the store
        found = [((session.start, session.end), value) for session, value in driver.store("c").fetch("k")]
    assert [entry for entry in found if entry[0][1] == 16] == expected


@pytest.mark.parametrize("cache", [0, 10_000_000])
@pytest.mark.parametrize("restart_at", [None, 109, 107, 93])
def test_slow_stream_of_a_cogroup_reads_no_expired_sliding_window(cache: int, restart_at: int | None) -> None:
    """The other stream has expired the window from 90 to 95. The result does not depend on the record cache."""
    builder = StreamsBuilder(key=STRING, value=STRING)
    slow, fast = (builder.stream(topic).group_by_key() for topic in ("slow", "fast"))
    both = slow.cogroup(lambda key, value, total: total + 1).cogroup(fast, lambda key, value, total: total + 10)
    counts = both.windowed_by(SlidingWindows.of(5, grace=5)).aggregate(lambda: 0, store="c", value=INT64)
    counts.to_stream().map(lambda window, count: (str(window), count), key=STRING).to("out", value=INT64)
    records = (("slow", "k", 95), ("fast", "other", 109), ("fast", "other", 107), ("slow", "k", 93))
    with TopologyTestDriver(builder.build(), {"statestore.cache.max.bytes": cache}) as driver:
        topics = {topic: driver.input_topic(topic, key=STRING, value=STRING) for topic in ("slow", "fast")}
        for topic, key, timestamp_ms in records:
            if timestamp_ms == restart_at:
                restart(driver)
            topics[topic].send(key, "v", timestamp_ms=timestamp_ms)
        out = driver.output_topic("out", key=STRING, value=INT64).read_all()
    assert [(record.key, record.value) for record in out if "'k'" in record.key] == [(str(Windowed("k", 90, 95)), 1)]
