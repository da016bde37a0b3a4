"""The record cache: what is merged between two commits.

All cached stores of a stream thread share one budget, a :class:`RecordCache` (Kafka Streams' ThreadCache); each has its
own entries and evicts from them. Sizes are counted as Kafka Streams counts them (keys, values and record context in
bytes), so that equal settings merge equally well; the objects behind an entry take several times that in Python.

A flush forwards entries through the application's code, and so can take any time: minutes, when a call of some
milliseconds stands below a cache with many keys. A commit that takes that long outlasts its transaction, or the
patience of the group; all is processed again then, and so on. So the budget knows what an entry takes, by the last
flushes, also by those that failed on the way: a commit comes before its flush would take too long.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from streams_py.errors import StateError
from streams_py.ports import Headers

__all__ = ["CachedContent", "FlushedStore", "RecordCache", "encoded_length", "flush_until_clean", "headers_size"]

_ROUNDS_MAX = 100
"""Stores of one task may fill each other's caches while they are flushed. Beyond so many rounds it is a circle."""


_ENTRIES_MAX = 1 << 40
"""More than there can be."""


class FlushedStore(Protocol):
    """What a commit asks of every store, cached or not."""

    @property
    def name(self) -> str: ...

    def flush_cache(self) -> int:
        """Write and forward the entries that are dirty now; how many they were (0: nothing was dirty, or no cache)."""


def flush_until_clean(stores: Sequence[FlushedStore]) -> None:
    """Flush the stores of one task until no cache has a dirty entry left: only then may its offsets be committed.

    ``stores`` are in the order of the nodes that use them, so one round is enough for most topologies: a flush fills
    the caches further down. A node further down may also put into a store further up, hence the rounds. StateError,
    naming the stores, when that never ends.
    """
    for _ in range(_ROUNDS_MAX):
        filled = [store.name for store in stores if store.flush_cache()]
        if not filled:
            return
    raise StateError(
        f"the record caches of {', '.join(filled)} fill each other without end: whenever they are flushed, a processor "
        f"below puts into them again. Declare the store that this processor writes to with caching=False"
    )


class CachedContent(Protocol):
    """What the budget asks of a cached store."""

    @property
    def dirty_entries(self) -> int:
        """How many entries a flush would forward."""

    def evict(self, entries_max: int | None = None) -> None:
        """Evict entries of this store until the budget is kept or the store has no entry left, or so many are gone."""


class RecordCache:
    """Budget of one stream thread: ``statestore.cache.max.bytes`` divided by the number of threads.

    Stores keep :attr:`used_bytes` themselves, on the path of every record.
    """

    __slots__ = ("_entry_ms", "_is_flushing", "_now_ms", "_stores", "max_bytes", "used_bytes")

    def __init__(self, max_bytes: int, now_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000) -> None:
        """``now_ms`` never goes back."""
        self.max_bytes = max_bytes
        self.used_bytes = 0
        self._stores: list[CachedContent] = []
        self._now_ms = now_ms
        self._is_flushing = False
        self._entry_ms = 0.0

    def register(self, store: CachedContent) -> None:
        """A cached store was opened."""
        self._stores.append(store)

    def unregister(self, store: CachedContent) -> None:
        """A cached store was closed or handed over; it has given its bytes back."""
        self._stores = [kept for kept in self._stores if kept is not store]

    def resize(self, max_bytes: int) -> None:
        """Change the budget (threads were added or removed); call it on the thread that owns the cache.

        Stores give up an entry each in turn, as in Kafka Streams, so that none pays for all.
        """
        self.max_bytes = max_bytes
        while self.used_bytes > max_bytes:
            before = self.used_bytes
            for store in list(self._stores):
                store.evict(1)  # none, when the budget is kept
            if self.used_bytes == before:
                return  # the nodes below have put into what they were flushed from: it waits for the next write

    # -- how long a flush takes --------------------------------------------------------------------------------

    def flush_begins(self) -> int | None:
        """When; None within another flush, which includes this one."""
        if self._is_flushing:
            return None
        self._is_flushing = True
        return self._now_ms()

    def flush_ended(self, began_ms: int | None, entries: int) -> None:
        """So many entries were forwarded, whether or not there were more. One that is quick once is not trusted at
        once: what an entry is thought to take at most halves."""
        if began_ms is None:
            return
        self._is_flushing = False
        entry_ms = (self._now_ms() - began_ms) / max(1, entries)
        self._entry_ms = max(entry_ms, self._entry_ms / 2)

    def room(self, within_ms: int) -> int:
        """How many entries more may become dirty, so that a flush of all is still thought to end in so many ms; 0 when
        it is not any more. One always may, since less cannot be."""
        if self._entry_ms * _ENTRIES_MAX <= within_ms:
            return _ENTRIES_MAX
        dirty = sum(store.dirty_entries for store in self._stores)
        return max(0 if dirty else 1, int(within_ms / self._entry_ms) - dirty)


def encoded_length(plain: str | bytes) -> int:
    """Bytes of a text or of bytes."""
    return len(plain) if plain.isascii() or isinstance(plain, bytes) else len(plain.encode())


def headers_size(headers: Headers) -> int:
    """Bytes of record headers."""
    return sum(len(name) + (0 if value is None else len(value)) for name, value in headers)
