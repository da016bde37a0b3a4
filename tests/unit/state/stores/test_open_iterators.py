"""Iterators over stores that were opened and have not ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from streams_py.serdes.windowed import Windowed
from streams_py.state.metrics.store_metrics import StoreMetrics
from streams_py.state.reading.queryable import QueryableStoreType
from streams_py.state.reading.store_views import ReadOnlyKeyValueStore
from streams_py.state.reading.window_views import ReadOnlySessionStore, ReadOnlyWindowStore
from streams_py.state.stores.open_iterators import OpenIterators
from streams_py.topology.declare.stores import StoreKind
from tests.support.contract.store_kit import SHAPES, Kit, Shape
from tests.support.contract.windowed_model import opened as windowed

MEMORY = Shape(StoreKind.KEY_VALUE, persistent=False, caching=False)

KEY_VALUE: dict[str, Callable[[Any], Iterator[Any]]] = {
    "range": lambda store: store.range("a", "c"),
    "reverse_range": lambda store: store.reverse_range("a", "c"),
    "all": lambda store: store.all(),
    "reverse_all": lambda store: store.reverse_all(),
    "prefix_scan": lambda store: store.prefix_scan(b""),
}
WINDOW: dict[str, Callable[[Any], Iterator[Any]]] = {
    "fetch_between": lambda store: store.fetch_between(b"k", 0, 20),
    "fetch_keys": lambda store: store.fetch_keys(None, None, 0, 20),
    "fetch_all": lambda store: store.fetch_all(0, 20, reverse=True),
    "all": lambda store: store.all(),
}
SESSION: dict[str, Callable[[Any], Iterator[Any]]] = {
    "find_sessions": lambda store: store.find_sessions(b"k", 0, 20, reverse=True),
    "fetch": lambda store: store.fetch(b"k"),
    "fetch_keys": lambda store: store.fetch_keys(None, None),
    "all": lambda store: store.all(),
}


class Clocks:
    """A wall clock in ms, and one in ns."""

    def __init__(self) -> None:
        self.ms, self.ns = 1_000, 5_000_000

    def now_ms(self) -> int:
        return self.ms

    def now_ns(self) -> int:
        return self.ns


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


def listed(store: Any, clocks: Clocks, *, measured: bool = False) -> StoreMetrics:
    store.iterators = OpenIterators(clocks.now_ms)
    metrics = StoreMetrics(clocks.now_ns)
    if measured:
        metrics.watch(store)
    return metrics


def check_each(store: Any, opens: dict[str, Callable[[Any], Iterator[Any]]], clocks: Clocks, *, entries: int) -> None:
    """Each is listed while somebody holds it and has not come to its end."""
    for name, open_one in opens.items():
        clocks.ms += 1
        entry = open_one(store)
        assert store.iterators.since_ms() == [clocks.ms], name
        next(entry)
        clocks.ms += 1
        other = open_one(store)
        assert sorted(store.iterators.since_ms()) == [clocks.ms - 1, clocks.ms], name
        assert len(list(other)) == entries, name
        assert store.iterators.since_ms() == [clocks.ms - 1], name  # the other one is neither closed nor dropped
        del entry
        assert store.iterators.since_ms() == [], name


@pytest.mark.parametrize("measured", [False, True], ids=["info", "debug"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_iterators_of_key_value_stores_are_listed_until_they_end(
    shape: Shape, measured: bool, make_kit: Callable[..., Kit], clocks: Clocks
) -> None:
    kit = make_kit(shape)
    for number, key in enumerate("abc"):
        kit.put(key, number)
    kit.store.flush_cache()
    kit.put("b", 7)
    listed(kit.store, clocks, measured=measured)
    check_each(kit.store, KEY_VALUE, clocks, entries=3)
    found = kit.store.under(b"")  # what operators ask for
    assert (kit.store.iterators.since_ms(), len(list(found))) == ([], 3)


@pytest.mark.parametrize("measured", [False, True], ids=["info", "debug"])
@pytest.mark.parametrize("persistent", [False, True], ids=["memory", "rocksdb"])
def test_iterators_of_window_stores_are_listed_until_they_end(persistent: bool, measured: bool, clocks: Clocks) -> None:
    with windowed(StoreKind.WINDOW, persistent) as kit:
        for start in (0, 10, 20):
            kit.store.put(b"k", start, start)
        listed(kit.store, clocks, measured=measured)
        check_each(kit.store, WINDOW, clocks, entries=3)
        found = kit.store.between(b"k", 0, 20)  # what operators ask for
        assert (kit.store.iterators.since_ms(), len(list(found))) == ([], 3)


@pytest.mark.parametrize("measured", [False, True], ids=["info", "debug"])
@pytest.mark.parametrize("persistent", [False, True], ids=["memory", "rocksdb"])
def test_iterators_of_session_stores_are_listed_until_they_end(
    persistent: bool, measured: bool, clocks: Clocks
) -> None:
    with windowed(StoreKind.SESSION, persistent) as kit:
        for start in (0, 10, 20):
            kit.store.put(Windowed(b"k", start, start + 1), start)
        listed(kit.store, clocks, measured=measured)
        check_each(kit.store, SESSION, clocks, entries=3)
        found = kit.store.sessions(b"k", 0, 20)  # what operators ask for
        assert (kit.store.iterators.since_ms(), len(list(found))) == ([], 3)


@pytest.mark.parametrize("measured", [False, True], ids=["info", "debug"])
def test_iterator_that_is_closed_or_fails_is_not_open_any_more(
    measured: bool, make_kit: Callable[..., Kit], clocks: Clocks
) -> None:
    kit = make_kit(MEMORY)
    kit.put("a", 1)
    kit.put("b", 2)
    listed(kit.store, clocks, measured=measured)
    closed: Any = kit.store.all()
    next(closed)
    unread: Any = kit.store.all()
    assert len(kit.store.iterators.since_ms()) == 2
    closed.close()
    unread.close()
    assert kit.store.iterators.since_ms() == []
    kit.store.content.write(b"ab", b"not 8 bytes")
    failing = kit.store.all()
    next(failing)
    with pytest.raises(Exception, match="cannot decode"):
        next(failing)
    assert kit.store.iterators.since_ms() == []


def test_iterators_of_views_are_those_of_each_partition(make_kit: Callable[..., Kit], clocks: Clocks) -> None:
    one, two = make_kit(MEMORY), make_kit(MEMORY)
    for kit in (one, two):
        kit.put("a", 1)
        listed(kit.store, clocks)
    view: ReadOnlyKeyValueStore[str, int] = ReadOnlyKeyValueStore(
        "s", QueryableStoreType.KEY_VALUE, lambda: [one.store, two.store]
    )
    entries = view.range(None, None)
    assert [one.store.iterators.since_ms(), two.store.iterators.since_ms()] == [[1_000], [1_000]]
    next(entries)
    next(entries)  # the first one has come to its end
    assert [one.store.iterators.since_ms(), two.store.iterators.since_ms()] == [[], [1_000]]
    del entries
    assert two.store.iterators.since_ms() == []


def test_iterators_of_windows_and_sessions_are_listed_when_views_open_them(clocks: Clocks) -> None:
    with windowed(StoreKind.WINDOW, False) as windows, windowed(StoreKind.SESSION, False) as sessions:
        windows.store.put(b"k", 1, 0)
        sessions.store.put(Windowed(b"k", 0, 5), 1)
        listed(windows.store, clocks)
        listed(sessions.store, clocks)
        of_windows: Any = ReadOnlyWindowStore("s", lambda: [windows.store], with_timestamps=False)
        of_sessions: Any = ReadOnlySessionStore("s", lambda: [sessions.store])
        held = [of_windows.fetch_between(b"k", 0, 9), of_sessions.find_sessions(b"k", 0, 9)]
        assert [len(of.store.iterators.since_ms()) for of in (windows, sessions)] == [1, 1]
        held.clear()
        assert [len(of.store.iterators.since_ms()) for of in (windows, sessions)] == [0, 0]


@pytest.mark.parametrize("end", ["end", "close", "drop", "unread"])
def test_duration_is_from_opening_until_the_end_however_it_ends(
    end: str, make_kit: Callable[..., Kit], clocks: Clocks
) -> None:
    kit = make_kit(MEMORY)
    kit.put("a", 1)
    kit.put("b", 2)
    metrics = listed(kit.store, clocks, measured=True)
    for took_ns in (100, 300):
        entries: Any = kit.store.all()
        if end != "unread":
            next(entries)
        clocks.ns += took_ns
        assert "iterator-duration-max" not in dict(metrics.metrics(1)) or took_ns == 300
        match end:
            case "end":
                assert len(list(entries)) == 1
            case "close":
                entries.close()
            case _:
                del entries
    found = dict(metrics.metrics(1))
    assert (found["iterator-duration-avg"], found["iterator-duration-max"]) == (200, 300)


def test_nothing_is_listed_when_nobody_asks(make_kit: Callable[..., Kit]) -> None:
    kit = make_kit(MEMORY)
    kit.put("a", 1)
    assert kit.store.iterators is None
    assert kit.pairs(kit.store.all()) == [("a", 1)]


def test_any_number_of_iterators_is_listed_and_forgotten(clocks: Clocks) -> None:
    iterators = OpenIterators(clocks.now_ms)
    held = [iterators.opened(iter([1, 2])) for _ in range(1_000)]
    assert len(iterators.since_ms()) == 1_000
    del held[::2]
    assert len(iterators.since_ms()) == len(iterators._opened) == 500  # nothing else is kept for them
