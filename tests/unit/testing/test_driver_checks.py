"""The test driver reports values that are changed in place if another operator could see the change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streams_py import serdes
from streams_py.errors import ChangedInPlaceError
from streams_py.testing.driver import TopologyTestDriver
from streams_py.topology.declare.nodes import RecordContext
from streams_py.topology.declare.windows import SessionWindows, SlidingWindows, TimeWindows
from streams_py.topology.dsl.builder import StreamsBuilder
from streams_py.topology.dsl.kstream import KStream

S, J = serdes.STRING, serdes.JSON


def forget_to_return(key: str, value: Any, total: list[Any]) -> Any:
    return total.append(value)  # type: ignore[func-returns-value]  # the mistake that is looked for


def forget_in_context(key: str, value: Any, total: list[Any], record: RecordContext) -> Any:
    return forget_to_return(key, value, total)


def forget_to_return_reduced(total: dict[str, Any], value: dict[str, Any]) -> Any:
    total.update(value)


def add(key: str, value: Any, total: list[Any]) -> list[Any]:
    total.append(value)
    return total


def _merge(key: str, one: list[Any], other: list[Any]) -> list[Any]:
    return [*one, *other]


AGGREGATIONS: dict[str, Callable[[KStream[str, Any]], object]] = {
    "aggregate": lambda s: s.group_by_key().aggregate(list, forget_to_return, value=J),
    "with_context": lambda s: s.group_by_key().aggregate(list, with_context=forget_in_context, value=J),
    "reduce": lambda s: s.group_by_key().reduce(forget_to_return_reduced),
    "windows": lambda s: s.group_by_key().windowed_by(TimeWindows.of(10)).aggregate(list, forget_to_return, value=J),
    "sliding": lambda s: s.group_by_key().windowed_by(SlidingWindows.of(10)).aggregate(list, forget_to_return, value=J),
    "sessions": lambda s: (
        s.group_by_key().windowed_by(SessionWindows.of(10)).aggregate(list, forget_to_return, _merge, value=J)
    ),
    "cogroup": lambda s: s.group_by_key().cogroup(forget_to_return).aggregate(list),
    "adder": lambda s: (
        s.to_table().group_by(lambda k, v: (k, v), key=S, value=J).aggregate(list, forget_to_return, add, value=J)
    ),
    "subtractor": lambda s: (
        s.to_table().group_by(lambda k, v: (k, v), key=S, value=J).aggregate(list, add, forget_to_return, value=J)
    ),
}


def run(describe: Callable[[KStream[str, Any]], object], *, checks: bool = True) -> None:
    builder = StreamsBuilder(key=S, value=J)
    describe(builder.stream("in", key=S, value=J))
    with TopologyTestDriver(builder.build(), in_place_checks=checks) as driver:
        topic = driver.input_topic("in", key=S, value=J)
        topic.send_all([("k", {"n": 1}), ("k", {"n": 2})], timestamp_ms=5)


@pytest.mark.parametrize("describe", AGGREGATIONS.values(), ids=AGGREGATIONS)
def test_aggregator_that_changes_and_returns_none_is_told_of(describe: Callable[[KStream[str, Any]], object]) -> None:
    with pytest.raises(ChangedInPlaceError, match=r"operator \S+ \(.*test_driver_checks.py:\d+\) changed .* key 'k' "):
        run(describe)
    run(describe, checks=False)


def test_aggregator_may_change_what_it_returns() -> None:
    run(lambda s: s.group_by_key().aggregate(list, add, value=J))
    run(lambda s: s.group_by_key().aggregate(list, lambda key, value, total: None, value=J))


def change(value: dict[str, Any]) -> dict[str, Any]:
    value["n"] += 1
    return value


def test_change_of_a_value_that_another_operator_gets_is_told_of() -> None:
    def describe(stream: KStream[str, Any]) -> None:
        stream.map_values(change).to("changed")
        stream.to("as-it-was")

    with pytest.raises(ChangedInPlaceError, match=r"MAPVALUES.*py:\d+\), or an operator below it, .*'k'.*KSTREAM-SINK"):
        run(describe)
    run(describe, checks=False)


def test_change_of_an_aggregate_below_its_table_is_told_of() -> None:
    def describe(stream: KStream[str, Any]) -> None:
        table = stream.group_by_key().aggregate(list, add, value=J)
        table.to_stream().peek(lambda key, value: value.clear()).to("cleared", value=J)
        table.to_stream().to("totals", value=J)

    with pytest.raises(ChangedInPlaceError, match=r"TOSTREAM-\d+ .*test_driver_checks.py:\d+"):
        run(describe)


def test_last_operator_may_change_a_value_and_so_may_the_only_one() -> None:
    def describe(stream: KStream[str, Any]) -> None:
        stream.to("as-it-was")
        stream.map_values(change).map_values(change).to("changed")

    run(describe)


class Point:
    """Equal only to itself."""

    def __init__(self) -> None:
        self.n = 0


def test_objects_that_cannot_be_compared_are_left_alone() -> None:
    def describe(stream: KStream[str, Any]) -> None:
        points = stream.map_values(lambda value: [Point()])
        points.foreach(lambda key, value: None)
        points.map_values(lambda value: value[0].n).to("out", value=serdes.INT64)

    run(describe)
