"""One topology per kind of state store, equal to those in StateWorker.java, and records for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from streams_py import (
    EmitStrategy,
    KStream,
    KTable,
    StreamsBuilder,
    Topology,
    ValueAndTimestamp,
    Windowed,
    lru_map,
    serdes,
    session_store,
    timestamped_window_store,
    window_store,
)
from streams_py.topology.declare.processor import Processor, Record
from streams_py.topology.declare.stores import key_value_store, timestamped_key_value_store
from streams_py.topology.declare.windows import JoinWindows, SessionWindows, SlidingWindows, TimeWindows
from streams_py.topology.dsl.options import Materialized
from streams_py.topology.dsl.suppressed import Suppressed

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


def plain_in_memory(builder: StreamsBuilder, left: str, right: str) -> KStream[Any, Any]:
    builder.add_state_store(key_value_store("store", key=TEXT, value=TEXT, persistent=False))
    return builder.stream(left).process(Joining, stores="store")


class JoiningBefore(Joining):
    """Rows with their own timestamp, one millisecond before the record's. Values that begin with an s delete rows."""

    def process(self, record: Record[str, str]) -> None:
        row: ValueAndTimestamp[str] | None = self._store.get(record.key)
        now = record.value if row is None else join(row.value, record.value)
        deletes = record.value.startswith("s")
        self._store.put(record.key, None if deletes else ValueAndTimestamp(now, record.timestamp - 1))
        self._context.forward(record.with_value(f"{now} after {row.timestamp % 1_000 if row else 'none'}"))


def timestamped_by_processor(builder: StreamsBuilder, left: str, right: str) -> KStream[Any, Any]:
    builder.add_state_store(timestamped_key_value_store("store", key=TEXT, value=TEXT))
    return builder.stream(left).process(JoiningBefore, stores="store")


class RememberingTimed(Remembering):
    def remembered(self, store: Any, key: str, at: int) -> list[str]:
        found = store.fetch_between(key, at - 10, at)
        return [f"{row.value}{row.timestamp % 1_000}" for _, row in found]

    def remember(self, store: Any, key: str, value: str, at: int) -> None:
        store.put(key, ValueAndTimestamp(value, at - 1), at - at % 5)


def timestamped_window(builder: StreamsBuilder, left: str, right: str) -> KStream[Any, Any]:
    store = timestamped_window_store("store", retention=86_400_000, size=5, key=TEXT, value=TEXT, persistent=False)
    builder.add_state_store(store)
    return builder.stream(left).process(RememberingTimed, stores="store")


class RememberingTwice(Remembering):
    def remember(self, store: Any, key: str, value: str, at: int) -> None:
        store.put(key, value[:4], at)
        store.put(key, value[:3] + "'", at)


def duplicates(builder: StreamsBuilder, left: str, right: str) -> KStream[Any, Any]:
    store = window_store("store", retention=86_400_000, size=5, key=TEXT, value=TEXT, keep_duplicates=True)
    builder.add_state_store(store)
    return builder.stream(left).process(RememberingTwice, stores="store")


def inner_join(builder: StreamsBuilder, left: str, right: str) -> KStream[Any, Any]:
    windows = JoinWindows.of(10, grace=5)
    other = builder.stream(right)
    return builder.stream(left).join(other, pair, windows, key=TEXT, value=TEXT, other_value=TEXT)


def join_in_memory(builder: StreamsBuilder, left: str, right: str) -> KStream[Any, Any]:
    windows, other = JoinWindows.of(10, grace=5), builder.stream(right)
    return builder.stream(left).outer_join(
        other, pair, windows, key=TEXT, value=TEXT, other_value=TEXT, persistent=False
    )


def join_buffer(builder: StreamsBuilder, left: str, right: str) -> KStream[Any, Any]:
    versions = builder.table(right, materialized=Materialized("store", key=TEXT, value=TEXT, history=1000))
    return builder.stream(left).join(versions, pair, key=TEXT, value=TEXT, grace=6, name="buffered")


def source_changelog(builder: StreamsBuilder, left: str, right: str) -> KStream[Any, Any]:
    rows = builder.table(right, store="store")
    return builder.stream(left).left_join(rows, pair)


class Keeping(Processor[str, str, None, None]):
    def init(self, context: Any) -> None:
        self._store = context.get_state_store("store")

    def process(self, record: Record[str, str]) -> None:
        self._store.put(record.key, record.value)


class Looking(Joining):
    def process(self, record: Record[str, str]) -> None:
        self._context.forward(record.with_value(pair(record.value, self._store.get(record.key))))


def read_only(builder: StreamsBuilder, left: str, right: str) -> KStream[Any, Any]:
    return builder.stream(left).process(Looking, name="looking")


def add_read_only(topology: Topology, right: str) -> None:
    """Add nodes that the builder does not support."""
    store = key_value_store("store", key=TEXT, value=TEXT, logging=False)
    topology.add_read_only_state_store(store, "rows", right, "keeping", Keeping, key=TEXT, value=TEXT)
    topology.connect_processor_and_state_stores("looking", "store")


def grouped_table(builder: StreamsBuilder, left: str, right: str) -> KStream[Any, Any]:
    table = builder.table(left, store="rows")
    grouped = table.group_by(lambda key, value: (value[:1], value), key=TEXT, value=TEXT)
    reduced: KTable[Any, Any] = grouped.reduce(join, lambda before, value: join(before, "-"), store="store")
    return reduced.to_stream()


def table_in_memory(builder: StreamsBuilder, left: str, right: str) -> KStream[Any, Any]:
    kept: Materialized[Any, Any] = Materialized("store", persistent=False)
    return builder.stream(left).group_by_key().reduce(join, materialized=kept).to_stream()


def timestamped(builder: StreamsBuilder, left: str, right: str) -> KStream[Any, Any]:
    return builder.stream(left).group_by_key().reduce(join, store="store").to_stream()


def windowed(windows: Any, *, in_memory: bool = False) -> Callable[[StreamsBuilder, str, str], KStream[Any, Any]]:
    memory: Materialized[Any, Any] = Materialized("store", persistent=False, retention=60_000)

    def describe(builder: StreamsBuilder, left: str, right: str) -> KStream[Any, Any]:
        grouped = builder.stream(left).group_by_key().windowed_by(windows)
        reduced: KTable[Any, Any] = grouped.reduce(join, materialized=memory if in_memory else None)
        return reduced.to_stream(show)

    return describe


def suppress(builder: StreamsBuilder, left: str, right: str) -> KStream[Any, Any]:
    joined = builder.stream(left).group_by_key().windowed_by(TimeWindows.of(10, grace=5)).reduce(join)
    return joined.suppress(Suppressed.until_window_closes()).to_stream(show)


def final(windows: Any) -> Callable[[StreamsBuilder, str, str], KStream[Any, Any]]:
    def describe(builder: StreamsBuilder, left: str, right: str) -> KStream[Any, Any]:
        grouped = builder.stream(left).group_by_key().windowed_by(windows, emit=EmitStrategy.ON_WINDOW_CLOSE)
        reduced: KTable[Any, Any] = grouped.reduce(join, materialized=Materialized("store", retention=60_000))
        return reduced.to_stream(show)

    return describe


def time_limit(builder: StreamsBuilder, left: str, right: str) -> KStream[Any, Any]:
    table = builder.stream(left).group_by_key().reduce(join, store="store")
    return table.suppress(Suppressed.until_time_limit(10)).to_stream()


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
    | {"lru", "grouped table", "plain in memory", "timestamped by processor", "timestamped window", "duplicates"}
    | {"table in memory", "window in memory", "sliding in memory", "session in memory", "final", "final session"}
    | {"time limit"}
)
"""Programs that read only the left topic, or read the right one into a global table."""

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
    "plain in memory": plain_in_memory,
    "table in memory": table_in_memory,
    "window in memory": windowed(TimeWindows.of(10, advance=5, grace=20), in_memory=True),
    "sliding in memory": windowed(SlidingWindows.of(10, grace=20), in_memory=True),
    "session in memory": windowed(SessionWindows.of(10, grace=20), in_memory=True),
    "join in memory": join_in_memory,
    "timestamped by processor": timestamped_by_processor,
    "timestamped window": timestamped_window,
    "duplicates": duplicates,
    "time limit": time_limit,
    "final": final(TimeWindows.of(10, grace=20)),
    "final session": final(SessionWindows.of(10, grace=20)),
    "join buffer": join_buffer,
    "source changelog": source_changelog,
    "read-only": read_only,
}


class Input(NamedTuple):
    side: int
    key: str
    value: str
    at: int


def portions(program: str) -> list[list[Input]]:
    """Return three portions of input. Windows, sessions and versions start in one portion and continue in the next."""
    if program in ("foreign key", "global"):
        return [
            [Input(1, "x", f"X{n}", base), Input(1, "y", f"Y{n}", base + 1), Input(0, f"a{n}", f"x{n}", base + 2),
             Input(0, "b", f"{'xy'[n % 2]}{n}", base + 3), Input(0, "c", f"y{n}", base + 4)]
            for n, base in enumerate((100, 200, 300))
        ]  # fmt: skip
    if program == "time limit":  # no key is sent on and held back again within a portion: Java restores that otherwise
        return [
            [Input(0, "a", "p0", 100), Input(0, "b", "q0", 106), Input(0, "a", "r0", 108)],
            [Input(0, "c", "t1", 113), Input(0, "b", "q1", 114)],
            [Input(0, "a", "p2", 120), Input(0, "c", "t2", 125), Input(0, "z", "end", 900)],
        ]
    if program in ("source changelog", "read-only"):
        return [
            [Input(1, "a", f"A{n}", base), Input(1, f"k{n}", f"K{n}", base + 1), Input(0, "a", f"l{n}", base + 2),
             Input(0, "k0", f"m{n}", base + 3), Input(0, "k1", f"o{n}", base + 4)]
            for n, base in enumerate((100, 200, 300))
        ]  # fmt: skip
    if program in ("outer join", "inner join", "join in memory", "versioned", "join buffer"):
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
