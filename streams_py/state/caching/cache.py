"""The record cache, which merges updates of a key between two commits.

All cached stores of a stream thread share one budget, a :class:`RecordCache` (Kafka Streams' ThreadCache). Each store
has its own entries and evicts from them. Sizes are counted as in Kafka Streams (keys, values and record context in
bytes), so equal settings merge equally well. In Python, the objects of an entry need several times as much memory.

A flush forwards entries through the application's code, so it can take any time: minutes, if a function that takes some
milliseconds follows a cache with many keys. A commit that takes this long exceeds the transaction timeout, or
``max.poll.interval.ms``. Then all records are processed again, with the same result. To avoid this, the budget measures
the time per entry in recent flushes, including flushes that failed halfway, and the thread commits before a flush would
take too long.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from streams_py.errors import StateError
from streams_py.ports import Headers

_ROUNDS_MAX = 100
"""Maximum number of flush rounds. Stores of a task may fill each other's caches during a flush; more mean a cycle."""


_ENTRIES_MAX = 1 << 40
"""A number of entries that no cache reaches."""


class FlushedStore(Protocol):
    """The part of a store's interface that a commit uses. Stores without a cache have it too."""

    @property
    def name(self) -> str: ...

    def flush_cache(self) -> int:
        """Write and forward the entries that are dirty now. Returns their number; 0 without a cache."""


def flush_until_clean(stores: Sequence[FlushedStore]) -> None:
    """Flush the stores of one task until no cache has dirty entries. Only then may its offsets be committed.

    Args:
        stores: The stores in the order of the nodes that use them. One round is enough for most topologies, because a
            flush fills only caches further downstream. But a downstream node may also write to an upstream store.

    Raises:
        StateError: The stores never become clean. The message names them.
    """
    for _ in range(_ROUNDS_MAX):
        filled = [store.name for store in stores if store.flush_cache()]
        if not filled:
            return
    raise StateError(
        f"the record caches of {', '.join(filled)} fill each other endlessly: whenever they are flushed, a downstream "
        f"processor writes to them again. Declare the store that this processor writes to with caching=False"
    )


class CachedContent(Protocol):
    """The part of a cached store's interface that the budget uses."""

    @property
    def dirty_entries(self) -> int:
        """Number of entries that a flush would forward."""


class RecordCache:
    """The cache budget of one stream thread: ``statestore.cache.max.bytes`` divided by the number of threads.

    The stores themselves update :attr:`used_bytes`, because this happens for every record.
    """

    __slots__ = ("_entry_ms", "_is_flushing", "_now_ms", "_stores", "max_bytes", "used_bytes")

    def __init__(self, max_bytes: int, now_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000) -> None:
        """``now_ms``: a monotonic clock."""
        self.max_bytes = max_bytes
        self.used_bytes = 0
        self._stores: list[CachedContent] = []
        self._now_ms = now_ms
        self._is_flushing = False
        self._entry_ms = 0.0

    def register(self, store: CachedContent) -> None:
        """Add a cached store that was opened."""
        self._stores.append(store)

    def unregister(self, store: CachedContent) -> None:
        """Remove a cached store that was closed or handed over. It must have subtracted its bytes already."""
        self._stores = [kept for kept in self._stores if kept is not store]

    # -- how long a flush takes --------------------------------------------------------------------------------

    def flush_begins(self) -> int | None:
        """Start measuring a flush. Returns the current time; None within another flush, which includes this one."""
        if self._is_flushing:
            return None
        self._is_flushing = True
        return self._now_ms()

    def flush_ended(self, began_ms: int | None, entries: int) -> None:
        """Stop measuring a flush in which ``entries`` were forwarded, even if it failed halfway.

        A fast flush is not trusted immediately: the estimated time per entry at most halves with each flush.
        """
        if began_ms is None:
            return
        self._is_flushing = False
        entry_ms = (self._now_ms() - began_ms) / max(1, entries)
        self._entry_ms = max(entry_ms, self._entry_ms / 2)

    def room(self, within_ms: int) -> int:
        """Return how many more entries may become dirty if a flush of all should end within ``within_ms``.

        0 when the flush would already take longer. At least 1 when no entry is dirty, because otherwise no record could
        ever be processed.
        """
        if self._entry_ms * _ENTRIES_MAX <= within_ms:
            return _ENTRIES_MAX
        dirty = sum(store.dirty_entries for store in self._stores)
        return max(0 if dirty else 1, int(within_ms / self._entry_ms) - dirty)


def encoded_length(plain: str | bytes) -> int:
    """Return the encoded size of a text or of bytes."""
    return len(plain) if plain.isascii() or isinstance(plain, bytes) else len(plain.encode())


def headers_size(headers: Headers) -> int:
    """Return the size of record headers in bytes."""
    return sum(len(name) + (0 if value is None else len(value)) for name, value in headers)
