"""The ranges of offsets that are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams_protocol.types import TopicPartition
from streams_py.errors import ConfigError
from streams_py.spark.kafka.options import ReaderOptions, reader_options
from streams_py.spark.kafka.pushdown import EVERYTHING, Bounds, Span
from streams_py.spark.kafka.ranges import OffsetRange, clipped, partitions_of, split, whole_ranges


@dataclass
class FakeLog:
    """Topic ``t`` with the given spans; ``stable`` is the last stable offset where it is lower."""

    spans: list[tuple[int, int]] = field(default_factory=lambda: [(0, 10), (5, 20), (0, 0)])
    stable: dict[int, int] = field(default_factory=dict)
    committed: dict[int, int] = field(default_factory=dict)
    times: dict[int, int] = field(default_factory=dict)
    at: dict[tuple[int, int], int] = field(default_factory=dict)
    others: dict[str, int] = field(default_factory=dict)

    def partition_counts(self) -> Mapping[str, int]:
        return {"t": len(self.spans)} | self.others

    def log_starts(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {tp: self.spans[tp.partition][0] for tp in partitions}

    def log_ends(self, partitions: Sequence[TopicPartition], *, read_committed: bool) -> Mapping[TopicPartition, int]:
        ends = {tp: self.spans[tp.partition][1] for tp in partitions}
        return {tp: self.stable.get(tp.partition, end) if read_committed else end for tp, end in ends.items()}

    def first_at(self, partitions: Sequence[TopicPartition], timestamp_ms: int) -> Mapping[TopicPartition, int]:
        assert 0 <= timestamp_ms < 2**63
        found = self.times | {number: offset for (number, ms), offset in self.at.items() if ms == timestamp_ms}
        return {tp: found.get(tp.partition, -1) for tp in partitions}

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


def plan_ranges(given: ReaderOptions, log: FakeLog, bounds: Bounds = EVERYTHING) -> list[OffsetRange]:
    return split(clipped(whole_ranges(given, log), bounds, log), given)


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


def test_timestamps_by_partition() -> None:
    log = FakeLog(at={(0, 7): 4, (1, 9): 6})
    assert spans(log, starting='timestamp:{"t":{"0":7,"1":9,"2":1}}') == [(0, 4, 10), (1, 6, 20)]
    with pytest.raises(ConfigError, match="starting has no timestamp for partition t-2; name every partition"):
        spans(log, starting='timestamp:{"t":{"0":7,"1":9}}')


def test_range_that_begins_after_its_end_is_refused_unless_retention_took_it() -> None:
    crossed = {"starting": '{"t":{"0":8,"1":9,"2":0}}', "ending": '{"t":{"0":7,"1":9,"2":0}}'}
    for changes in ({"starting": "latest", "ending": "earliest"}, crossed):
        with pytest.raises(ConfigError, match=r"offset \d+ of t-0, which is after ending, offset \d.*swap them"):
            spans(FakeLog(), **changes)
    assert spans(FakeLog(committed={0: 10, 1: 3}), ending="group:g") == [(0, 0, 10)]  # the log begins at 5


def test_assign_reads_only_those() -> None:
    assert spans(FakeLog(), assign='{"t":[1]}') == [(1, 5, 20)]
    with pytest.raises(ConfigError, match="no partition 3, only 0 to 2"):
        spans(FakeLog(), assign='{"t":[3]}')


def test_topic_that_is_missing_is_named() -> None:
    with pytest.raises(ConfigError, match="topics a, b not found on h:1; create"):
        spans(FakeLog(), topics="a,b,t")


@pytest.mark.parametrize("option", ["starting", "ending"])
def test_offset_beyond_the_end_is_refused(option: str) -> None:
    with pytest.raises(ConfigError, match="offset 11 of t-0 is after the end of the log, 10"):
        spans(FakeLog(), **{option: '{"t":{"0":11,"1":5,"2":0}}'})


def test_offset_of_every_partition_must_be_given() -> None:
    with pytest.raises(ConfigError, match="no offset for partition t-1"):
        spans(FakeLog(), starting='{"t":{"0":1}}')


@pytest.mark.parametrize("unread", ['"t":{"0":1,"1":5,"2":0,"7":3}', '"t":{"0":1,"1":5,"2":0},"u":{"0":3}'])
def test_partition_that_is_named_and_not_read_is_a_mistake(unread: str) -> None:
    with pytest.raises(ConfigError, match=r"starting names partition (t-7|u-0), which is not read"):
        spans(FakeLog(), starting=f"{{{unread}}}")
    with pytest.raises(ConfigError, match="ending names partition"):
        spans(FakeLog(), ending=f"timestamp:{{{unread}}}")


def test_range_is_cut_when_asked() -> None:
    assert spans(FakeLog(), split_records="6") == [(0, 0, 6), (0, 6, 10), (1, 5, 11), (1, 11, 17), (1, 17, 20)]


def test_ranges_are_cut_into_at_least_so_many_of_about_the_same_size() -> None:
    assert spans(FakeLog(), min_partitions="2") == [(0, 0, 10), (1, 5, 20)]
    assert spans(FakeLog(), min_partitions="5") == [(0, 0, 5), (0, 5, 10), (1, 5, 10), (1, 10, 15), (1, 15, 20)]
    assert len(spans(FakeLog(), min_partitions="99")) == 25  # all offsets
    assert spans(FakeLog(), min_partitions="3", split_records="6") == spans(FakeLog(), split_records="6")


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 60)), min_size=1, max_size=5),
    st.integers(1, 70),
    st.none() | st.integers(1, 20),
)
def test_cut_ranges_have_every_offset_once_and_in_order(
    of: list[tuple[int, int]], least: int, records: int | None
) -> None:
    log = FakeLog([(low, low + size) for low, size in of])
    more = {} if records is None else {"split_records": str(records)}
    found = spans(log, min_partitions=str(least), **more)
    assert [(n, o) for n, low, high in found for o in range(low, high)] == [
        (n, o) for n, low, high in spans(log) for o in range(low, high)
    ]
    assert len(found) >= min(least, sum(size for _, size in of))
    assert records is None or all(high - low <= records for _, low, high in found)


def test_pattern_takes_whole_names_and_none_of_the_clusters_own() -> None:
    log = FakeLog(others={"t-2": 1, "at": 1, "__t": 2})
    given = {"kafka.bootstrap.servers": "h:1", "topics.pattern": ".*t(-[0-9])?"}
    found = partitions_of(reader_options(given, streaming=True), log)
    assert [f"{tp}" for tp in found] == ["at-0", "t-0", "t-1", "t-2", "t-2-0"]
    with pytest.raises(ConfigError, match=r"no topic on h:1 matches topics.pattern = 'x.*'; the whole name") as refused:
        partitions_of(reader_options(given | {"topics.pattern": "x.*"}, streaming=True), log)
    assert refused.value.key == "topics.pattern"


# -- what a filter leaves ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        (Bounds(offsets=Span(7, 8)), [(0, 7, 9), (1, 7, 9)]),
        (Bounds(offsets=Span(low=12)), [(1, 12, 20)]),
        (Bounds(numbers=frozenset({1, 2})), [(1, 5, 20)]),
        (Bounds(partitions=Span(high=0)), [(0, 0, 10)]),
        (Bounds(topics=frozenset({"other"})), []),
        (Bounds(timestamp_ms=7), [(0, 4, 10)]),  # nothing in the other partition is as new
        (Bounds(timestamp_ms=-1), [(0, 0, 10), (1, 5, 20)]),  # to the cluster that would mean the end
        (Bounds(timestamp_ms=2**63), []),  # which no request can carry
    ],
)
def test_ranges_are_narrowed_by_what_a_filter_lets_pass(bounds: Bounds, expected: list[tuple[int, int, int]]) -> None:
    log = FakeLog(times={0: 4})
    assert [of[1:] for of in plan_ranges(options(), log, bounds)] == expected


def test_what_is_left_is_cut_when_asked() -> None:
    found = plan_ranges(options(min_partitions="2"), FakeLog(), Bounds(offsets=Span(5, 8), numbers=frozenset({0})))
    assert [of[1:] for of in found] == [(0, 5, 7), (0, 7, 9)]
