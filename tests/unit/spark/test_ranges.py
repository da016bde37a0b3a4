"""Which offsets are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams_protocol.types import TopicPartition
from streams_py.errors import ConfigError, StreamsError
from streams_py.spark.options import ReaderOptions, reader_options
from streams_py.spark.ranges import OffsetRange, check_still_there, limited, plan_ranges, stream_key, stream_partition


@dataclass
class FakeLog:
    """Topic ``t`` with the given spans; ``stable`` is the last stable offset where it is lower."""

    spans: list[tuple[int, int]] = field(default_factory=lambda: [(0, 10), (5, 20), (0, 0)])
    stable: dict[int, int] = field(default_factory=dict)
    committed: dict[int, int] = field(default_factory=dict)
    times: dict[int, int] = field(default_factory=dict)

    def partition_counts(self) -> Mapping[str, int]:
        return {"t": len(self.spans)}

    def log_starts(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {tp: self.spans[tp.partition][0] for tp in partitions}

    def log_ends(self, partitions: Sequence[TopicPartition], *, read_committed: bool) -> Mapping[TopicPartition, int]:
        ends = {tp: self.spans[tp.partition][1] for tp in partitions}
        return {tp: self.stable.get(tp.partition, end) if read_committed else end for tp, end in ends.items()}

    def first_at(self, partitions: Sequence[TopicPartition], timestamp_ms: int) -> Mapping[TopicPartition, int]:
        return {tp: self.times.get(tp.partition, -1) for tp in partitions}

    def committed_offsets(
        self, group: str, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, int | None]:
        assert group == "g"
        return {tp: self.committed.get(tp.partition) for tp in partitions}


def options(**changes: str) -> ReaderOptions:
    given = {"kafka.bootstrap.servers": "h:1"} | {key.replace("_", "."): value for key, value in changes.items()}
    if "assign" not in given:
        given.setdefault("topics", "t")
    return reader_options(given, streaming=False)


def spans(log: FakeLog, **changes: str) -> list[tuple[int, int, int]]:
    return [found[1:] for found in plan_ranges(options(**changes), log)]


def test_everything_is_read_by_default_and_empty_partitions_are_left_out() -> None:
    assert plan_ranges(options(), FakeLog()) == [OffsetRange("t", 0, 0, 10), OffsetRange("t", 1, 5, 20)]


def test_latest_is_the_last_stable_offset_unless_uncommitted_is_wanted() -> None:
    log = FakeLog(stable={1: 12})
    assert spans(log) == [(0, 0, 10), (1, 5, 12)]
    assert spans(log, isolation="read_uncommitted") == [(0, 0, 10), (1, 5, 20)]


def test_forms_of_positions() -> None:
    log = FakeLog(committed={0: 3}, times={0: 4})
    assert spans(log, starting="group:g") == [(0, 3, 10), (1, 5, 20)]
    assert spans(log, starting="timestamp:7") == [(0, 4, 10)]
    assert spans(log, ending="timestamp:7") == [(0, 0, 4), (1, 5, 20)]
    assert spans(log, starting='{"t":{"0":2,"1":-2,"2":-1}}', ending='{"t":{"0":8,"1":6,"2":0}}') == [
        (0, 2, 8),
        (1, 5, 6),
    ]
    assert spans(log, starting="latest") == []
    assert spans(log, starting="latest", ending="earliest") == []


def test_assign_reads_only_those() -> None:
    assert spans(FakeLog(), assign='{"t":[1]}') == [(1, 5, 20)]
    with pytest.raises(ConfigError, match="no partition 3, only 0 to 2"):
        spans(FakeLog(), assign='{"t":[3]}')


def test_topic_that_is_missing_is_named() -> None:
    with pytest.raises(ConfigError, match="topics a, b not found on h:1; create"):
        spans(FakeLog(), topics="a,b,t")


@pytest.mark.parametrize("option", ["starting", "ending"])
def test_offset_beyond_the_end_is_refused(option: str) -> None:
    with pytest.raises(ConfigError, match="offset 11 of t-0 is beyond the end of the log, 10"):
        spans(FakeLog(), **{option: '{"t":{"0":11,"1":5,"2":0}}'})


def test_offset_of_every_partition_must_be_given() -> None:
    with pytest.raises(ConfigError, match="no offset for partition t-1"):
        spans(FakeLog(), starting='{"t":{"0":1}}')


def test_range_is_cut_when_asked() -> None:
    assert spans(FakeLog(), split_records="6") == [(0, 0, 6), (0, 6, 10), (1, 5, 11), (1, 11, 17), (1, 17, 20)]


@given(st.text("a.-_/", min_size=1), st.integers(0, 10**6))
def test_stream_key_round_trips(topic: str, partition: int) -> None:
    tp = TopicPartition(topic, partition)
    assert stream_partition(stream_key(tp)) == tp


lags = st.dictionaries(st.text("abc", min_size=1, max_size=3), st.tuples(st.integers(0, 50), st.integers(0, 50)))


@given(lags, st.integers(1, 60))
def test_limit_is_kept_and_used_up(of: dict[str, tuple[int, int]], rows: int) -> None:
    start = {key: low for key, (low, _) in of.items()}
    ends = {key: low + lag for key, (low, lag) in of.items()}
    result = limited(start, ends, rows)
    read = {key: result[key] - start[key] for key in of}
    assert sum(read.values()) == min(rows, sum(lag for _, lag in of.values()))
    assert all(0 <= read[key] <= lag for key, (_, lag) in of.items())
    waiting = [key for key, (_, lag) in of.items() if lag]
    if len(waiting) <= rows:
        assert all(read[key] for key in waiting)


def test_limit_follows_the_lag() -> None:
    assert limited({"a": 0, "b": 10}, {"a": 900, "b": 110}, 100) == {"a": 90, "b": 20}
    assert limited({}, {"a": 5}, None) == {"a": 5}


def test_partition_that_vanished_or_shrank_stops_the_query() -> None:
    check_still_there({"t/0": 5}, {"t/0": 5, "t/1": 0})
    with pytest.raises(StreamsError, match="t/1 that this query has read is gone"):
        check_still_there({"t/0": 5, "t/1": 0}, {"t/0": 5})
    with pytest.raises(StreamsError, match=r"t/0 ends at 4, but this query has read it up to 5.*created again"):
        check_still_there({"t/0": 5}, {"t/0": 4})
