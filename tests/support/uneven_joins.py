"""Joins of topics with different numbers of partitions, and the error that every cluster must raise.

In each function the join is in the first line after the docstring.

"""

from __future__ import annotations

from collections.abc import Mapping
from types import FunctionType
from typing import Any

from streams_py import JoinWindows, KStream, StreamsBuilder, StreamsError, Topology, TopologyError, serdes


def _both(value: Any, other: Any) -> Any:
    return value, other


def _windowed(builder: StreamsBuilder, stream: KStream[Any, Any], other: str) -> object:
    """Two streams."""
    return stream.join(builder.stream(other), _both, JoinWindows.of(5), name="uneven")


def _outer(builder: StreamsBuilder, stream: KStream[Any, Any], other: str) -> object:
    """Two streams, one of which has changed values."""
    return stream.map_values(str).outer_join(builder.stream(other), _both, JoinWindows.of(5), name="uneven")


def _with_table(builder: StreamsBuilder, stream: KStream[Any, Any], other: str) -> object:
    """A stream and a table."""
    return stream.left_join(builder.table(other), _both, name="uneven")


def _tables(builder: StreamsBuilder, stream: KStream[Any, Any], other: str) -> object:
    """Two tables."""
    return stream.to_table().join(builder.table(other), _both, name="uneven")


def _cogrouped(builder: StreamsBuilder, stream: KStream[Any, Any], other: str) -> object:
    """Two grouped streams."""
    return stream.group_by_key().cogroup(_last).cogroup(builder.stream(other).group_by_key(), _last).aggregate(str)


def _repartitioned(builder: StreamsBuilder, stream: KStream[Any, Any], other: str) -> object:
    """Two streams, one of which was repartitioned to another number of partitions."""
    return stream.repartition(partitions=5).join(builder.stream(other), _both, JoinWindows.of(5), name="uneven")


def _last(key: Any, value: Any, result: Any) -> Any:
    return value


UNEVEN: Mapping[str, FunctionType] = {
    "uneven-merge": _windowed,
    "uneven-merge (outer)": _outer,
    "uneven": _with_table,
    "uneven (tables)": _tables,
    "COGROUPKSTREAM-MERGE-": _cogrouped,
    "uneven-merge (repartitioned)": _repartitioned,
}
"""Join by the prefix of the node's name."""


def uneven(case: str, first: str, second: str, seen: list[Any]) -> Topology:
    """Build the case as a program that records in ``seen`` the records that it reads from the first topic."""
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    UNEVEN[case](builder, builder.stream(first).peek(lambda key, value: seen.append(value)), second)
    return builder.build()


def check_error(case: str, error: StreamsError, *topics: str) -> None:
    """Check that it is an error of the topology that names the join, its line, and the topics."""
    line = UNEVEN[case].__code__.co_firstlineno + 2
    assert isinstance(error, TopologyError), error
    for wanted in (case.partition(" ")[0], f"({__file__}:{line})", "partitions", *topics):
        assert wanted in str(error), error
