"""Derives bounds for the ranges to read from filters on topic, partition, offset and timestamp.

Spark still applies the whole filter to the rows. So bounds may be wider than the filter, but never narrower, and
filters that are not supported here are ignored. Only a *lower* bound of the timestamp shortens a range. An upper bound
does not, because older records may follow the first record that is too new (``ending=timestamp:...`` ends a range at
that record).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from streams_py.spark.kafka.options import INT64_MAX

_LOWEST: Final = -(2**63)
_HIGHEST: Final = INT64_MAX


@dataclass(frozen=True, slots=True)
class Span:
    """A range of whole numbers from ``low`` to ``high``, inclusive."""

    low: int = _LOWEST
    high: int = _HIGHEST

    def within(self, low: int, high: int) -> Span:
        """Return the intersection with ``low`` to ``high``."""
        return Span(max(self.low, low), min(self.high, high))


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of the records that may match.

    Attributes:
        topics: topics; None for all.
        numbers: partition numbers; None for all.
        partitions: span of partition numbers.
        offsets: span of offsets.
        timestamp_ms: the oldest timestamp.
    """

    topics: frozenset[str] | None = None
    numbers: frozenset[int] | None = None
    partitions: Span = field(default_factory=Span)
    offsets: Span = field(default_factory=Span)
    timestamp_ms: int = _LOWEST

    def takes(self, topic: str, partition: int) -> bool:
        """Whether records of a partition may match."""
        return (
            (self.topics is None or topic in self.topics)
            and (self.numbers is None or partition in self.numbers)
            and self.partitions.low <= partition <= self.partitions.high
        )


EVERYTHING: Final = Bounds()


def bounds_of(filters: Iterable[Filter]) -> Bounds:
    """Return bounds of the records that match all filters."""
    bounds = EVERYTHING
    for found in filters:
        match found:
            case EqualTo((column,), value) | EqualNullSafe((column,), value):
                bounds = _among(bounds, column, [value])
            case In((column,), values):
                bounds = _among(bounds, column, list(values))
            case GreaterThan((column,), int(value)):
                bounds = _between(bounds, column, value + 1, _HIGHEST)
            case GreaterThanOrEqual((column,), int(value)):
                bounds = _between(bounds, column, value, _HIGHEST)
            case LessThan((column,), int(value)):
                bounds = _between(bounds, column, _LOWEST, value - 1)
            case LessThanOrEqual((column,), int(value)):
                bounds = _between(bounds, column, _LOWEST, value)
    return bounds


def _among(bounds: Bounds, column: str, values: list[Any]) -> Bounds:
    if column == "topic" and all(isinstance(value, str) for value in values):
        names = frozenset(values)
        return replace(bounds, topics=names if bounds.topics is None else bounds.topics & names)
    if not values or not all(type(value) is int for value in values):
        return bounds
    if column == "partition":
        numbers = frozenset(values)
        return replace(bounds, numbers=numbers if bounds.numbers is None else bounds.numbers & numbers)
    return _between(bounds, column, min(values), max(values))


def _between(bounds: Bounds, column: str, low: int, high: int) -> Bounds:
    match column:
        case "partition":
            return replace(bounds, partitions=bounds.partitions.within(low, high))
        case "offset":
            return replace(bounds, offsets=bounds.offsets.within(low, high))
        case "timestamp_ms":
            return replace(bounds, timestamp_ms=max(bounds.timestamp_ms, low))
        case _:
            return bounds
