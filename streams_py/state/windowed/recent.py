"""What was put lately into the store of a join, by key: look-ups of new segments do not touch the files.

A segment whose first entry came through here is held *whole*, so its list for a key, or that there is none, is the
answer. Of segments that were there before (files, a changelog), or that were let go of to stay within the memory, the
bytes store is asked. One thread writes, any thread reads: lists only grow at their end, or are replaced.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from threading import Lock
from typing import Final
from weakref import WeakSet

__all__ = ["RecentMemory", "RecentSegments", "shared_recent_memory"]

_ENTRY_BYTES: Final = 300
"""Of an entry with a key of its own, without its data."""
_NOTHING: Final = ()


class RecentMemory:
    """What all :class:`RecentSegments` of this process may hold together, in bytes: equal shares. Thread-safe."""

    def __init__(self, max_bytes: int = 64 << 20) -> None:
        self._max_bytes = max_bytes
        self._holders: WeakSet[RecentSegments] = WeakSet()
        self._joining = Lock()
        self.share_bytes = max_bytes

    def join(self, holder: RecentSegments) -> None:
        """One more takes part, as long as it exists."""
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
    """Entries (time in ms, sequence number, data) of whole segments, by segment and key."""

    def __init__(self, memory: RecentMemory) -> None:
        self._memory = memory
        self._segments: dict[int, _Segment] = {}
        self.size_bytes = 0
        memory.join(self)

    def start(self, segment: int) -> None:
        """A segment of which nothing is stored yet."""
        self._segments[segment] = _Segment()

    def add(self, segment: int, key: bytes, time_ms: int, sequence: int, data: bytes) -> None:
        """An entry was stored; one with the same time and number is replaced."""
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
        """Entries of a key from ``first_ms`` to ``last_ms``, in order; None: the segment is not held."""
        held = self._segments.get(segment)
        if held is None:
            return None
        entries = held.by_key.get(key)
        if entries is None:
            return _NOTHING
        return entries[bisect_left(entries, (first_ms,)) : bisect_left(entries, (last_ms + 1,))]

    def forget(self, segment: int) -> None:
        """Do not hold it any more."""
        held = self._segments.pop(segment, None)
        if held is not None:
            self.size_bytes -= held.size_bytes

    def forget_below(self, first: int) -> None:
        """Segments before ``first`` have expired."""
        for segment in [segment for segment in self._segments if segment < first]:
            self.forget(segment)

    def clear(self) -> None:
        """Hold nothing."""
        self._segments.clear()
        self.size_bytes = 0
