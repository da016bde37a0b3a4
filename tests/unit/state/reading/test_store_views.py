"""Reading stores from outside, and while the owner writes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from streams_py.errors import InvalidStateStoreError
from streams_py.state.opening.stores import Store
from streams_py.state.reading.queryable import QueryableStoreType
from streams_py.state.reading.store_views import ReadOnlyKeyValueStore
from streams_py.state.stores.bytes_store import MemoryBytes, after_prefix
from streams_py.topology.declare.stores import StoreKind, ValueAndTimestamp
from tests.support.background import in_background
from tests.support.contract.store_kit import SHAPES, Kit, Shape

PLAIN = Shape(StoreKind.KEY_VALUE, persistent=False, caching=False)
TIMESTAMPED = Shape(StoreKind.TIMESTAMPED_KEY_VALUE, persistent=False, caching=False)


def face(*kits: Kit, kind: QueryableStoreType = QueryableStoreType.KEY_VALUE) -> ReadOnlyKeyValueStore[str, Any]:
    stores: Sequence[Store] = [kit.store for kit in kits]
    return ReadOnlyKeyValueStore("s", kind, lambda: stores)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_all_partitions_are_read_as_one_store(shape: Shape, make_kit: Callable[..., Kit]) -> None:
    one, two = make_kit(shape), make_kit(shape)
    one.put("a", 1)
    one.put("c", 3)
    one.store.flush_cache()
    two.put("b", 2)
    two.put("ab", 4)
    store = face(one, two)
    assert [store.get(key) for key in ("a", "b", "c", "x")] == [1, 2, 3, None]
    assert list(store.all()) == [("a", 1), ("c", 3), ("ab", 4), ("b", 2)]
    assert list(store.reverse_all()) == [("c", 3), ("a", 1), ("b", 2), ("ab", 4)]
    assert list(store.range("b", None)) == [("c", 3), ("b", 2)]
    assert list(store.reverse_range(None, "b")) == [("a", 1), ("b", 2), ("ab", 4)]
    assert list(store.prefix_scan(b"a")) == [("a", 1), ("ab", 4)]
    two.store.flush_cache()
    assert store.approximate_num_entries() == 4


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_face_is_a_mapping_of_all_partitions(shape: Shape, make_kit: Callable[..., Kit]) -> None:
    one, two = make_kit(shape), make_kit(shape)
    store = face(one, two)
    assert not store
    one.put("a", 1)
    two.put("b", 2)
    assert store
    assert (store["b"], store.get("x", 0), "a" in store, "x" in store, len(store)) == (2, 0, True, False, 2)
    assert (list(store), list(store.keys()), list(store.values())) == (["a", "b"], ["a", "b"], [1, 2])
    assert list(store.items()) == [("a", 1), ("b", 2)]
    assert store == dict(store) == {"a": 1, "b": 2}
    with pytest.raises(KeyError, match="store 's' has no key 'x'"):
        store["x"]


def test_mapping_never_calls_a_store_that_moved_empty(make_kit: Callable[..., Kit]) -> None:
    kit = make_kit(TIMESTAMPED)
    here: list[Store] = [kit.store]
    store: ReadOnlyKeyValueStore[str, Any] = ReadOnlyKeyValueStore("s", QueryableStoreType.KEY_VALUE, lambda: here)
    here.clear()
    for read in (lambda: store["a"], lambda: "a" in store, lambda: len(store), lambda: bool(store), lambda: [*store]):
        with pytest.raises(InvalidStateStoreError, match="moved"):
            read()


def test_timestamps_are_shown_when_asked_for(make_kit: Callable[..., Kit]) -> None:
    kit = make_kit(TIMESTAMPED)
    kit.put("a", 1, 10)
    store = face(kit, kind=QueryableStoreType.TIMESTAMPED_KEY_VALUE)
    assert store.get("a") == ValueAndTimestamp(1, 10)
    assert list(store.all()) == [("a", ValueAndTimestamp(1, 10))]


def test_plain_store_is_refused_when_timestamps_are_asked_for(make_kit: Callable[..., Kit]) -> None:
    with pytest.raises(InvalidStateStoreError, match="no timestamps"):
        face(make_kit(PLAIN), kind=QueryableStoreType.TIMESTAMPED_KEY_VALUE)


def test_store_that_is_not_here_is_said_to_be_elsewhere() -> None:
    with pytest.raises(InvalidStateStoreError, match="moved"):
        face()


def test_face_fails_when_the_stores_were_closed(make_kit: Callable[..., Kit]) -> None:
    kit = make_kit(TIMESTAMPED)
    store = face(kit)
    kit.close()
    for read in (lambda: store.get("a"), store.all, store.approximate_num_entries):
        with pytest.raises(InvalidStateStoreError, match="closed"):
            read()


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape.logging], ids=str)
def test_readers_never_fail_nor_go_back_in_time_while_the_owner_writes(
    shape: Shape, make_kit: Callable[..., Kit]
) -> None:
    """Counters only grow; readers on other threads must see them grow, whatever is flushed or evicted meanwhile."""
    kit = make_kit(shape, cache_bytes=1500)
    keys = [f"{i:02}" for i in range(30)]
    for key in keys:
        kit.put(key, 0)
    problems: list[str] = []
    store = face(kit)

    def read(ended: threading.Event) -> None:
        seen = dict.fromkeys(keys, 0)
        while not ended.is_set():
            for key in keys:
                note(seen, key, store.get(key))
            entries = list(store.all())
            if [key for key, _ in entries] != keys:
                problems.append(f"scan of {len(entries)} keys")
            for key, value in entries:
                note(seen, key, value)

    def note(seen: dict[str, int], key: str, value: int | None) -> None:
        if value is None or value < seen[key]:
            problems.append(f"{key}: {value} after {seen[key]}")
        else:
            seen[key] = value

    with in_background(read, threads=2):
        for n in range(1, 150):
            for key in keys:
                kit.put(key, n)
            if n % 7 == 0:
                kit.store.flush_cache()
    assert problems == []


def test_memory_scan_is_right_after_many_additions_and_removals() -> None:
    content = MemoryBytes()
    model: dict[bytes, bytes] = {}
    for i in range(3000):
        key = str(i * 7919 % 500).encode()
        if i % 3 == 0:
            content.remove(key)
            model.pop(key, None)
        else:
            content.write(key, b"%d" % i)
            model[key] = b"%d" % i
        if i % 50 == 0:
            assert list(content.scan(None, None)) == sorted(model.items())
    for key in list(model)[5:]:
        content.remove(key)
        del model[key]
    assert list(content.scan(None, None, reverse=True)) == sorted(model.items(), reverse=True)
    assert content.approximate_count() == len(model)


@pytest.mark.parametrize(
    ("prefix", "after"), [(b"a", b"b"), (b"a\xff", b"b"), (b"\xff\xff", None), (b"", None), (b"\x00", b"\x01")]
)
def test_after_prefix_is_the_first_key_without_it(prefix: bytes, after: bytes | None) -> None:
    assert after_prefix(prefix) == after
