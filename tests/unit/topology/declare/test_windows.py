"""Windowed operations: what is refused, null keys, late records, final results.

Results are compared with recorded runs elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from streams_py.errors import StateError, TopologyError
from streams_py.runtime.tasks.record.offset_metadata import decode_offset_metadata
from streams_py.serdes import INT64, STRING, Windowed, session_windowed, time_windowed
from streams_py.testing.driver import TopologyTestDriver
from streams_py.topology.declare.windows import (
    EmitStrategy,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    UnlimitedWindows,
)
from streams_py.topology.dsl.builder import StreamsBuilder
from streams_py.topology.dsl.grouped_stream import KGroupedStream
from streams_py.topology.dsl.options import Materialized
from streams_py.topology.dsl.suppressed import Suppressed
from streams_py.topology.partitioning import partition_for
from tests.support.topology.driver_parts import tasks_of, written_by
from tests.support.topology.restarts import restart

ON_CLOSE = EmitStrategy.ON_WINDOW_CLOSE


def grouped(builder: StreamsBuilder[Any, Any]) -> KGroupedStream[str, str]:
    return builder.stream("in", key=STRING, value=STRING).group_by_key()


def run(
    describe: Callable[[KGroupedStream[str, str]], Any], records: list[tuple[str | None, str | None, int]], key: Any
) -> list[tuple[Any, Any, int]]:
    builder = StreamsBuilder(key=STRING, value=STRING)
    describe(grouped(builder)).to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        source = driver.input_topic("in", key=STRING, value=STRING)
        for record_key, value, timestamp_ms in records:
            source.send(record_key, value, timestamp_ms=timestamp_ms)
        out = driver.output_topic("out", key=key, value=INT64).read_all()
    return [(record.key, record.value, record.timestamp) for record in out]


# -- what is refused -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TimeWindows.of(10, advance=20), "advance .* 20 ms, more than the size of 10 ms"),
        (lambda: TimeWindows.of(0), "size of TimeWindows is 0 ms"),
        (lambda: TimeWindows.of(10, advance=0), "advance of TimeWindows is 0 ms"),
        (lambda: TimeWindows.of(10, grace=-1), "grace of TimeWindows is -1 ms"),
        (lambda: TimeWindows.of(timedelta(seconds=-1)), "size of TimeWindows is -1000 ms"),
        (lambda: TimeWindows.of(1.5), "must be milliseconds"),
        (lambda: TimeWindows.of(True), "must be milliseconds"),
        (lambda: SlidingWindows.of(-1), "difference of SlidingWindows is -1 ms"),
        (lambda: SlidingWindows.of(1, grace=-1), "grace of SlidingWindows is -1 ms"),
        (lambda: SessionWindows.of(-1), "gap of SessionWindows is -1 ms"),
        (lambda: SessionWindows.of(1, grace=timedelta(microseconds=-1)), "grace of SessionWindows"),
        (lambda: Suppressed.until_time_limit(-1), "time limit of suppress is -1 ms"),
        (lambda: Suppressed.until_window_closes(max_records=-1), "max_records of suppress is -1"),
    ],
)
def test_bad_durations_are_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        make()


def test_durations_are_milliseconds_or_timedeltas() -> None:
    by_delta = TimeWindows.of(timedelta(minutes=1), grace=timedelta(seconds=5), advance=timedelta(seconds=10))
    assert by_delta == TimeWindows.of(60_000, grace=5000, advance=10_000)


@pytest.mark.parametrize(
    ("windows", "least_ms"),
    [(TimeWindows.of(10, grace=5), 15), (SlidingWindows.of(10, grace=5), 25), (SessionWindows.of(10, grace=5), 15)],
)
def test_retention_shorter_than_windows_take_records_is_refused_with_the_operators_name(
    windows: Any, least_ms: int
) -> None:
    windowed = grouped(StreamsBuilder()).windowed_by(windows)
    with pytest.raises(TopologyError, match=rf"'short' of 'mine' keeps windows for only 14 ms.*{least_ms} ms"):
        windowed.count(name="mine", materialized=Materialized("short", retention=14))


def test_store_without_windows_has_no_retention() -> None:
    with pytest.raises(TopologyError, match="no windows"):
        grouped(StreamsBuilder()).count(materialized=Materialized("s", retention=5))


def test_waiting_for_windows_that_there_are_not_is_refused() -> None:
    with pytest.raises(TopologyError, match="'final' waits until windows close"):
        grouped(StreamsBuilder()).count().suppress(Suppressed.until_window_closes(), name="final")


def test_streams_of_two_builders_are_not_cogrouped() -> None:
    one = grouped(StreamsBuilder()).cogroup(lambda key, value, total: total)
    with pytest.raises(TopologyError, match="one builder"):
        one.cogroup(grouped(StreamsBuilder()), lambda key, value, total: total)


# -- what happens to records ---------------------------------------------------------------------------------


def test_late_record_is_dropped_only_by_the_windows_that_are_closed() -> None:
    out = run(
        lambda s: s.windowed_by(TimeWindows.of(20, advance=10)).count(),
        [("k", "v", 25), ("k", "v", 15), (None, "v", 26)],
        time_windowed(STRING, 20),
    )
    assert out == [(Windowed("k", 10, 30), 1, 25), (Windowed("k", 20, 40), 1, 25), (Windowed("k", 10, 30), 2, 25)]


def test_null_values_reach_time_windows_and_sessions_and_not_sliding_windows() -> None:
    records: list[tuple[str | None, str | None, int]] = [("k", None, 5)]
    assert len(run(lambda s: s.windowed_by(TimeWindows.of(10)).count(), records, time_windowed(STRING, 10))) == 1
    assert len(run(lambda s: s.windowed_by(SessionWindows.of(10)).count(), records, session_windowed(STRING))) == 1
    assert run(lambda s: s.windowed_by(SlidingWindows.of(10)).count(), records, time_windowed(STRING, 10)) == []


@pytest.mark.parametrize("windows", [TimeWindows.of(10), SlidingWindows.of(10), SessionWindows.of(5)], ids=repr)
def test_final_results_come_once_whatever_stream_time_jumps(windows: Any) -> None:
    """With the default retention of windows: nothing expires before it was sent."""
    serde: Any = session_windowed(STRING) if isinstance(windows, SessionWindows) else time_windowed(STRING, 10)
    out = run(
        lambda s: s.windowed_by(windows, emit=ON_CLOSE).count(),
        [("k", "v", 31), ("l", "v", 32), ("k", "v", 33), ("k", "v", 10_000_000), ("k", "v", 20_000_000)],
        serde,
    )
    keys = [key for key, _, _ in out]
    assert len(keys) == len(set(keys))
    assert {key.key for key in keys} == {"k", "l"}
    assert max(key.start for key in keys) <= 10_000_000
    assert [value for key, value, _ in out if key.key == "l"] == [1]
    assert 2 in [value for key, value, _ in out if key.key == "k"]


def test_last_emission_travels_with_the_committed_offsets() -> None:
    builder = StreamsBuilder(key=STRING, value=STRING)
    grouped(builder).windowed_by(TimeWindows.of(10), emit=ON_CLOSE).count(store="counts").to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        source = driver.input_topic("in", key=STRING, value=STRING)
        source.send("k", "v", timestamp_ms=5)
        source.send("k", "v", timestamp_ms=37)
        (task,) = tasks_of(driver)
        (offset,) = task.committable_offsets().values()
        committed = decode_offset_metadata(offset.metadata).processors
        assert committed["counts"] == 37
        assert len(committed) == 2  # and the stream time of the operator


def test_final_results_go_on_after_a_restart_where_they_were() -> None:
    builder = StreamsBuilder(key=STRING, value=STRING)
    windowed = grouped(builder).windowed_by(TimeWindows.of(10), emit=ON_CLOSE)
    windowed.count(materialized=Materialized("counts", retention=1000)).to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        source = driver.input_topic("in", key=STRING, value=STRING)
        source.send("k", "v", timestamp_ms=5)
        source.send("k", "v", timestamp_ms=37)
        restart(driver)
        source.send("k", "v", timestamp_ms=50)
        out = driver.output_topic("out", key=time_windowed(STRING, 10), value=INT64).read_pairs()
    assert out == [(Windowed("k", 0, 10), 1), (Windowed("k", 30, 40), 1)]


def test_error_of_an_aggregator_leaves_the_record_out() -> None:
    def fail_for_bad(key: str, value: str, count: int) -> int:
        if value == "bad":
            raise ValueError(value)
        return count + 1

    builder = StreamsBuilder(key=STRING, value=STRING)
    windowed = grouped(builder).windowed_by(SessionWindows.of(10))
    table = windowed.aggregate(lambda: 0, fail_for_bad, lambda key, one, other: one + other, value=INT64)
    table.to_stream().to("out")
    config = {"processing.exception.handler": "log_and_continue"}
    with TopologyTestDriver(builder.build(), config) as driver:
        source = driver.input_topic("in", key=STRING, value=STRING)
        for value in ("good", "bad", "good"):
            source.send("k", value, timestamp_ms=5)
        out = driver.output_topic("out", key=session_windowed(STRING), value=INT64).read_pairs()
    assert out[-1] == (Windowed("k", 5, 5), 2)


# -- suppress ------------------------------------------------------------------------------------------------


def test_final_results_over_the_limit_stop_the_task() -> None:
    with pytest.raises(StateError, match=r"'sup' is full: 2 records of at most 1\. Increase its limits"):
        run(
            lambda s: (
                s.windowed_by(TimeWindows.of(10))
                .count()
                .suppress(Suppressed.until_window_closes(max_records=1), name="sup")
            ),
            [("a", "v", 5), ("b", "v", 5)],
            time_windowed(STRING, 10),
        )


def test_full_buffer_is_reported_with_the_limits_that_are_set() -> None:
    suppressed = Suppressed.until_window_closes(max_bytes=1)
    with pytest.raises(StateError, match=r"'sup' is full: \d+ bytes of at most 1\. Increase its limits"):
        run(
            lambda s: s.windowed_by(TimeWindows.of(10)).count().suppress(suppressed, name="sup"),
            [("a", "v", 5), ("b", "v", 5)],
            time_windowed(STRING, 10),
        )


def test_limit_in_bytes_sends_the_first_ones_early() -> None:
    out = run(
        lambda s: s.count().suppress(Suppressed.until_time_limit(1000, max_bytes=120)),
        [("a", "v", 5), ("b", "v", 6), ("c", "v", 7), ("d", "v", 8)],
        STRING,
    )
    assert out[0] == ("a", 1, 5)
    assert 1 <= len(out) < 4


def test_suppressed_table_is_read_as_it_was_last_sent() -> None:
    builder = StreamsBuilder(key=STRING, value=STRING)
    table = builder.table("t", key=STRING, value=STRING).suppress(Suppressed.until_time_limit(10))
    builder.stream("s", key=STRING, value=STRING).left_join(table, lambda v, w: f"{v}{w}").to("out")
    with TopologyTestDriver(builder.build()) as driver:
        rows = driver.input_topic("t", key=STRING, value=STRING)
        records = driver.input_topic("s", key=STRING, value=STRING)
        rows.send("k", "1", timestamp_ms=0)
        records.send("k", "a", timestamp_ms=1)
        rows.send("other", "x", timestamp_ms=20)  # releases k
        records.send("k", "b", timestamp_ms=21)
        rows.send("k", "2", timestamp_ms=22)
        records.send("k", "c", timestamp_ms=23)
        out = driver.output_topic("out", key=STRING, value=STRING).read_pairs()
    assert [value for _, value in out] == ["aNone", "b1", "c1"]


# -- windowed keys -------------------------------------------------------------------------------------------


def test_all_windows_of_a_key_go_to_one_partition() -> None:
    builder = StreamsBuilder(key=STRING, value=STRING)
    grouped(builder).windowed_by(TimeWindows.of(10)).count().to_stream().to("out")
    with TopologyTestDriver(builder.build(), partitions=5) as driver:
        source = driver.input_topic("in", key=STRING, value=STRING)
        for time in range(0, 200, 10):
            source.send("k", "v", timestamp_ms=time)
        written = written_by(driver)
    assert len({partition for partition in written if partition.topic == "out"}) == 1


def test_windowed_keys_go_by_all_of_their_bytes_through_repartitions_and_plain_sinks() -> None:
    """As in Kafka Streams: members in both languages must send equal keys to the same task."""
    keys, builder = time_windowed(STRING, 10), StreamsBuilder(key=STRING, value=STRING)
    counts = grouped(builder).windowed_by(TimeWindows.of(10)).count()
    counts.group_by(lambda key, count: (key, count), key=keys, value=INT64, name="table").count()
    counts.to_stream().repartition(key=keys, name="stream")
    topology = builder.build()
    above = next(node.name for node in topology.nodes if node.name.startswith("KTABLE-TOSTREAM"))
    topology.add_sink("plain", "out", above, key=keys, value=INT64)
    with TopologyTestDriver(topology, partitions=5) as driver:
        source = driver.input_topic("in", key=STRING, value=STRING)
        for time in range(0, 200, 10):
            source.send("k", "v", timestamp_ms=time)
        written = written_by(driver)
    for topic in ("table-repartition", "stream-repartition", "out"):
        found = {at.partition: records for at, records in written.items() if at.topic.endswith(topic)}
        assert len(found) > 1, topic
        assert all(partition_for(r.key() or b"", 5) == number for number, rs in found.items() for r in rs), topic


def test_unlimited_window_takes_everything_from_its_start_on_and_is_never_closed() -> None:
    records = [("a", "x", 19), ("a", "x", 10**15), ("a", "x", 20), (None, "x", 30)]
    out = run(lambda g: g.windowed_by(UnlimitedWindows.of(start=20)).count(), records, time_windowed(STRING, 2**63 - 1))
    window = Windowed("a", 20, 2**63 - 1)
    assert out == [(window, 1, 10**15), (window, 2, 10**15)]


def test_unlimited_window_has_no_final_result() -> None:
    with pytest.raises(TopologyError, match="never closed"):
        grouped(StreamsBuilder()).windowed_by(UnlimitedWindows.of(), emit=ON_CLOSE)


def test_suppress_with_a_time_limit_stops_when_its_buffer_is_full_and_it_must_not_emit_early() -> None:
    builder = StreamsBuilder(key=STRING, value=STRING)
    limit = Suppressed.until_time_limit(1000, max_records=2, emit_early_when_full=False)
    builder.table("in").suppress(limit, name="hold").to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        source = driver.input_topic("in", key=STRING, value=STRING)
        for key, value in (("a", "1"), ("b", "1"), ("a", "2")):
            source.send(key, value, timestamp_ms=1)
        with pytest.raises(StateError, match="the buffer of 'hold' is full: 3 records of at most 2"):
            source.send("c", "1", timestamp_ms=2)
        assert driver.output_topic("out", key=STRING, value=STRING).is_empty


# -- metrics -------------------------------------------------------------------------------------------------


def emits(describe: Callable[[KGroupedStream[str, str]], Any], name: str, level: str) -> dict[str, float | str]:
    """Return how many delayed results the nodes of a name have forwarded, by their metric."""
    builder = StreamsBuilder(key=STRING, value=STRING)
    describe(grouped(builder)).to_stream().to("out")
    with TopologyTestDriver(builder.build(), {"metrics.recording.level": level}) as driver:
        source = driver.input_topic("in", key=STRING, value=STRING)
        for timestamp_ms in (1, 2, 12, 60):
            source.send("k", "v", timestamp_ms=timestamp_ms)
            driver.advance_wall_clock(500)
        found = driver.metrics()
    [metrics] = [of for group, of in found.items() if f"processor-node-id={name}}}" in group] or [{}]
    return {what: of for what, of in metrics.items() if "emit" in what}


def test_results_that_suppress_sends_on_are_counted_with_debug_only() -> None:
    def final(stream: KGroupedStream[str, str]) -> Any:
        counts = stream.windowed_by(TimeWindows.of(10)).count()
        return counts.suppress(Suppressed.until_window_closes(), name="final")

    assert emits(final, "final", "DEBUG") == {"suppression-emit-total": 2, "suppression-emit-rate": 1}
    assert emits(final, "final", "INFO") == {}


@pytest.mark.parametrize("windows", [TimeWindows.of(10), SlidingWindows.of(10), SessionWindows.of(5)])
def test_final_results_that_are_sent_on_are_counted_with_debug_only(windows: Any) -> None:
    def final(stream: KGroupedStream[str, str]) -> Any:
        return stream.windowed_by(windows, emit=ON_CLOSE).count(name="counts")

    found = emits(final, "counts", "DEBUG")
    sent = len(run(final, [("k", "v", at) for at in (1, 2, 12, 60)], time_windowed(STRING, 10)))
    assert sent > 1
    assert found == {
        "window-aggregate-final-emit-total": sent,
        "window-aggregate-final-emit-rate": sent / 2,
        "window-aggregate-final-emit-latency-avg": 0,
        "window-aggregate-final-emit-latency-max": 0,
    }
    assert emits(final, "counts", "INFO") == {}


def test_sessions_without_a_gap_are_of_records_of_one_time() -> None:
    builder = StreamsBuilder(key=STRING, value=STRING)
    counts = builder.stream("in").group_by_key().windowed_by(SessionWindows.of(0, grace=10)).count()
    counts.to_stream(lambda session, _: f"{session.start}-{session.end}").to("out", value=INT64)
    with TopologyTestDriver(builder.build()) as driver:
        given = driver.input_topic("in", key=STRING, value=STRING)
        for timestamp_ms in (5, 6, 5, 7):
            given.send("k", "v", timestamp_ms=timestamp_ms)
        pairs = driver.output_topic("out", key=STRING, value=INT64).read_pairs()
    assert pairs == [("5-5", 1), ("6-6", 1), ("5-5", 2), ("7-7", 1)]
