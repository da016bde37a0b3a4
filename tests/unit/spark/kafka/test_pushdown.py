"""Bounds from filters are never narrower than the filters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from streams_py.spark.kafka.pushdown import EVERYTHING, Bounds, Span, bounds_of

OFFSET, PARTITION, TOPIC, TIME = ("offset",), ("partition",), ("topic",), ("timestamp_ms",)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([GreaterThan(OFFSET, 4), LessThanOrEqual(OFFSET, 9)], Bounds(offsets=Span(5, 9))),
        ([GreaterThanOrEqual(OFFSET, 4), LessThan(OFFSET, 9)], Bounds(offsets=Span(4, 8))),
        ([EqualTo(OFFSET, 7), In(OFFSET, (7, 9))], Bounds(offsets=Span(7, 7))),
        ([In(PARTITION, (2, 0)), EqualNullSafe(PARTITION, 2)], Bounds(numbers=frozenset({2}))),
        ([GreaterThan(PARTITION, 2)], Bounds(partitions=Span(low=3))),
        ([In(TOPIC, ("a", "b")), EqualTo(TOPIC, "b")], Bounds(topics=frozenset({"b"}))),
        ([GreaterThan(TIME, 4), EqualTo(TIME, 3)], Bounds(timestamp_ms=5)),
        ([In(TIME, (9, 5))], Bounds(timestamp_ms=5)),
        ([LessThan(TIME, 4)], EVERYTHING),  # older records may come after newer ones
        ([Not(EqualTo(OFFSET, 7)), IsNotNull(OFFSET), StringStartsWith(TOPIC, "a")], EVERYTHING),
        ([EqualTo(("key",), b"k"), EqualTo(("headers", "offset"), 7), EqualTo(OFFSET, None)], EVERYTHING),
    ],
)
def test_bounds_of_filters(filters: list[Filter], expected: Bounds) -> None:
    assert bounds_of(filters) == expected


numbers = st.integers(-3, 12)
comparisons = st.sampled_from([EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual])
filters = st.lists(st.tuples(comparisons, st.sampled_from(["offset", "partition", "timestamp_ms"]), numbers))
HOLDS = {
    EqualTo: int.__eq__, GreaterThan: int.__gt__, GreaterThanOrEqual: int.__ge__, LessThan: int.__lt__,
    LessThanOrEqual: int.__le__,
}  # fmt: skip


@given(filters, numbers, numbers, numbers)
def test_record_that_passes_the_filters_is_within_their_bounds(
    of: list[tuple[type, str, int]], offset: int, partition: int, timestamp_ms: int
) -> None:
    row = {"offset": offset, "partition": partition, "timestamp_ms": timestamp_ms}
    if all(HOLDS[kind](row[column], value) for kind, column, value in of):
        bounds = bounds_of([kind((column,), value) for kind, column, value in of])
        assert bounds.takes("t", partition)
        assert bounds.offsets.low <= offset <= bounds.offsets.high
        assert timestamp_ms >= bounds.timestamp_ms
