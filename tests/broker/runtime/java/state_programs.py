"""One topology per kind of state store: those of StateWorker.java, and records for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from streams_py import KStream, KTable, StreamsBuilder, Windowed, lru_map, serdes, session_store, window_store
from streams_py.topology.dsl.options import Materialized
from streams_py.topology.dsl.suppressed import Suppressed
from streams_py.topology.processor import Processor, Record
from streams_py.topology.stores import key_value_store
from streams_py.topology.windows import JoinWindows, SessionWindows, SlidingWindows, TimeWindows

TEXT = serdes.STRING


def join(before: str, value: str) -> str:
    return (before + value)[-12:]


def pair(left: str | None, right: str | None) -> str:
    return "&".join("null" if value is None else value for value in (left, right))


def show(windowed: Any, _value: Any) -> str:
    return f"{windowed.key}@{windowed.start}-{windowed.end}"


class Joining(Processor[str, str, str, str]):
    def init(self, context: Any) -> None:
        self._context = context
        self._store = context.get_state_store("store")

    def process(self, record: Record[str, str]) -> None:
        before = self._store.get(record.key)
        now = record.value if before is None else join(before, record.value)
        self._store.put(record.key, now)
        self._context.forward(record.with_value(now))


def plain(builder: StreamsBuilder, left: str, right: str) -> KStream[Any, Any]:
    builder.add_state_store(key_value_store("store", key=TEXT, value=TEXT))
    return builder.stream(left).process(Joining, stores="store")


class Remembering(Processor[str, str, str, str]):
    """Texts of windows, or of sessions that reach up to ten ms back, in a plain store; one record each."""

    def init(self, context: Any) -> None:
        self._context = context
        self._store = context.get_state_store("store")

    def process(self, record: Record[str, str]) -> None:
        now = record.value + "".join(self.remembered(self._store, record.key, record.timestamp))
        self.remember(self._store, record.key, now[:9], record.timestamp)
        self._context.forward(record.with_value(now))

    def remembered(self, store: Any, key: str, at: int) -> list[str]:
        return [value for _, value in store.fetch_between(key, at - 10, at)]

    def remember(self, store: Any, key: str, value: str, at: int) -> None:
        store.put(key, value, at - at % 5)


class RememberingSessions(Remembering):
    def remembered(self, store: Any, key: str, at: int) -> list[str]:
        return [value for _, value in store.find_sessions(key, at - 10, at)]

    def remember(self, store: Any, key: str, value: str, at: int) -> None:
        store.put(Windowed(key, at - at % 5, at), value)


def plain_window(builder: StreamsBuilder, left: str, right: str) -> KStream[Any, Any]:
    builder.add_state_store(window_store("store", retention=86_400_000, size=5, key=TEXT, value=TEXT))
    return builder.stream(left).process(Remembering, stores="store")


def plain_session(builder: StreamsBuilder, left: str, right: str) -> KStream[Any, Any]:
    builder.add_state_store(session_store("store", retention=86_400_000, key=TEXT, value=TEXT))
    return builder.stream(left).process(RememberingSessions, stores="store")


def lru(builder: StreamsBuilder, left: str, right: str) -> KStream[Any, Any]:
    builder.add_state_store(key_value_store("store", key=TEXT, value=TEXT, supplier=lru_map(2)))
    return builder.stream(left).process(Joining, stores="store")


def inner_join(builder: StreamsBuilder, left: str, right: str) -> KStream[Any, Any]:
    windows = JoinWindows.of(10, grace=5)
    other = builder.stream(right)
    return builder.stream(left).join(other, pair, windows, key=TEXT, value=TEXT, other_value=TEXT)


def grouped_table(builder: StreamsBuilder, left: str, right: str) -> KStream[Any, Any]:
    table = builder.table(left, store="rows")
    grouped = table.group_by(lambda key, value: (value[:1], value), key=TEXT, value=TEXT)
    reduced: KTable[Any, Any] = grouped.reduce(join, lambda before, value: join(before, "-"), store="store")
    return reduced.to_stream()


def timestamped(builder: StreamsBuilder, left: str, right: str) -> KStream[Any, Any]:
    return builder.stream(left).group_by_key().reduce(join, store="store").to_stream()


def windowed(windows: Any) -> Callable[[StreamsBuilder, str, str], KStream[Any, Any]]:
    def describe(builder: StreamsBuilder, left: str, right: str) -> KStream[Any, Any]:
        return builder.stream(left).group_by_key().windowed_by(windows).reduce(join).to_stream(show)

    return describe


def suppress(builder: StreamsBuilder, left: str, right: str) -> KStream[Any, Any]:
    joined = builder.stream(left).group_by_key().windowed_by(TimeWindows.of(10, grace=5)).reduce(join)
    return joined.suppress(Suppressed.until_window_closes()).to_stream(show)


def outer_join(builder: StreamsBuilder, left: str, right: str) -> KStream[Any, Any]:
    windows = JoinWindows.of(10, grace=5)
    other = builder.stream(right)
    return builder.stream(left).outer_join(other, pair, windows, key=TEXT, value=TEXT, other_value=TEXT)


def versioned(builder: StreamsBuilder, left: str, right: str) -> KStream[Any, Any]:
    versions = builder.table(right, materialized=Materialized("store", key=TEXT, value=TEXT, history=1000))
    return builder.stream(left).join(versions, pair)


def foreign_key(builder: StreamsBuilder, left: str, right: str) -> KStream[Any, Any]:
    return builder.table(left).join(builder.table(right), pair, on=lambda key, value: value[:1]).to_stream()


def global_table(builder: StreamsBuilder, left: str, right: str) -> KStream[Any, Any]:
    return builder.stream(left).join(builder.global_table(right), pair, on=lambda key, value: value[:1])


ONE_SIDED = frozenset(
    {"plain", "timestamped", "window", "sliding", "session", "suppress", "global", "plain window", "plain session"}
    | {"lru", "grouped table"}
)
"""Those that read the left topic only, or the right one into a global table."""

PROGRAMS: dict[str, Callable[[StreamsBuilder, str, str], KStream[Any, Any]]] = {
    "plain": plain,
    "timestamped": timestamped,
    "window": windowed(TimeWindows.of(10, grace=20)),
    "sliding": windowed(SlidingWindows.of(10, grace=20)),
    "session": windowed(SessionWindows.of(10, grace=20)),
    "suppress": suppress,
    "outer join": outer_join,
    "versioned": versioned,
    "foreign key": foreign_key,
    "global": global_table,
    "plain window": plain_window,
    "plain session": plain_session,
    "lru": lru,
    "inner join": inner_join,
    "grouped table": grouped_table,
}


class Input(NamedTuple):
    side: int
    key: str
    value: str
    at: int


def portions(program: str) -> list[list[Input]]:
    """Three portions that belong together: windows, sessions and versions begin in one and go on in the next."""
    if program in ("foreign key", "global"):
        return [
            [Input(1, "x", f"X{n}", base), Input(1, "y", f"Y{n}", base + 1), Input(0, f"a{n}", f"x{n}", base + 2),
             Input(0, "b", f"{'xy'[n % 2]}{n}", base + 3), Input(0, "c", f"y{n}", base + 4)]
            for n, base in enumerate((100, 200, 300))
        ]  # fmt: skip
    if program in ("outer join", "inner join", "versioned"):
        return [
            [Input(1, "a", f"A{n}", base), Input(0, "a", f"l{n}", base + 2), Input(0, "b", f"m{n}", base + 3),
             Input(1, "b", f"B{n}", base + 7), Input(0, "a", f"n{n}", base + 8), Input(0, "c", f"o{n}", base + 9)]
            for n, base in enumerate((100, 111, 122))
        ] + [[Input(1, "z", "Z", 900), Input(0, "z", "end", 901)]]  # fmt: skip
    return [
        [Input(0, "a", f"p{n}", base), Input(0, "b", f"q{n}", base + 3), Input(0, "a", f"r{n}", base + 8),
         Input(0, "a", f"s{n}", base - 4), Input(0, "c", f"t{n}", base + 9)]
        for n, base in enumerate((100, 113, 126))
    ] + [[Input(0, "z", "end", 900)]]  # fmt: skip
