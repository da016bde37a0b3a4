"""The record cache: what is merged between two commits.

All cached stores of a stream thread share one budget, a :class:`RecordCache` (Kafka Streams' ThreadCache); each has its
own entries and evicts from them. Sizes are counted as Kafka Streams counts them (keys, values and record context in
bytes), so that equal settings merge equally well; the objects behind an entry take several times that in Python.
"""

from __future__ import annotations

from typing import Protocol

from streams_py.ports import Headers

__all__ = ["CachedContent", "RecordCache", "headers_size"]


class CachedContent(Protocol):
    """What the budget asks of a cached store."""

    def evict(self) -> None:
        """Evict entries of this store until the budget is kept or the store has no entry left."""


class RecordCache:
    """Budget of one stream thread: ``statestore.cache.max.bytes`` divided by the number of threads.

    Stores keep :attr:`used_bytes` themselves, on the path of every record.
    """

    __slots__ = ("_stores", "max_bytes", "used_bytes")

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.used_bytes = 0
        self._stores: list[CachedContent] = []

    def register(self, store: CachedContent) -> None:
        """A cached store was opened."""
        self._stores.append(store)

    def unregister(self, store: CachedContent) -> None:
        """A cached store was closed or handed over; it has given its bytes back."""
        self._stores = [kept for kept in self._stores if kept is not store]

    def resize(self, max_bytes: int) -> None:
        """Change the budget (threads were added or removed); call it on the thread that owns the cache."""
        self.max_bytes = max_bytes
        for store in list(self._stores):
            if self.used_bytes <= max_bytes:
                return
            store.evict()


def headers_size(headers: Headers) -> int:
    """Bytes of record headers."""
    return sum(len(name) + (0 if value is None else len(value)) for name, value in headers)
