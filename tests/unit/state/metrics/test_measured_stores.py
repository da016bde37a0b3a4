"""What a task says of its stores, whatever kind they are of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from streams_py.serdes import INT64, STRING
from streams_py.serdes.windowed import Windowed
from streams_py.state.custom.lru import lru_map
from streams_py.state.metrics.measured_stores import MeasuredStores, Measuring
from streams_py.state.opening.stores import StoreDefaults, open_store
from streams_py.topology.declare.nodes import RecordContext
from streams_py.topology.declare.stores import StoreBuilder, StoreKind, WindowRetention, key_value_store

WINDOWS = WindowRetention(60_000, 10, 60_000)


def declared(kind: StoreKind, **more: Any) -> StoreBuilder:
    return StoreBuilder("s", kind, STRING, INT64, persistent=False, **more)


def measured(builder: StoreBuilder, *, uses: bool = False) -> tuple[Any, MeasuredStores]:
    store = open_store(builder, application_id="app", context=RecordContext())
    stores = MeasuredStores({"s": builder}, Measuring(now_ms=lambda: 70, uses=uses))
    stores.watch("s", store)
    return store, stores


def metrics(stores: MeasuredStores, store: Any) -> Mapping[str, float]:
    [(_, _, found)] = stores.metrics({"s": store}, None, StoreDefaults(), 1)
    return found


def test_stores_in_memory_say_how_much_is_in_them() -> None:
    plain, of_plain = measured(declared(StoreKind.KEY_VALUE))
    plain.put("a", 1)
    plain.put("b", 1)
    plain.delete("b")
    windows, of_windows = measured(declared(StoreKind.WINDOW, windows=WINDOWS))
    sessions, of_sessions = measured(declared(StoreKind.SESSION, windows=WINDOWS))
    for at in (0, 10, 20):
        windows.put("a", 1, at)
        sessions.put(Windowed("a", at, at + 5), 1)
    found = [(of_plain, plain), (of_windows, windows), (of_sessions, sessions)]
    assert [metrics(*of) for of in found] == [{"num-open-iterators": 0, "num-keys": n} for n in (1, 3, 3)]


@pytest.mark.parametrize(
    "builder",
    [
        key_value_store("s", key=STRING, value=INT64, persistent=False, ttl=1_000),
        key_value_store("s", key=STRING, value=INT64, supplier=lru_map(3)),
    ],
    ids=["time to live", "own"],
)
def test_stores_that_would_have_to_count_do_not(builder: StoreBuilder) -> None:
    store, stores = measured(builder)
    store.put("a", 1)
    assert metrics(stores, store) == {"num-open-iterators": 0}


def test_store_that_closes_while_it_is_asked_has_no_number_of_keys() -> None:
    store, stores = measured(declared(StoreKind.KEY_VALUE))
    store.close()
    assert metrics(stores, store) == {"num-open-iterators": 0}


def test_stores_without_iterators_have_no_metrics_of_them() -> None:
    store, stores = measured(declared(StoreKind.VERSIONED_KEY_VALUE, history_ms=1_000), uses=True)
    store.put("a", 1, 5)
    assert [version.value for version in store.history("a")] == [1]
    assert metrics(stores, store).keys() >= {"put-rate"}
    assert not metrics(stores, store).keys() & {"num-open-iterators", "oldest-iterator-open-since-ms"}


@pytest.mark.parametrize("uses", [False, True], ids=["info", "debug"])
def test_oldest_iterator_is_told_of_with_debug_only(uses: bool) -> None:
    store, stores = measured(declared(StoreKind.KEY_VALUE), uses=uses)
    entries = store.all()
    found = metrics(stores, store)
    assert (found["num-open-iterators"], found.get("oldest-iterator-open-since-ms")) == (1, 70 if uses else None)
    del entries
    found = metrics(stores, store)
    assert (found["num-open-iterators"], found.get("oldest-iterator-open-since-ms")) == (0, 0 if uses else None)


def test_nothing_is_measured_when_nobody_wants_it() -> None:
    builder = declared(StoreKind.KEY_VALUE)
    store: Any = open_store(builder, application_id="app", context=RecordContext())
    stores = MeasuredStores({"s": builder}, None)
    stores.watch("s", store)
    assert (metrics(stores, store), store.iterators) == ({}, None)
