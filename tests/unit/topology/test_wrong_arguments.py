"""Each argument of the DSL, of ``Topology`` and of declarations is either valid, or the call refuses it with its line.

No error appears later as an AttributeError in internal code, or only when records are processed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any, ClassVar, Final

import pytest

from streams_py import (
    JoinWindows,
    Materialized,
    Processor,
    Record,
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
from streams_py.topology.declare.custom_stores import custom_store
from streams_py.topology.declare.stores import timestamped_key_value_store
from streams_py.topology.declare.versioned_stores import versioned_key_value_store
from streams_py.topology.declare.window_stores import session_store, timestamped_window_store, window_store
from streams_py.topology.missing_serdes import check_serdes

TEXT: Final = serdes.STRING


class Noop(Processor[Any, Any, Any, Any]):
    def process(self, record: Record[Any, Any]) -> None: ...


class Upper:
    def init(self, context: object) -> None: ...
    def transform(self, key: str, value: str) -> str:
        return value.upper()

    def close(self) -> None: ...


async def later(value: object) -> object:
    return value


async def later_pair(key: object, value: object) -> object:
    return key, value


def first(value: Any) -> Any:
    return value


def second(key: object, value: Any) -> Any:
    return value


def third(key: object, value: object, result: Any) -> Any:
    return result


def pair(key: object, value: object) -> Any:
    return key, value


class World:
    """A builder or a topology, with one object of each class that has methods, most of them made on first use."""

    def __init__(self) -> None:
        self.builder = StreamsBuilder(key=TEXT, value=TEXT)
        self.stream = self.builder.stream("stream")
        self.topology = Topology().add_source("source", "in").add_processor("processor", Noop, "source")

    def __getattr__(self, name: str) -> Any:
        made = self._MAKERS[name](self)
        setattr(self, name, made)
        return made

    _MAKERS: ClassVar[dict[str, Callable[[World], Any]]] = {
        "other_stream": lambda world: world.builder.stream("other-stream"),
        "table": lambda world: world.builder.table("table"),
        "other_table": lambda world: world.builder.table("other-table"),
        "global_table": lambda world: world.builder.global_table("global-table"),
        "grouped": lambda world: world.builder.stream("grouped").group_by_key(),
        "other_grouped": lambda world: world.builder.stream("other-grouped").group_by_key(),
        "grouped_table": lambda world: world.table.group_by(pair, key=TEXT, value=TEXT),
        "windowed": lambda world: world.grouped.windowed_by(TimeWindows.of(10)),
        "sessions": lambda world: world.grouped.windowed_by(SessionWindows.of(10)),
        "counts": lambda world: world.windowed.count(),
        "cogrouped": lambda world: world.grouped.cogroup(third),
        "cogrouped_windows": lambda world: world.cogrouped.windowed_by(TimeWindows.of(10)),
        "cogrouped_sessions": lambda world: world.cogrouped.windowed_by(SessionWindows.of(10)),
        "branches": lambda world: world.stream.split(),
    }

    def build(self, owner: str) -> None:
        """Do all steps of a description that need no records."""
        topology = self.topology if owner == "topology" else self.builder.build()
        topology.describe()
        topology.metadata("app")
        check_serdes(topology, SerdeDefaults(TEXT, TEXT))


Given = Mapping[str, Any]
GLOBAL: Final[Given] = {
    "builder": key_value_store("s", logging=False), "source": "s", "topic": "t", "processor": "p", "supplier": Noop,
}  # fmt: skip

CALLS: list[tuple[str, str, Given | Callable[[World], Given]]] = [
    ("builder", "stream", {"topics": "more"}),
    ("builder", "table", {"topic": "more"}),
    ("builder", "global_table", {"topic": "more"}),
    ("builder", "add_global_store", {"store": key_value_store("s", key=TEXT), "topic": "more", "supplier": Noop}),
    ("builder", "add_state_store", {"store": key_value_store("s")}),
    ("builder", "build", {}),
    ("stream", "filter", {"predicate": second}),
    ("stream", "filter_not", {"predicate": second}),
    ("stream", "map", {"mapper": pair}),
    ("stream", "map_values", {"with_key": second}),
    ("stream", "flat_map", {"mapper": pair}),
    ("stream", "flat_map_values", {"with_key": second}),
    ("stream", "select_key", {"selector": second}),
    ("stream", "peek", {"action": second}),
    ("stream", "foreach", {"action": second}),
    ("stream", "print", {}),
    ("stream", "merge", lambda world: {"other": world.other_stream}),
    ("stream", "split", {}),
    ("stream", "to", {"topic": "out"}),
    ("stream", "repartition", {}),
    ("stream", "to_table", {}),
    ("stream", "group_by_key", {}),
    ("stream", "group_by", {"selector": second}),
    ("stream", "process", {"processor": Noop}),
    ("stream", "process_values", {"processor": Noop}),
    ("stream", "join", lambda w: {"other": w.other_stream, "joiner": second, "windows": JoinWindows.of(9)}),
    ("stream", "left_join", lambda w: {"other": w.other_stream, "joiner": second, "windows": JoinWindows.of(9)}),
    ("stream", "outer_join", lambda w: {"other": w.other_stream, "joiner": second, "windows": JoinWindows.of(9)}),
    ("stream", "join", lambda world: {"other": world.table, "joiner": second}),
    ("stream", "left_join", lambda world: {"other": world.global_table, "joiner": second, "on": second}),
    ("stream", "map_values_async", {"with_key": later_pair}),
    ("stream", "map_async", {"function": later_pair}),
    ("stream", "map_batch", {"with_key": first, "max_records": 3, "max_ms": 4}),
    ("table", "filter", {"predicate": second}),
    ("table", "filter_not", {"predicate": second}),
    ("table", "map_values", {"with_key": second}),
    ("table", "transform_values", {"supplier": Upper}),
    ("table", "to_stream", {}),
    ("table", "group_by", {"selector": pair}),
    ("table", "join", lambda world: {"other": world.other_table, "joiner": second}),
    ("table", "join", lambda world: {"other": world.other_table, "joiner": second, "on": second}),
    ("table", "left_join", lambda world: {"other": world.other_table, "joiner": second}),
    ("table", "outer_join", lambda world: {"other": world.other_table, "joiner": second}),
    ("counts", "suppress", {"suppressed": Suppressed.until_window_closes()}),
    ("grouped", "count", {}),
    ("grouped", "reduce", {"reducer": second}),
    ("grouped", "aggregate", {"initializer": int, "aggregator": third}),
    ("grouped", "windowed_by", {"windows": TimeWindows.of(9)}),
    ("grouped", "cogroup", {"aggregator": third}),
    ("grouped_table", "count", {}),
    ("grouped_table", "reduce", {"adder": second, "subtractor": second}),
    ("grouped_table", "aggregate", {"initializer": int, "adder": third, "subtractor": third}),
    ("windowed", "count", {}),
    ("windowed", "reduce", {"reducer": second}),
    ("windowed", "aggregate", {"initializer": int, "aggregator": third}),
    ("sessions", "count", {}),
    ("sessions", "reduce", {"reducer": second}),
    ("sessions", "aggregate", {"initializer": int, "aggregator": third, "merger": third}),
    ("cogrouped", "cogroup", lambda world: {"grouped": world.other_grouped, "aggregator": third}),
    ("cogrouped", "windowed_by", {"windows": TimeWindows.of(9)}),
    ("cogrouped", "aggregate", {"initializer": int}),
    ("cogrouped_windows", "aggregate", {"initializer": int}),
    ("cogrouped_sessions", "aggregate", {"initializer": int, "merger": third}),
    ("branches", "branch", {"predicate": second}),
    ("branches", "default_branch", {}),
    ("topology", "add_source", {"name": "s", "topics": "t"}),
    ("topology", "add_processor", {"name": "p", "supplier": Noop, "parents": "source"}),
    ("topology", "add_sink", {"name": "k", "topic": "o", "parents": "processor"}),
    ("topology", "add_state_store", {"builder": key_value_store("s"), "processors": "processor"}),
    ("topology", "connect_processor_and_state_stores", {"processor": "processor", "stores": ()}),
    ("topology", "add_global_store", GLOBAL),
    ("topology", "add_read_only_state_store", GLOBAL),
]
DECLARATIONS: list[tuple[Callable[..., Any], Given]] = [
    (StreamsBuilder, {}),
    (Materialized, {"store": "s"}),
    (TimeWindows.of, {"size": 9}),
    (SlidingWindows.of, {"difference": 9}),
    (SessionWindows.of, {"gap": 9}),
    (UnlimitedWindows.of, {}),
    (JoinWindows.of, {"difference": 9}),
    (Suppressed.until_window_closes, {}),
    (Suppressed.until_time_limit, {"limit": 9}),
    (key_value_store, {"name": "s"}),
    (timestamped_key_value_store, {"name": "s"}),
    (versioned_key_value_store, {"name": "s", "history": 9}),
    (window_store, {"name": "s", "retention": 9, "size": 9}),
    (timestamped_window_store, {"name": "s", "retention": 9, "size": 9}),
    (session_store, {"name": "s", "retention": 9}),
    (custom_store, {"name": "s", "supplier": Noop}),
]

NEVER_RIGHT: dict[str, Any] = {"an object": object(), "a number of neither kind": 1j, "a set of objects": {object()}}
SELDOM_RIGHT: dict[str, Any] = {
    "zero": 0, "a negative number": -1, "a fraction": 2.5, "a huge number": 10**30, "a truth value": True,
    "text": "some text!", "empty text": "", "a list": [1], "a class": Noop, "a duration": timedelta(-1),
    "a function without arguments": lambda: 0, "a function of nine arguments": lambda a, b, c, d, e, f, g, h, i: 0,
    "windows": TimeWindows.of(9), "a serde": TEXT, "a declaration": key_value_store("t"), "a mapping": {"a": 1},
    "a stream of another builder": StreamsBuilder().stream("in"), "a table of another": StreamsBuilder().table("in"),
}  # fmt: skip
JOIN_OPTIONS: Final = ("key", "value", "other_value", "store", "persistent", "logging", "name", "grace")


def parameters(function: Callable[..., Any]) -> Iterator[tuple[str, bool]]:
    """Return name, and whether the parameter is required."""
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            yield from ((name, False) for name in JOIN_OPTIONS)
        elif parameter.kind is not parameter.POSITIONAL_ONLY:
            yield parameter.name, parameter.default is parameter.empty


def refuses(call: Callable[[], object]) -> bool:
    """Return whether the call is refused with the line of this file. Any other exception is an error of the test."""
    where: str | None = __file__
    try:
        call()
    except TopologyError as error:
        where = error.where
    else:
        return False
    assert where is not None
    assert where.startswith(__file__)
    return True


def check(name: str, wrong: str, *, refused: bool, needed: bool) -> None:
    assert refused or wrong not in NEVER_RIGHT, f"{name} took {wrong}"
    assert refused or wrong != "nothing" or not needed, f"{name} took None"


@pytest.mark.parametrize(
    ("owner", "method", "given"),
    CALLS,
    ids=[f"{number}-{owner}.{name}" for number, (owner, name, _) in enumerate(CALLS)],
)
def test_wrong_argument_is_refused_with_the_line_of_the_call(
    owner: str, method: str, given: Given | Callable[[World], Given]
) -> None:
    for name, needed in parameters(getattr(getattr(World(), owner), method)):
        for wrong, value in {**NEVER_RIGHT, **SELDOM_RIGHT, "nothing": None}.items():
            world = World()
            arguments = {**(given(world) if callable(given) else given), name: value}
            refused = refuses(lambda: getattr(getattr(world, owner), method)(**arguments))  # noqa: B023  # called here
            check(f"{method}: {name}", wrong, refused=refused, needed=needed)
            if not refused:
                refuses(lambda: world.build(owner))  # noqa: B023  # the same


@pytest.mark.parametrize(("declare", "given"), DECLARATIONS, ids=[str(each[0].__qualname__) for each in DECLARATIONS])
def test_wrong_declaration_is_refused_with_the_line_of_the_call(declare: Callable[..., Any], given: Given) -> None:
    for name, needed in parameters(declare):
        for wrong, value in {**NEVER_RIGHT, **SELDOM_RIGHT, "nothing": None}.items():
            refused = refuses(lambda: declare(**{**given, name: value}))  # noqa: B023  # called here
            check(f"{declare.__qualname__}: {name}", wrong, refused=refused, needed=needed)


def test_every_operation_is_among_the_calls() -> None:
    world, called = World(), {(owner, method) for owner, method, _ in CALLS}
    operations = {
        (owner, name)
        for owner in {owner for owner, _ in called} - {"counts"}
        for name, method in inspect.getmembers(getattr(world, owner), inspect.ismethod)
        if not name.startswith("_") and inspect.signature(method).parameters
    }
    describing = {
        (owner, name) for owner, name in operations if owner != "topology" or name.startswith(("add_", "con"))
    }
    internal = {("grouped", "attach"), ("grouped", "repartitioned")}
    assert describing - called - internal == {("table", "suppress")}  # which is called for a table with windows
