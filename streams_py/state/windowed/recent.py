"""Recent entries of a join's store, in memory by key, so that lookups in new segments do not read files.

A segment is in memory either with all its entries or not at all. So the list of a key has all entries of this key in
the segment, and a key without a list has none. Other segments are read from the bytes store: those restored from files
or from a changelog, and those dropped to stay within the memory limit.

One thread writes, any thread reads. This is safe because a list only grows at its end, or is replaced by a new list.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from threading import Lock
from typing import Final
from weakref import WeakSet

_ENTRY_BYTES: Final = 300
"""Approximate size of an entry in bytes, including its key and list but not its data."""
_NOTHING: Final = ()


class RecentMemory:
    """The memory limit in bytes that all :class:`RecentSegments` of this process share equally. Thread-safe."""

    def __init__(self, max_bytes: int = 64 << 20) -> None:
        self._max_bytes = max_bytes
        self._holders: WeakSet[RecentSegments] = WeakSet()
        self._joining = Lock()
        self.share_bytes = max_bytes

    def join(self, holder: RecentSegments) -> None:
        """Count ``holder`` as a user of the memory, as long as it exists."""
        with self._joining:
            self._holders.add(holder)
            self.share_bytes = self._max_bytes // len(self._holders)


_SHARED = RecentMemory()


def shared_recent_memory() -> RecentMemory:
    """The process's one :class:`RecentMemory`."""
    return _SHARED


class _Segment:
    __slots__ = ("by_key", "size_bytes")

    def __init__(self) -> None:
        self.by_key: dict[bytes, list[tuple[int, int, bytes]]] = {}
        self.size_bytes = 0


class RecentSegments:
    """The entries (time in ms, sequence number, data) of complete segments, by segment and key."""

    def __init__(self, memory: RecentMemory) -> None:
        self._memory = memory
        self._segments: dict[int, _Segment] = {}
        self.size_bytes = 0
        memory.join(self)

    def start(self, segment: int) -> None:
        """Start to hold a segment. Nothing may have been stored in it yet."""
        self._segments[segment] = _Segment()

    def add(self, segment: int, key: bytes, time_ms: int, sequence: int, data: bytes) -> None:
        """Add an entry that was stored. It replaces an entry with the same time and sequence number."""
        held = self._segments.get(segment)
        if held is None:
            return
        size = _ENTRY_BYTES + len(data)
        held.size_bytes += size
        self.size_bytes += size
        entries = held.by_key.get(key)
        entry = (time_ms, sequence, data)
        if entries is None:
            held.by_key[key] = [entry]
        elif entries[-1][:2] < entry[:2]:
            entries.append(entry)
        else:
            at = bisect_left(entries, entry[:2])
            is_replaced = at < len(entries) and entries[at][:2] == entry[:2]
            held.by_key[key] = [*entries[:at], entry, *entries[at + is_replaced :]]
        while self.size_bytes > self._memory.share_bytes and self._segments:
            self.forget(min(self._segments))

    def find(self, segment: int, key: bytes, first_ms: int, last_ms: int) -> Sequence[tuple[int, int, bytes]] | None:
        """Return the entries of a key from ``first_ms`` to ``last_ms``, in order. None: the segment is not held."""
        held = self._segments.get(segment)
        if held is None:
            return None
        entries = held.by_key.get(key)
        if entries is None:
            return _NOTHING
        return entries[bisect_left(entries, (first_ms,)) : bisect_left(entries, (last_ms + 1,))]

    def forget(self, segment: int) -> None:
        """Drop a segment."""
        held = self._segments.pop(segment, None)
        if held is not None:
            self.size_bytes -= held.size_bytes

    def forget_below(self, first: int) -> None:
        """Drop the segments before ``first``, which have expired."""
        for segment in [segment for segment in self._segments if segment < first]:
            self.forget(segment)

    def clear(self) -> None:
        """Drop all segments."""
        self._segments.clear()
        self.size_bytes = 0
