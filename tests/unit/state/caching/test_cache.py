"""Record caches over their budget: counted sizes, and the order of eviction.

``tests/unit/topology/test_evicting_caches.py`` compares whole programs with Kafka Streams.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from streams_py.serdes import INT64, JSON, STRING, list_of
from streams_py.state.caching.cache import RecordCache
from streams_py.state.caching.cached_timestamped import CachedTimestampedStore
from streams_py.state.opening.stores import open_store
from streams_py.state.stores.bytes_store import MemoryBytes
from streams_py.topology.declare.nodes import RecordContext
from streams_py.topology.declare.stores import StoreBuilder, StoreKind, WindowRetention
from tests.support.contract.store_kit import CACHED_SHAPES, CACHED_TIMESTAMPED, Kit, Shape, listen
from tests.support.waiting import PATIENCE_S


@pytest.mark.parametrize("shape", CACHED_SHAPES, ids=str)
def test_eviction_of_a_dirty_entry_flushes_all_dirty_entries_of_the_store(
    shape: Shape, make_kit: Callable[..., Kit]
) -> None:
    kit = make_kit(shape, cache_bytes=210)  # three entries
    forwarded = listen(kit)
    for key in "abc":
        kit.put(key, 1)
    assert forwarded == []
    kit.put("d", 1)
    assert [change[0] for change in forwarded] == ["a", "b", "c", "d"]
    assert 0 < kit.cache.used_bytes <= 210
    kit.put("e", 1)  # evicts a clean one
    assert len(forwarded) == 4
    for key in "abcde":
        assert kit.bare(kit.store.get(key)) == 1


def test_dirty_entry_that_is_evicted_is_flushed_before_those_that_were_written_earlier(
    make_kit: Callable[..., Kit],
) -> None:
    kit = make_kit(CACHED_TIMESTAMPED, cache_bytes=210)
    forwarded = listen(kit)
    for key in "abc":
        kit.put(key, 1)
    kit.store.get("a")  # used, but not written
    kit.put("d", 1)
    assert [change[0] for change in forwarded] == ["b", "a", "c", "d"]


def cached_keys(kit: Kit) -> set[Any]:
    """Return the keys that are in the cache. A read would show those below it too, and count as a use."""
    assert isinstance(kit.store, CachedTimestampedStore)
    return set(kit.store._entries)  # see above


def test_eviction_takes_the_least_recently_used_first(make_kit: Callable[..., Kit]) -> None:
    kit = make_kit(CACHED_TIMESTAMPED, cache_bytes=210)
    for key in "abcd":
        kit.put(key, 1)
    assert cached_keys(kit) == {"b", "c", "d"}
    kit.store.get("b")
    kit.put("e", 1)
    assert cached_keys(kit) == {"b", "d", "e"}
    list(kit.store.range("b", "c"))
    kit.put("f", 1)
    assert cached_keys(kit) == {"b", "e", "f"}


def test_entry_counts_as_many_bytes_as_in_kafka_streams(make_kit: Callable[..., Kit]) -> None:
    kit = make_kit(CACHED_TIMESTAMPED, value_serde=STRING)
    kit.context.topic = "topic"
    kit.put("\u00e9", "x\u00e9")  # 24 of a node, 1 flag, 20 of the context; 5, 2 and 8 + 3 bytes
    assert kit.cache.used_bytes == 63
    kit.store.flush_cache()
    assert kit.cache.used_bytes == 63
    kit.store.clear_cache()
    kit.store.get("\u00e9")  # read from below: no topic
    assert kit.cache.used_bytes == 58


@pytest.mark.parametrize("serde", [INT64, STRING], ids=lambda serde: serde.name)
def test_entry_counts_its_value_again_when_it_is_put_after_a_deletion(serde: Any, make_kit: Callable[..., Kit]) -> None:
    kit = make_kit(CACHED_TIMESTAMPED, value_serde=serde)
    value = 1 if serde is INT64 else "12345678"
    kit.put("a", value)
    counted = kit.cache.used_bytes
    kit.put("a", None)
    assert kit.cache.used_bytes == counted - 16
    kit.put("a", value)
    assert kit.cache.used_bytes == counted
    update = kit.store.updater(lambda: value, lambda _key, given, _value: given)
    for given, difference in ((value, 0), (None, -16), (value, 0)):
        update("a", given, 1)
        assert kit.cache.used_bytes == counted + difference


def test_growing_texts_are_counted_while_they_are_aggregated(make_kit: Callable[..., Kit]) -> None:
    kit = make_kit(CACHED_TIMESTAMPED, value_serde=STRING)
    kit.context.topic = "topic"
    update = kit.store.updater(lambda: "", lambda _key, given, _value: given)
    for text in ("abc", "a", "\u00e9\u00e9", "\u00e9", "abcdef", ""):
        update("k", text, 1)
        assert kit.cache.used_bytes == 24 + 1 + 20 + 5 + 1 + 8 + len(text.encode()), text


class Moving(dict[Any, Any]):
    """Entries of a cache. While ``key`` is moved to the end, the reader thread looks for it before it is put back."""

    def __init__(self, entries: dict[Any, Any], key: str, look: Callable[[], None]) -> None:
        super().__init__(entries)
        self.key, self.looked = key, threading.Event()
        self.reader = threading.Thread(target=look, daemon=True)

    def pop(self, key: Any, *default: Any) -> Any:
        found = super().pop(key, *default)
        if key == self.key and self.reader.ident is None:
            self.reader.start()
            assert self.looked.wait(PATIENCE_S)
        return found

    def get(self, key: Any, default: Any = None) -> Any:
        if key == self.key and key not in self:
            self.looked.set()
        return super().get(key, default)


def test_range_read_by_another_thread_has_every_key_while_one_is_moved(make_kit: Callable[..., Kit]) -> None:
    kit = make_kit(CACHED_TIMESTAMPED, cache_bytes=10_000)
    kit.put("a", 1)
    kit.put("b", 2)
    kit.store.flush_cache()
    kit.put("a", 3)
    seen: list[Any] = []
    # The other thread must read at one moment of the move.
    kit.store._entries = moving = Moving(kit.store._entries, "a", lambda: seen.extend(kit.store.all()))
    kit.store.flush_cache()
    moving.reader.join(PATIENCE_S)
    assert {key: value.value for key, value in seen} == {"a": 3, "b": 2}


def test_entry_is_read_by_other_threads_while_its_eviction_flushes_it(make_kit: Callable[..., Kit]) -> None:
    kit = make_kit(CACHED_TIMESTAMPED, cache_bytes=10_000)
    seen: list[Any] = []

    def look(*_: object) -> None:
        reader = threading.Thread(target=lambda: seen.append((kit.store.peek("b").value, dict(kit.store.all()))))
        reader.start()
        reader.join(PATIENCE_S)

    kit.store.set_flush_listener(look, send_old_values=False)
    kit.put("a", 1)
    kit.put("b", 2)
    kit.cache.max_bytes = 0
    kit.store.evict()
    assert [(b, {key: pair.value for key, pair in entries.items()}) for b, entries in seen] == [
        (2, {"a": 1, "b": 2}),
        (2, {"a": 1, "b": 2}),
    ]
    assert kit.cache.used_bytes == 0


def test_eviction_passes_over_an_entry_that_was_written_since_it_was_clean(make_kit: Callable[..., Kit]) -> None:
    kit = make_kit(CACHED_TIMESTAMPED, cache_bytes=210)
    forwarded = listen(kit)
    for key in "abc":
        kit.put(key, 1)
    kit.store.flush_cache()
    kit.put("a", 2)
    kit.put("d", 1)
    assert len(forwarded) == 3
    assert cached_keys(kit) == {"a", "c", "d"}


@pytest.mark.parametrize("shape", CACHED_SHAPES, ids=str)
def test_read_entries_count_and_are_evicted_without_a_flush(shape: Shape, make_kit: Callable[..., Kit]) -> None:
    kit = make_kit(shape, cache_bytes=250)
    kit.store.restore((f"{i}".encode(), i.to_bytes(8, "big"), i) for i in range(10))
    for i in range(10):
        assert kit.bare(kit.store.get(f"{i}")) == i
    assert 0 < kit.cache.used_bytes <= 250
    assert kit.logged == []


def two_stores(cache: RecordCache, logged: list[tuple[str, bytes]]) -> tuple[Any, Any]:
    """Two stores of one task that share a cache, and their log. Their names are "one" and "two"."""
    context = RecordContext()

    def store(name: str) -> Any:
        builder = StoreBuilder(name, StoreKind.TIMESTAMPED_KEY_VALUE, STRING, INT64, persistent=False, caching=True)
        return open_store(
            builder,
            application_id="app",
            context=context,
            cache=cache,
            log=lambda key, value, timestamp: logged.append((name, key)),
        )

    return store("one"), store("two")


def test_stores_share_the_budget_and_the_one_that_is_written_evicts() -> None:
    cache, logged = RecordCache(200), list[tuple[str, bytes]]()
    one, two = two_stores(cache, logged)
    one.put_value("a", 1, 1)
    one.put_value("b", 1, 1)
    two.put_value("c", 1, 1)
    two.put_value("d", 1, 1)
    assert logged == [("two", b"c"), ("two", b"d")]
    one.close()
    two.close()
    assert cache.used_bytes == 0


def test_next_write_evicts_down_to_a_smaller_budget(make_kit: Callable[..., Kit]) -> None:
    kit = make_kit(CACHED_TIMESTAMPED, cache_bytes=10_000)
    for i in range(50):
        kit.put(str(i), i)
    kit.cache.max_bytes = 500
    kit.put("50", 50)
    assert kit.cache.used_bytes <= 500
    assert len(kit.logged) == 51


@pytest.mark.parametrize("serde", [STRING, JSON, list_of(STRING)], ids=lambda serde: serde.name)
def test_growing_values_are_counted(serde: Any, make_kit: Callable[..., Kit]) -> None:
    for shape in CACHED_SHAPES:
        kit = make_kit(shape, value_serde=serde)
        kit.put("a", "x" if serde is not None and "list" not in serde.name else ["x"])
        small = kit.cache.used_bytes
        kit.put("a", "x" * 500 if "list" not in serde.name else ["x" * 500])
        assert kit.cache.used_bytes >= small + 499
        kit.store.clear_cache()
        assert kit.cache.used_bytes == 0


def test_headers_are_counted(make_kit: Callable[..., Kit]) -> None:
    kit = make_kit(CACHED_TIMESTAMPED)
    kit.context.headers = [("name", b"x" * 100), ("null", None)]
    kit.put("a", 1)
    with_headers = kit.cache.used_bytes
    kit.context.headers = ()
    kit.put("b", 1)
    assert with_headers - (kit.cache.used_bytes - with_headers) == 108


def test_no_cache_is_made_when_the_budget_is_zero() -> None:
    builder = StoreBuilder("s", StoreKind.TIMESTAMPED_KEY_VALUE, STRING, INT64, persistent=False, caching=True)
    store = open_store(builder, application_id="app", context=RecordContext(), cache=RecordCache(0))
    assert not store.is_cached


WINDOWS = StoreBuilder(
    "windows",
    StoreKind.TIMESTAMPED_WINDOW,
    STRING,
    INT64,
    caching=True,
    windows=WindowRetention.of(1000, 10, step_ms=10),
)
HELD_BACK = replace(WINDOWS, windows=WindowRetention.of(1000, 10, step_ms=10, holds_back=True))


def opened(builder: StoreBuilder, cache: RecordCache, flushed: list[bytes], *, on_disk: bool) -> Any:
    return open_store(
        builder,
        application_id="app",
        context=RecordContext(),
        cache=cache,
        log=lambda key, value, timestamp: flushed.append(key[:1]),
        disk=(lambda name: MemoryBytes()) if on_disk else None,
    )


@pytest.mark.parametrize(
    ("builder", "on_disk", "size"),
    [(WINDOWS, False, 82), (WINDOWS, True, 82), (HELD_BACK, False, 82), (HELD_BACK, True, 83)],
)
def test_windows_that_are_held_back_on_disk_count_the_first_byte_of_keys_in_the_order_of_time(
    builder: StoreBuilder, on_disk: bool, size: int
) -> None:
    cache = RecordCache(1000)
    store = opened(builder, cache, [], on_disk=on_disk)
    store.put_value("a", 1, 0, 0)
    store.put_value("b", 1, 10, 10)
    assert cache.used_bytes == 2 * size
    store.close()


@pytest.mark.parametrize(("builder", "first", "kept"), [(WINDOWS, b"a", b"cde"), (HELD_BACK, b"c", b"bde")])
def test_reading_windows_of_all_keys_counts_as_use_also_of_those_that_are_passed_over(
    builder: StoreBuilder, first: bytes, kept: bytes
) -> None:
    flushed: list[bytes] = []
    store = opened(builder, RecordCache(250), flushed, on_disk=builder is HELD_BACK)  # three entries
    for key, start in [("c", 30), ("b", 20), ("a", 10)]:
        store.put_value(key, 1, start, start)
    assert [(window.key, window.start) for window, _ in store.fetch_all(10, 10)] == [("a", 10)]
    # The entries are now used in time order. For stores that hold back windows, only one more entry was read: b.
    store.put_value("d", 1, 40, 40)
    store.put_value("e", 1, 50, 50)
    assert flushed[0] == first
    # A read would show the windows below the cache too.
    assert b"".join(sorted(at[8:9] for at, _ in store._cached.held_entries())) == kept
    store.close()
