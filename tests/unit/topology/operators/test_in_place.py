"""Aggregation functions that change their argument and return it, as Python programmers write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from streams_py import StreamsBuilder, serdes
from streams_py.state.stores.codec import StoreCodec
from streams_py.testing.driver import TopologyTestDriver
from streams_py.topology.declare.nodes import NodeContext
from streams_py.topology.declare.windows import SessionWindows, SlidingWindows, TimeWindows
from streams_py.topology.dsl.kstream import KStream
from streams_py.topology.operators.in_place import fresh_initializer

EMPTY: dict[str, Any] = {"n": 0, "seen": []}


def add(key: str, value: int, total: dict[str, Any]) -> dict[str, Any]:
    """Change the argument in place."""
    total["n"] += value
    total["seen"].append(value)
    return total


def add_below(key: str, value: int, total: dict[str, Any]) -> dict[str, Any]:
    """Return a new dict that contains the old list, changed."""
    total["seen"].append(value)
    return {**total, "n": total["n"] + value}


def add_purely(key: str, value: int, total: dict[str, Any]) -> dict[str, Any]:
    return {"n": total["n"] + value, "seen": [*total["seen"], value]}


def subtract(key: str, value: int, total: dict[str, Any]) -> dict[str, Any]:
    total["n"] -= value
    total["seen"].remove(value)
    return total


def merge(key: str, one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    other["n"] += one["n"]
    other["seen"] += one["seen"]
    return other


def merge_purely(key: str, one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {"n": one["n"] + other["n"], "seen": [*other["seen"], *one["seen"]]}


IN_PLACE = [add, add_below]
INITIALIZERS = {"new": lambda: {"n": 0, "seen": []}, "shared": lambda: EMPTY}


@pytest.fixture(autouse=True)
def pristine() -> None:
    EMPTY.update(n=0, seen=[])


@pytest.fixture(params=INITIALIZERS)
def initializer(request: pytest.FixtureRequest) -> Callable[[], Any]:
    return INITIALIZERS[request.param]


@pytest.fixture(params=[0, 1 << 20], ids=["uncached", "cached"])
def cache_bytes(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def results(build: Callable[[KStream[Any, Any]], Any], cache_bytes: int = 0) -> list[tuple[Any, Any]]:
    """Return the records after a table that regroups the results of ``build`` and sums all of them."""
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.JSON)
    table = build(builder.stream("in", key=serdes.STRING, value=serdes.INT64))
    regrouped = table.group_by(lambda key, total: ("all", total), key=serdes.STRING, value=serdes.JSON)
    summed = regrouped.aggregate(
        lambda: [0, 0],
        lambda key, total, sums: [sums[0] + total["n"], sums[1] + len(total["seen"])],
        lambda key, total, sums: [sums[0] - total["n"], sums[1] - len(total["seen"])],
        value=serdes.JSON,
    )
    summed.to_stream().to("out", key=serdes.STRING, value=serdes.JSON)
    EMPTY.update(n=0, seen=[])
    with TopologyTestDriver(builder.build(), {"statestore.cache.max.bytes": cache_bytes}) as driver:
        source = driver.input_topic("in", key=serdes.STRING, value=serdes.INT64)
        for number in range(60):
            source.send("abc"[number % 3], 1 + number % 7, timestamp_ms=(number * 37) % 1_000 + number)
        return driver.output_topic("out", key=serdes.STRING, value=serdes.JSON).read_pairs()


def of(stream: KStream[Any, Any]) -> Any:
    return stream.group_by_key(key=serdes.STRING, value=serdes.INT64)


@pytest.mark.parametrize("aggregator", IN_PLACE)
@pytest.mark.parametrize("cogrouped", [False, True])
def test_aggregation_of_a_stream(aggregator: Any, cogrouped: bool, initializer: Any, cache_bytes: int) -> None:
    def build(stream: KStream[Any, Any], by: Any) -> Any:
        return (
            of(stream).cogroup(by).aggregate(initializer, value=serdes.JSON)
            if cogrouped
            else of(stream).aggregate(initializer, by, value=serdes.JSON)
        )

    got = results(lambda stream: build(stream, aggregator), cache_bytes)
    assert got == results(lambda stream: build(stream, add_purely), cache_bytes)
    assert got[-1] == ("all", [sum(1 + number % 7 for number in range(60)), 60])


WINDOWS = {
    "tumbling": TimeWindows.of(100, grace=100_000),
    "hopping": TimeWindows.of(400, advance=150, grace=100_000),
    "sliding": SlidingWindows.of(120, grace=100_000),
}


@pytest.mark.parametrize("aggregator", IN_PLACE)
@pytest.mark.parametrize("windows", WINDOWS)
def test_aggregation_over_windows(aggregator: Any, windows: str, initializer: Any, cache_bytes: int) -> None:
    def build(stream: KStream[Any, Any], by: Any) -> Any:
        return of(stream).windowed_by(WINDOWS[windows]).aggregate(initializer, by, value=serdes.JSON)

    got = results(lambda stream: build(stream, aggregator), cache_bytes)
    assert got == results(lambda stream: build(stream, add_purely), cache_bytes)
    assert len(got) > 3


@pytest.mark.parametrize("aggregator", IN_PLACE)
def test_aggregation_over_sessions(aggregator: Any, initializer: Any, cache_bytes: int) -> None:
    def build(stream: KStream[Any, Any], by: Any, merging: Any) -> Any:
        windows = SessionWindows.of(30, grace=100_000)
        return of(stream).windowed_by(windows).aggregate(initializer, by, merging, value=serdes.JSON)

    got = results(lambda stream: build(stream, aggregator, merge), cache_bytes)
    assert got == results(lambda stream: build(stream, add_purely, merge_purely), cache_bytes)
    assert len(got) > 3


@pytest.mark.parametrize("aggregator", IN_PLACE)
def test_aggregation_of_a_table(aggregator: Any, initializer: Any, cache_bytes: int) -> None:
    def build(stream: KStream[Any, Any], adder: Any, subtractor: Any) -> Any:
        grouped = stream.to_table().group_by(
            lambda key, value: (str(value % 2), value), key=serdes.STRING, value=serdes.INT64
        )
        return grouped.aggregate(initializer, adder, subtractor, value=serdes.JSON)

    def take_out(key: str, value: int, total: dict[str, Any]) -> dict[str, Any]:
        seen = list(total["seen"])
        seen.remove(value)
        return {"n": total["n"] - value, "seen": seen}

    got = results(lambda stream: build(stream, aggregator, subtract), cache_bytes)
    assert got == results(lambda stream: build(stream, add_purely, take_out), cache_bytes)


@pytest.mark.parametrize("cache_bytes", [0, 1 << 20])
def test_reduction_of_a_stream(cache_bytes: int) -> None:
    def build(stream: KStream[Any, Any], reducer: Any) -> Any:
        totals = stream.map_values(lambda value: {"n": value, "seen": [value]})
        return totals.group_by_key(key=serdes.STRING, value=serdes.JSON).reduce(reducer)

    in_place = results(lambda stream: build(stream, lambda total, value: merge("", value, total)), cache_bytes)
    assert in_place == results(lambda stream: build(stream, lambda a, b: merge_purely("", b, a)), cache_bytes)


def test_initializer_that_always_gives_one_object_is_asked_but_its_object_not_shared() -> None:
    class Store:
        codec: StoreCodec[str, Any] = StoreCodec("t", serdes.STRING, serdes.JSON)

    initial = fresh_initializer(cast("NodeContext", None), lambda: EMPTY, Store())
    for _ in range(3):
        given = initial()
        assert given == {"n": 0, "seen": []}
        add("key", 1, given)
