"""What is measured of single stores."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streams_py.serdes import INT64, STRING
from streams_py.state.caching.cache import RecordCache
from streams_py.state.disk.database import RocksMemory, TaskDatabase
from streams_py.state.disk.properties import PROPERTIES
from streams_py.state.metrics.store_metrics import StoreMetrics, state_tag
from streams_py.state.opening.stores import open_store
from streams_py.topology.declare.nodes import RecordContext
from streams_py.topology.declare.stores import StoreBuilder, StoreKind, ValueAndTimestamp

MEMORY = RocksMemory(block_cache_bytes=1 << 20, write_buffer_bytes=1 << 20)
PLAIN = StoreBuilder("s", StoreKind.KEY_VALUE, STRING, INT64)
STAMPED = StoreBuilder("s", StoreKind.TIMESTAMPED_KEY_VALUE, STRING, INT64)
CACHED = StoreBuilder("s", StoreKind.TIMESTAMPED_KEY_VALUE, STRING, INT64, caching=True)


def watched(builder: StoreBuilder, now_ms: Callable[[], int] | None = None) -> tuple[Any, StoreMetrics]:
    metrics, store = StoreMetrics(now_ms=now_ms), open_store(builder, application_id="app", context=RecordContext())
    metrics.watch(store)
    return store, metrics


def test_method_that_calls_others_counts_once() -> None:
    store, metrics = watched(PLAIN)
    store.put_all([("a", 1), ("b", 2)])
    assert store.delete("a") == 1
    assert store.put_if_absent("b", 7) == 2
    assert list(store.all()) == [("b", 2)]
    rates = {name: of for name, of in metrics.metrics(2) if name.endswith("-rate")}
    assert rates == {"put-all-rate": 0.5, "delete-rate": 0.5, "put-if-absent-rate": 0.5, "all-rate": 0.5}


def test_aggregation_counts_as_one_put_and_does_what_it_did() -> None:
    store, metrics = watched(STAMPED)
    update = store.updater(lambda: 0, lambda key, value, old: old + value)
    assert update("k", 5, 10) == (5, 0, 10)
    assert update("k", 2, 7) == (7, 5, 10)
    assert store.get_parts("k") == (7, 10)
    assert {name: of for name, of in metrics.metrics(1) if name.endswith("-rate")} == {"put-rate": 2, "get-rate": 1}


def test_put_says_how_old_the_record_in_process_is_with_trace_only() -> None:
    now_ms = 10_000
    store, metrics = watched(PLAIN, lambda: now_ms)
    of_age = [f"record-e2e-latency-{of}" for of in ("avg", "min", "max")]
    store.put("before the first record", 0)
    assert not set(of_age) & dict(metrics.metrics(1)).keys()
    for timestamp_ms in (9_700, 9_900):
        metrics.record.timestamp = timestamp_ms
        store.put("a", 1)
    metrics.record.timestamp = 0  # Kafka Streams does not look at these
    store.put_all([("b", 2)])
    assert (store.delete("a"), store.get("b")) == (1, 2)
    found = dict(metrics.metrics(1))
    assert [found[name] for name in of_age] == [200, 100, 300]
    metrics.record.timestamp = 9_950
    assert store.put_if_absent("c", 3) is None
    assert dict(metrics.metrics(1))["record-e2e-latency-min"] == 50
    now_ms += 120_000
    assert not set(of_age) & dict(metrics.metrics(1)).keys()
    other, quiet = watched(PLAIN)
    quiet.record.timestamp = 1
    other.put("a", 1)
    assert not set(of_age) & dict(quiet.metrics(1)).keys()


def test_aggregation_says_how_old_its_record_is_once() -> None:
    store, metrics = watched(STAMPED, lambda: 500)
    metrics.record.timestamp = 100
    update = store.updater(lambda: 0, lambda key, value, old: old + value)
    assert update("k", 5, 100) == (5, 0, 100)
    metrics.record.timestamp = 300
    store.put_value("k", 7, 300)
    assert dict(metrics.metrics(1))["record-e2e-latency-avg"] == 300


def test_call_that_fails_is_counted_and_the_next_one_too() -> None:
    store, metrics = watched(PLAIN)
    for _ in range(2):
        with pytest.raises(Exception, match="str"):
            store.get(1)
    assert dict(metrics.metrics(1))["get-rate"] == 2


@pytest.mark.parametrize("is_closed", [False, True], ids=["open", "closed"])
def test_store_on_disk_says_what_rocksdb_says(tmp_path: Path, is_closed: bool) -> None:
    database = TaskDatabase(str(tmp_path), ["s"], memory=MEMORY)
    store = database.store("s")
    assert database.properties("other") == {}
    store.write_batch([b"%d" % n for n in range(10)], [b"v"] * 10)
    database.commit({})
    found = database.properties("s")
    assert found.keys() == set(PROPERTIES)
    assert found["num-entries-active-mem-table"] == 10
    if is_closed:
        database.close()
        assert database.properties("s") == {}
    else:
        store.clear()
        assert database.properties("s")["num-entries-active-mem-table"] == 0
        database.close()


@pytest.mark.parametrize(
    ("kind", "persistent", "tag"),
    [
        (StoreKind.KEY_VALUE, True, "rocksdb-state-id"),
        (StoreKind.TIMESTAMPED_KEY_VALUE, False, "in-memory-state-id"),
        (StoreKind.SUPPRESSION, False, "in-memory-suppression-state-id"),
    ],
    ids=["disk", "memory", "suppression"],
)
def test_tag_is_kafkas_scope_of_the_store(kind: StoreKind, persistent: bool, tag: str) -> None:
    assert state_tag(StoreBuilder("s", kind, STRING, INT64), persistent=persistent) == tag


def test_hit_ratios_are_those_of_the_last_minute() -> None:
    now_ns = 0

    def ratios() -> list[float]:
        return [metrics.hit_ratios[f"hit-ratio-{of}"] for of in ("avg", "min", "max")]

    metrics = StoreMetrics(lambda: now_ns)
    cached: Any = open_store(CACHED, application_id="app", context=RecordContext(), cache=RecordCache(1 << 20))
    metrics.watch(cached)
    assert ratios() == [0, 0, 0]
    for key in ("missing", "k"):
        assert cached.get(key) is None
    cached.put("k", ValueAndTimestamp(1, 0))
    assert cached.get("k") == (1, 0)
    assert ratios() == [pytest.approx(1 / 3), 0, pytest.approx(1 / 3)]
    now_ns = 70_000_000_000
    assert ratios() == [pytest.approx(1 / 3)] * 3
    assert cached.get("k") == (1, 0)
    assert ratios() == [0.5] * 3
