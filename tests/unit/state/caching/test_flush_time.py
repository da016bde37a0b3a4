"""How long a flush of the record caches is thought to take."""

from __future__ import annotations

from typing import Any

import pytest

from streams_py.errors import BrokerUnavailableError
from streams_py.serdes import INT64, STRING
from streams_py.state.caching.cache import RecordCache
from streams_py.state.opening.stores import open_store
from streams_py.topology.declare.nodes import RecordContext
from streams_py.topology.declare.stores import StoreBuilder, StoreKind, ValueAndTimestamp

ANY = 1 << 30


class Caches:
    """A store whose flushed entries take some time each, by a fake clock. The flush also writes to ``below``."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.took_ms = 10
        self.fails_at: str | None = None
        self.cache = RecordCache(1 << 20, lambda: self.now_ms)
        self.above, self.below = self._open("above"), self._open("below")
        self.above.set_flush_listener(self._work, send_old_values=False)

    def _open(self, name: str) -> Any:
        builder = StoreBuilder(name, StoreKind.TIMESTAMPED_KEY_VALUE, STRING, INT64, caching=True)
        return open_store(builder, application_id="app", context=RecordContext(), cache=self.cache)

    def _work(self, key: str, new: Any, old: Any, timestamp_ms: int) -> None:
        self.now_ms += self.took_ms
        if key == self.fails_at:
            raise BrokerUnavailableError("away")
        self.below.put(key, ValueAndTimestamp(1, 0))
        self.below.flush_cache()

    def put(self, *keys: str) -> None:
        for key in keys:
            self.above.put(key, ValueAndTimestamp(1, 0))


def test_nothing_is_thought_of_flushes_before_one_took_time() -> None:
    caches = Caches()
    assert caches.cache.room(1) > ANY
    caches.took_ms = 0
    caches.put("a", "b")
    caches.above.flush_cache()
    assert caches.cache.room(1) > ANY


def test_room_is_what_may_still_become_dirty() -> None:
    caches = Caches()
    caches.put("a", "b")
    caches.above.flush_cache()
    assert caches.cache.room(55) == 5
    caches.put("c", "d", "c")
    assert caches.cache.room(55) == 3
    caches.put("e", "f", "g", "h")
    assert caches.cache.room(55) == 0


def test_one_entry_may_always_become_dirty() -> None:
    caches = Caches()
    caches.put("a")
    caches.above.flush_cache()
    assert caches.cache.room(9) == 1
    caches.put("b")
    assert caches.cache.room(9) == 0


def test_flush_that_fails_on_the_way_says_what_entries_take() -> None:
    caches = Caches()
    caches.fails_at = "c"
    caches.put("a", "b", "c", "d")
    with pytest.raises(BrokerUnavailableError):
        caches.above.flush_cache()
    assert caches.above.dirty_entries == 2
    assert caches.cache.room(150) == 8  # two took 30 ms


def test_flush_that_fails_with_its_first_entry_says_what_that_took() -> None:
    caches = Caches()
    caches.fails_at = "a"
    caches.put("a", "b")
    with pytest.raises(BrokerUnavailableError):
        caches.above.flush_cache()
    assert caches.cache.room(100) == 8


def test_quick_flushes_are_believed_little_by_little() -> None:
    caches = Caches()
    caches.put("a")
    caches.above.flush_cache()
    caches.took_ms = 0
    rooms = []
    for key in ("b", "c", "d"):
        rooms.append(caches.cache.room(100))
        caches.put(key)
        caches.above.flush_cache()
    assert rooms == [10, 20, 40]


def test_eviction_counts_as_a_flush() -> None:
    caches = Caches()
    caches.put("a", "b")
    caches.cache.max_bytes = 0
    caches.above.evict()
    caches.cache.max_bytes = 1 << 20
    assert caches.cache.room(100) == 10
