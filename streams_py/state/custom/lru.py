"""A key-value store in memory that keeps the most recently used entries (Kafka Streams' ``Stores.lruMap``)."""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator
from threading import Lock

from streams_py.errors import TopologyError
from streams_py.topology.declare.caller import located
from streams_py.topology.declare.custom_stores import KeyValueBytesStore, KeyValueBytesStoreSupplier

__all__ = ["LruStore", "lru_map"]


@located
def lru_map(max_entries: int) -> KeyValueBytesStoreSupplier:
    """Return a ``supplier=`` of key-value stores in memory with at most ``max_entries`` entries per task.

    When there are more, the least recently used entry is evicted. Reading a key counts as a use, also by interactive
    queries. Reading a range does not.

    In a plain key-value store, an eviction writes a tombstone to the changelog. In a timestamped store (tables,
    aggregates) it does not, so the changelog grows with the number of keys, limited only by its own retention or
    compaction. Both are as in Kafka Streams.

    Raises:
        TopologyError: ``max_entries`` is not positive.
    """
    if max_entries < 1:
        raise TopologyError(f"max_entries of an LRU map must be at least 1, got {max_entries}")
    return lambda: LruStore(max_entries)


class LruStore(KeyValueBytesStore):
    """The store that :func:`lru_map` supplies."""

    def __init__(self, max_entries: int) -> None:
        self._max_entries = max_entries
        self._entries: OrderedDict[bytes, bytes] = OrderedDict()
        self._lock = Lock()  # because readers also move entries

    def get(self, key: bytes) -> bytes | None:
        with self._lock:
            found = self._entries.get(key)
            if found is not None:
                self._entries.move_to_end(key)
            return found

    def put(self, key: bytes, value: bytes) -> None:
        with self._lock:
            self._entries[key] = value
            self._entries.move_to_end(key)
            eldest = self._entries.popitem(last=False)[0] if len(self._entries) > self._max_entries else None
        if eldest is not None:
            self.evicted(eldest)

    def delete(self, key: bytes) -> None:
        with self._lock:
            self._entries.pop(key, None)

    def range(self, first: bytes | None, end: bytes | None, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        with self._lock:
            entries = list(self._entries.items())
        entries.sort()
        low = 0 if first is None else bisect_left(entries, (first,))
        high = len(entries) if end is None else bisect_left(entries, (end,))
        found = entries[low:high]
        return iter(found[::-1] if reverse else found)

    def approximate_num_entries(self) -> int:
        return len(self._entries)

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()

    def close(self) -> None:
        self.clear()
