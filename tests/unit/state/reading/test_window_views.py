"""Reading window and session stores from outside."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from streams_py.errors import InvalidStateStoreError
from streams_py.serdes import INT64, STRING, Windowed
from streams_py.state.caching.cache import RecordCache
from streams_py.state.opening.stores import open_store
from streams_py.state.reading.queryable import QueryableStoreType
from streams_py.state.reading.store_views import read_only
from streams_py.state.reading.window_views import ReadOnlySessionStore, ReadOnlyWindowStore
from streams_py.topology.declare.nodes import RecordContext
from streams_py.topology.declare.stores import StoreBuilder, ValueAndTimestamp, key_value_store
from streams_py.topology.declare.window_stores import session_store, timestamped_window_store, window_store


def opened(builder: StoreBuilder) -> Any:
    cache = RecordCache(1 << 20)
    return open_store(builder, application_id="app", context=RecordContext(), cache=cache)


def timestamped() -> Any:
    return opened(timestamped_window_store("s", retention=100, size=10, key=STRING, value=INT64, caching=True))


def windows(kind: QueryableStoreType, *stores: Any) -> ReadOnlyWindowStore[str, Any]:
    view = read_only("s", kind, lambda: list(stores))
    assert isinstance(view, ReadOnlyWindowStore)
    return view


def test_partitions_are_read_as_one_window_store() -> None:
    one, two = timestamped(), timestamped()
    one.put("a", ValueAndTimestamp(1, 5), 0)
    one.put("a", ValueAndTimestamp(2, 15), 10)
    one.flush_cache()
    one.put("c", ValueAndTimestamp(3, 15), 10)
    two.put("b", ValueAndTimestamp(4, 15), 10)
    view = windows(QueryableStoreType.WINDOW, one, two)
    assert [view.fetch("a", 0), view.fetch("b", 10), view.fetch("b", 0)] == [1, 4, None]
    assert list(view.fetch_between("a", 0, 10)) == [(0, 1), (10, 2)]
    assert list(view.fetch_between("a", 0, 10, reverse=True)) == [(10, 2), (0, 1)]
    assert [(key.key, value) for key, value in view.all()] == [("a", 1), ("a", 2), ("c", 3), ("b", 4)]
    assert [key.key for key, _ in view.fetch_keys("b", None, 0, 99)] == ["c", "b"]
    assert [key for key, _ in view.fetch_all(0, 9)] == [Windowed("a", 0, 10)]
    with_time = windows(QueryableStoreType.TIMESTAMPED_WINDOW, one, two)
    assert with_time.fetch("a", 10) == ValueAndTimestamp(2, 15)


def test_partitions_are_read_as_one_session_store() -> None:
    one, two = (opened(session_store("s", retention=100, key=STRING, value=INT64)) for _ in range(2))
    one.put(Windowed("a", 3, 7), 1)
    two.put(Windowed("b", 1, 9), 2)
    view = read_only("s", QueryableStoreType.SESSION, lambda: [one, two])
    assert isinstance(view, ReadOnlySessionStore)
    assert view.fetch_session("b", 1, 9) == 2
    assert list(view.fetch("a")) == [(Windowed("a", 3, 7), 1)]
    assert list(view.find_sessions("b", 10, 20)) == []
    assert [key.key for key, _ in view.all()] == ["a", "b"]
    assert [key.key for key, _ in view.fetch_keys("b", "z", reverse=True)] == ["b"]


@pytest.mark.parametrize(
    ("builder", "kind", "message"),
    [
        (key_value_store("s", key=STRING, value=INT64), QueryableStoreType.WINDOW, "not a window store"),
        (key_value_store("s", key=STRING, value=INT64), QueryableStoreType.SESSION, "not a session store"),
        (window_store("s", retention=10, size=5), QueryableStoreType.KEY_VALUE, "not a key-value store"),
        (window_store("s", retention=10, size=5), QueryableStoreType.TIMESTAMPED_WINDOW, "keeps no timestamps"),
        (session_store("s", retention=10), QueryableStoreType.WINDOW, "not a window store"),
    ],
)
def test_store_of_another_kind_is_refused_at_once(builder: StoreBuilder, kind: Any, message: str) -> None:
    store = opened(replace(builder, key_serde=STRING, value_serde=INT64))
    with pytest.raises(InvalidStateStoreError, match=message):
        read_only("s", kind, lambda: [store])


def test_store_that_is_elsewhere_is_refused() -> None:
    with pytest.raises(InvalidStateStoreError, match="not available on this instance"):
        read_only("s", QueryableStoreType.SESSION, list)


def test_closed_store_refuses() -> None:
    store = timestamped()
    view = windows(QueryableStoreType.WINDOW, store)
    store.close()
    for read in (lambda: view.fetch("a", 0), lambda: list(view.all()), lambda: view.fetch_between("a", 0, 1)):
        with pytest.raises(InvalidStateStoreError):
            read()
