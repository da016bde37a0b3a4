"""Mistakes in a description are found by the call that makes them, and the message ends with its line."""

# ruff: noqa: E501  # a mistake and its message are on one line

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable
from typing import Any

import pytest

from streams_py import (
    ConfigError,
    JoinWindows,
    Materialized,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
    TopologyError,
    UnlimitedWindows,
    key_value_store,
    serdes,
)
from streams_py.serdes import SerdeDefaults
from streams_py.testing import TopologyTestDriver
from streams_py.topology import dsl
from streams_py.topology.declare.stores import timestamped_key_value_store
from streams_py.topology.declare.versioned_stores import versioned_key_value_store
from streams_py.topology.declare.window_stores import session_store, window_store
from streams_py.topology.missing_serdes import check_serdes


async def later(*arguments: object) -> Any:
    return arguments


async def later_pair(key: object, value: object) -> Any:
    return value


class AsyncProcessor:
    async def process(self, record: object) -> None: ...


def stream() -> Any:
    return StreamsBuilder(key=serdes.STRING, value=serdes.STRING).stream("in")


SLIPS: list[tuple[Callable[[], object], str]] = [
    (lambda: stream().filter(lambda v: v), r"KStream.filter: predicate is called with 2 arguments, \(key, value\), but the lambda takes \(v\)"),
    (lambda: stream().map_values(lambda k, v: v), r"KStream.map_values: mapper is called with 1 argument, \(value\), but the lambda takes \(k, v\)"),
    (lambda: stream().map_values(with_key=str.upper), r"with_key is called with 2 arguments"),
    (lambda: stream().map(7), r"KStream.map: mapper is of type int, not a function of \(key, value\)"),
    (lambda: stream().group_by_key().reduce(lambda total: total), r"KGroupedStream.reduce: reducer is called with 2"),
    (lambda: stream().group_by_key().aggregate(lambda k: 0, lambda k, v, a: a), r"initializer is called with 0 arg"),
    (lambda: stream().to_table().filter(lambda v: v), r"KTable.filter: predicate is called with 2"),
    (lambda: stream().split().branch(lambda v: v), r"BranchedKStream.branch: predicate is called with 2"),
    (lambda: stream().join(stream().to_table(), lambda v: v), r"KStream.join: joiner is called with 2 arguments"),
    (lambda: stream().to(lambda k, v: "out"), r"KStream.to: topic is called with 3 arguments, \(key, value, record context\)"),
    (lambda: stream().foreach(later), r"KStream.foreach: action: later is an `async def`"),
    (lambda: stream().map_values_async(str.upper), r"map_values_async: function: upper is not an `async def`"),
    (
        lambda: stream().map_async(lambda key, value: (key, value)),
        rf"map_async: function: the lambda \({re.escape(__file__)}:\d+\) is not an `async def`.*{re.escape(__file__)}:\d+\)",
    ),
    (lambda: stream().map_values_async(later_pair), r"is called with 1 argument, \(value\), but later_pair takes"),
    (lambda: stream().map_values_async(later, concurrency=0), r"concurrency=0"),
    (lambda: stream().map_values_async(later, timeout=0), r"timeout is 0 ms"),
    (lambda: stream().map_batch(later, max_records=0, max_ms=1), r"max_records=0"),
    (lambda: stream().map_batch(max_records=1, max_ms=1), r"map_batch needs one function"),
    (lambda: stream().process(later), r"KStream.process: processor: later is an `async def`"),
    (lambda: stream().process(AsyncProcessor), r"KStream.process: processor: AsyncProcessor is an `async def`"),
    (lambda: StreamsBuilder().stream("in", key=str), r"StreamsBuilder.stream: key is the type str, not a serde; use serdes.STRING"),
    (lambda: StreamsBuilder(value=dict), r"StreamsBuilder: value is the type dict, not a serde; use serdes.JSON"),
    (lambda: stream().to("out", value=type(serdes.STRING)), r"value is the class .*; pass an object"),
    (lambda: stream().to("out", value="string"), r"value is of type str, not a serde"),
    (lambda: StreamsBuilder().stream("in", timestamp_extractor=lambda key, value: 0), r"timestamp_extractor is called with 4"),
    (lambda: StreamsBuilder().stream("my topic"), r"'my topic' is not a valid topic name"),
    (lambda: StreamsBuilder().stream(["fine", "f\u00fcnf"]), "'f\u00fcnf' is not a valid topic name"),
    (lambda: StreamsBuilder().table(".."), r"'..' is not a valid topic name"),
    (lambda: StreamsBuilder().stream([7]), r"StreamsBuilder.stream: topics is of type int, not the name of a topic"),
    (lambda: stream().to("x" * 250), r"'x{40}...' is not a valid topic name: it must have 1 to 249"),
    (lambda: stream().process(lambda record, context: iter(()), stores=[key_value_store("s")]), r"stores has the declaration of store 's'; it takes names: call add_state_store"),
    (lambda: StreamsBuilder().add_state_store("s"), r"store is of type str; it takes a declaration such as key_value_store"),
    (lambda: stream().group_by_key().count(store=key_value_store("s")), r"store is of type StoreBuilder; it takes a name"),
    (lambda: stream().group_by_key().count(materialized="s"), r"materialized is text; write store='s'"),
    (lambda: Materialized("s", key=str), r"Materialized: key is the type str, not a serde; use serdes.STRING"),
    (lambda: Materialized("s", value="string"), r"Materialized: value is of type str, not a serde"),
    (lambda: key_value_store("s", value=int), r"store 's': value is the type int, not a serde; use serdes.INT64"),
    (lambda: timestamped_key_value_store("s", key=dict), r"store 's': key is the type dict, not a serde"),
    (lambda: window_store("s", retention=9, size=3, key=str), r"store 's': key is the type str, not a serde"),
    (lambda: session_store("s", retention=9, value=type(serdes.STRING)), r"store 's': value is the class .*; pass an object"),
    (lambda: versioned_key_value_store("s", history=9, key=str), r"store 's': key is the type str, not a serde"),
    (lambda: TimeWindows.of(10, advance=20), "advance of TimeWindows is 20 ms, more than the size of 10 ms"),
    (lambda: JoinWindows.of(10, grace=-1), "grace of JoinWindows is -1 ms"),
    (lambda: SessionWindows.of(10, grace=-1), "grace of SessionWindows is -1 ms"),
    (lambda: SlidingWindows.of(10, grace=-1), "grace of SlidingWindows is -1 ms"),
    (lambda: UnlimitedWindows.of(start=-1), "start of UnlimitedWindows is -1 ms"),
    (lambda: Suppressed.until_time_limit(-1), "time limit of suppress is -1 ms"),
    (lambda: Materialized("no name"), "no name"),
    (lambda: key_value_store("s", ttl=0), "time to live of store 's' is 0 ms"),
    (lambda: window_store("s", size=5, retention=1), "retention of store 's' is 1 ms"),
    (lambda: stream().join(StreamsBuilder().global_table("g"), lambda v, o: v, on=lambda k, v: k), "streams and tables of one builder"),
    (lambda: stream().group_by_key().windowed_by(UnlimitedWindows.of()).count().suppress(Suppressed.until_window_closes()), "or only UnlimitedWindows, which never close"),
    (lambda: stream().group_by_key().windowed_by(TimeWindows.of(9)).count().suppress(TimeWindows.of(9)), r"KTable.suppress: suppressed is of type TimeWindows; it takes Suppressed\."),
    (lambda: stream().group_by_key().windowed_by(9), r"windows is of type int; it takes TimeWindows.of\(...\) or SlidingWindows"),
    (lambda: stream().group_by_key().windowed_by(JoinWindows.of(9)), "windows is of type JoinWindows; it takes TimeWindows"),
    (lambda: stream().join(stream(), TimeWindows.of(9), lambda v, o: v), r"joiner is of type TimeWindows, not a function of \(value, value\)"),
    (lambda: stream().join(stream(), lambda v, o: v, 9), r"windows is of type int; it takes JoinWindows.of\(...\)"),
    (lambda: stream().join("other", lambda v, o: v, JoinWindows.of(9)), "other is of type str; it takes a KStream or a KTable or a GlobalKTable"),
    (lambda: (both := stream()).join(both, lambda v, o: v, JoinWindows.of(9), key=str), "join with a stream: key is the type str, not a serde; use serdes.STRING"),
    (lambda: stream().to_table().join(stream(), lambda v, o: v), "KTable.join: other is of type KStream; it takes a KTable"),
    (lambda: stream().merge(stream().to_table()), "KStream.merge: other is of type KTable; it takes a KStream"),
    (lambda: stream().merge(None), "KStream.merge: other is None; it takes a KStream"),
    (lambda: stream().group_by_key().aggregate(None, lambda k, v, a: a), "initializer is None, not a function without arguments"),
    (lambda: stream().group_by_key().count(name=""), "KGroupedStream.count: name: a name must not be empty"),
    (lambda: stream().repartition(partitions="3"), "partitions is of type str; it takes a whole number"),
    (lambda: stream().to("out", partitioner=lambda key: 0), r"partitioner is called with 4 arguments, \(topic, key, value, number"),
    (lambda: stream().split().branch(lambda k, v: True, chain=lambda branch: 7), "chain of branch .* returned a value of type int"),
    (lambda: stream().process(lambda record: None), "is neither a supplier of processors, .* nor a function of"),
    (lambda: stream().map_values_async(later, concurrency="64"), "concurrency is of type str; it takes a whole number"),
    (lambda: StreamsBuilder().stream(None), "StreamsBuilder.stream: topics is None, not the name of a topic"),
    (lambda: StreamsBuilder().stream("in", reset_policy="earliest"), "reset_policy is of type str; it takes a ResetPolicy, such as"),
    (lambda: StreamsBuilder().build("all"), "config is of type str; it takes a mapping"),
    (lambda: Materialized("s", caching="no"), "Materialized: caching is of type str; it takes True or False"),
    (lambda: Materialized("s", logging_config={"retention.ms": 9}), "has 'retention.ms': 9; names and values are text, such as '9'"),
    (lambda: Materialized("s", retention="1 day"), r"retention is of type str; it takes milliseconds \(int\) or a timedelta"),
    (lambda: key_value_store("a store"), "key_value_store 'a store': name: the name 'a store' has characters"),
    (lambda: Suppressed.until_time_limit(9, max_records=1.5), "max_records is of type float; it takes a whole number"),
    (lambda: Topology().add_source("s", "in").add_sink("p", "out", None), "parents is None; it takes text or a list of it"),
    (lambda: Topology().add_source("s", "in", key=str), r"Topology.add_source: key is the type str, not a serde"),
    (lambda: Topology().add_source("s", "in").add_sink("k", "o u t", "s"), r"'o u t' is not a valid topic name"),
    (lambda: Topology().add_source("s", "in").add_processor("p", AsyncProcessor, "s"), r"`async def`"),
]  # fmt: skip


@pytest.mark.parametrize(("slip", "message"), SLIPS, ids=[message[:50] for _, message in SLIPS])
def test_slip_is_found_by_its_call_which_is_named(slip: Callable[[], object], message: str) -> None:
    line = slip.__code__.co_firstlineno
    with pytest.raises(TopologyError, match=message) as caught:
        slip()
    assert str(caught.value).endswith(f" ({__file__}:{line})")
    assert caught.value.where == f"{__file__}:{line}"


@pytest.mark.parametrize(
    "describe",
    [
        lambda: stream().map_values(str.split),
        lambda: stream().map_values(len),
        lambda: stream().filter(lambda *arguments: True),
        lambda: stream().filter(lambda key, value, threshold=3: True),
        lambda: stream().map(dict),
        lambda: stream().to("a.legal_topic-1"),
        lambda: StreamsBuilder().stream(name for name in ("a", "b")),
        lambda: StreamsBuilder().stream(re.compile("any .*")),
    ],
)
def test_what_works_is_accepted(describe: Callable[[], object]) -> None:
    describe()


def test_every_class_of_the_dsl_checks_what_it_is_given() -> None:
    """``StreamJoins`` is not for users: ``KStream`` has checked the arguments before it calls it."""
    unchecked = []
    for module in pkgutil.iter_modules(dsl.__path__, f"{dsl.__name__}."):
        for name, cls in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            methods = [f for n, f in vars(cls).items() if inspect.isfunction(f) and not n.startswith("_")]
            takes_functions = [f for f in methods if "Callable[[" in str(inspect.signature(f))]
            if cls.__module__ == module.name and not all(hasattr(f, "__wrapped__") for f in takes_functions):
                unchecked.append(name)
    assert unchecked == ["StreamJoins"]


def test_error_of_build_ends_with_the_line_of_the_call_it_is_about() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    builder.table("in")
    line = inspect.currentframe().f_lineno - 1  # type: ignore[union-attr]  # CPython has frames
    with pytest.raises(TopologyError, match=rf"already read .*test_checks.py:{line}\)"):
        builder.build()


def test_name_given_twice_ends_with_both_lines() -> None:
    builder = StreamsBuilder()
    builder.stream("in", name="twice")
    builder.stream("other", name="twice")
    line = inspect.currentframe().f_lineno - 1  # type: ignore[union-attr]  # as above
    with pytest.raises(
        TopologyError, match=rf"'twice' is added twice, first at .*:{line - 1}.*test_checks.py:{line}\)$"
    ):
        builder.build()


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        (lambda b: b.stream("in").repartition(name="r"), lambda b: b.stream("x").group_by(str, name="r").count(), "'r-repartition' is declared twice, first"),
        (lambda b: b.stream("in"), lambda b: b.table("in"), "topic 'in' is already read by source 'KSTREAM-SOURCE-0000000000'"),
        (lambda b: b.stream("in"), lambda b: b.stream(re.compile("i.*")), "which is already read by 'KSTREAM-SOURCE-0000000000'"),
        (lambda b: b.stream(re.compile("i.*")), lambda b: b.stream("in"), "topic 'in' is already read by 'KSTREAM-SOURCE-0000000000'"),
    ],
)  # fmt: skip
def test_topic_that_two_operations_claim_is_told_with_both_lines(
    one: Callable[[Any], object], other: Callable[[Any], object], message: str
) -> None:
    builder: StreamsBuilder[Any, Any] = StreamsBuilder()
    one(builder)
    other(builder)
    lines = [rf"{re.escape(__file__)}:{call.__code__.co_firstlineno}" for call in (one, other)]
    with pytest.raises(TopologyError, match=rf"{message} at {lines[0]}.* \({lines[1]}\)$"):
        builder.build()


def test_missing_serde_names_the_node_its_topic_and_its_line() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=serdes.STRING, value=serdes.STRING).map_values(len).to("out")
    line = inspect.currentframe().f_lineno - 1  # type: ignore[union-attr]  # as above
    expected = rf"KSTREAM-SINK-0000000002, which writes out, has no value serde \(.*test_checks.py:{line}\): set value="
    with pytest.raises(ConfigError, match=expected) as caught:
        check_serdes(builder.build(), SerdeDefaults())
    assert caught.value.key == "default.value.serde"
    check_serdes(builder.build(), SerdeDefaults(value=serdes.INT64))


def test_test_driver_says_what_has_no_serde_and_where_it_was_written() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=serdes.STRING, value=serdes.STRING).map_values(len).to("out")
    line = inspect.currentframe().f_lineno - 1  # type: ignore[union-attr]  # as above
    topology = builder.build()
    expected = rf"KSTREAM-SINK-0000000002, which writes out, has no value serde \(.*test_checks.py:{line}\): set value="
    with pytest.raises(ConfigError, match=expected):
        TopologyTestDriver(topology)
    with TopologyTestDriver(topology, {"default.value.serde": serdes.INT64}):
        pass


def test_missing_serde_of_a_store_names_the_store_and_a_line() -> None:
    builder = StreamsBuilder()
    words = builder.stream("in", key=serdes.STRING, value=serdes.STRING)
    words.group_by_key().aggregate(lambda: 0, lambda key, value, total: total, store="totals")
    with pytest.raises(
        ConfigError, match=r"store totals of \S+, which is kept here, has no value serde \(.*test_checks.py:"
    ):
        check_serdes(builder.build(), SerdeDefaults())


TEXT: Any = {"key": serdes.STRING, "value": serdes.STRING}
INTERNAL: list[tuple[Callable[[StreamsBuilder[Any, Any]], object], str]] = [
    (lambda builder: builder.table("t", **TEXT).group_by(lambda k, v: (v, k), key=serdes.STRING).count(store="n"), "n-repartition"),
    (lambda builder: builder.table("t", **TEXT).join(builder.table("r", **TEXT).map_values(len), lambda v, n: v, on=lambda k, v: v), "KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-.*-topic"),
]  # fmt: skip


@pytest.mark.parametrize(("describe", "topic"), INTERNAL, ids=["group_by", "join on a foreign key"])
def test_missing_serde_of_what_an_internal_topic_carries_is_found(
    describe: Callable[[StreamsBuilder[Any, Any]], object], topic: str
) -> None:
    builder: StreamsBuilder[Any, Any] = StreamsBuilder()
    describe(builder)
    line = describe.__code__.co_firstlineno
    with pytest.raises(
        ConfigError, match=rf"which (writes|reads) {topic}, has no value serde \(.*test_checks.py:{line}\)"
    ):
        check_serdes(builder.build(), SerdeDefaults())
    check_serdes(builder.build(), SerdeDefaults(value=serdes.INT64))


@pytest.mark.parametrize("operation", ["map", "flat_map"])
def test_function_that_returns_no_pair_is_named_with_its_line(operation: str) -> None:
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)

    def forgets(key: str, value: str) -> Any:
        return (1, 2, 3) if operation == "map" else [(1, 2, 3)]

    getattr(builder.stream("in"), operation)(forgets).to("out")
    line = forgets.__code__.co_firstlineno
    with TopologyTestDriver(builder.build()) as driver:
        source = driver.input_topic("in", key=serdes.STRING, value=serdes.STRING)
        with pytest.raises(
            Exception, match=rf"forgets \(.*test_checks.py:{line}\) must return .*for {operation}: too many"
        ):
            source.send("a", "b")


def test_unpacking_error_of_the_function_itself_stays_as_it_is() -> None:
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)

    def unpacks(key: str, value: str) -> tuple[str, str]:
        first, second, third = value.split()
        return first, second + third

    builder.stream("in").map(unpacks).to("out")
    with TopologyTestDriver(builder.build()) as driver, pytest.raises(Exception, match=r"not enough values") as caught:
        driver.input_topic("in", key=serdes.STRING, value=serdes.STRING).send("a", "b")
    assert "must return" not in str(caught.value)
