"""A bytes store in segments that expire as a whole.

The stream time of a store is the largest time ever put, null values included. Entries whose time is ``retention_ms`` or
more before stream time are expired: they are neither stored nor read. A segment is removed when all of its entries have
expired. This is the rule of Kafka Streams' in-memory stores, applied here to stores in memory and on disk. Emit on
window close delays expiry, because windows that were not emitted yet must not be removed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

from streams_py.state.stores.bytes_store import BytesStore, MemoryBytes
from streams_py.state.windowed.layout import SEGMENT_BYTES, Layout, segment_prefix
from streams_py.state.windowed.recent import RecentSegments
from streams_py.topology.declare.stores import WindowRetention

_UNKNOWN = -1
_DAY_MS = 86_400_000
"""Time that Kafka Streams by default keeps changelog records beyond the retention of the store, in ms."""
_I64 = struct.Struct(">q")


class SegmentedMemory:
    """A bytes store in memory with one :class:`MemoryBytes` per segment, so that a segment is removed in one step."""

    def __init__(self) -> None:
        self._segments: dict[bytes, MemoryBytes] = {}
        segments = self._segments

        def read(at: bytes) -> bytes | None:
            segment = segments.get(at[:SEGMENT_BYTES])
            return None if segment is None else segment.read(at)

        def write(at: bytes, data: bytes) -> None:
            segment = segments.get(at[:SEGMENT_BYTES])
            if segment is None:
                segment = segments[at[:SEGMENT_BYTES]] = MemoryBytes()
            segment.write(at, data)

        def remove(at: bytes) -> None:
            segment = segments.get(at[:SEGMENT_BYTES])
            if segment is not None:
                segment.remove(at)

        self.read: Callable[[bytes], bytes | None] = read
        self.write: Callable[[bytes, bytes], None] = write
        self.remove: Callable[[bytes], object] = remove

    def write_batch(self, keys: Sequence[bytes], datas: Iterable[bytes | None], *, removes: bool = True) -> None:
        for at, data in zip(keys, datas, strict=True):
            if data is None:
                self.remove(at)
            else:
                self.write(at, data)

    def scan(self, first: bytes | None, end: bytes | None, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        if first is not None and end is not None and first[:SEGMENT_BYTES] == end[:SEGMENT_BYTES]:
            segment = self._segments.get(first[:SEGMENT_BYTES])
            return iter(()) if segment is None else segment.scan(first, end, reverse=reverse)
        prefixes = sorted(self._segments, reverse=reverse)
        return chain.from_iterable(
            self._segments[prefix].scan(first, end, reverse=reverse)
            for prefix in prefixes
            if (first is None or prefix >= first[:SEGMENT_BYTES])
            and (end is None or prefix < end)
            and prefix in self._segments
        )

    def collect(self, first: bytes, end: bytes) -> list[tuple[bytes, bytes]]:
        return list(self.scan(first, end))

    def remove_below(self, end: bytes) -> None:
        for prefix in [prefix for prefix in self._segments if prefix < end]:
            del self._segments[prefix]

    def approximate_count(self) -> int:
        return sum(segment.approximate_count() for segment in list(self._segments.values()))

    def clear(self) -> None:
        self._segments.clear()

    def close(self) -> None:
        self.clear()


class ExpiringSegments:
    """A bytes store whose content expires. Its keys are the stored keys of ``layout``.

    Args:
        below: The bytes store with the content.
        layout: The format of the keys.
        retention: The retention of the store.
        recent: Recent entries, which the store above adds. Segments are started and dropped in it here.
    """

    def __init__(
        self, below: BytesStore, layout: Layout, retention: WindowRetention, recent: RecentSegments | None = None
    ) -> None:
        self._below = below
        self._recent = recent
        self._retention = retention
        self._time_of = layout.time_of
        self._suffix_bytes = layout.suffix_bytes
        self.segments: set[int] = set()
        """Numbers of the segments that may have entries, including entries that are only in the record cache above."""
        self.stream_time_ms = _UNKNOWN
        """The largest time ever put, in ms, as far as known."""
        self.cutoff_ms = -(2**63)
        """Entries up to this time, in ms, are expired."""
        self._released_ms = -(2**63) if retention.holds_back else 2**63
        self._first_segment = -(2**63)
        self._bind(below)
        self._learn(below)

    def _learn(self, below: BytesStore) -> None:
        """Learn the segments from existing files, and a stream time that is at most the true one."""
        following: bytes | None = None
        while (found := next(below.scan(following, None), None)) is not None:
            (segment,) = _I64.unpack_from(found[0])
            self.segments.add(segment)
            following = segment_prefix(segment + 1)
        last = next(below.scan(None, None, reverse=True), None) if self.segments else None
        if last is not None:
            self.observe(self._time_of(last[0]))

    def _bind(self, below: BytesStore) -> None:
        read_below, write_below, remove_below = below.read, below.write, below.remove
        unpack, back = _I64.unpack_from, self._suffix_bytes

        def read(at: bytes) -> bytes | None:
            if unpack(at, len(at) - back)[0] <= self.cutoff_ms:
                return None
            return read_below(at)

        def write(at: bytes, data: bytes) -> None:
            time_ms = unpack(at, len(at) - back)[0]
            if time_ms > self.stream_time_ms:
                self.observe(time_ms)
            elif time_ms <= self.cutoff_ms:
                return
            write_below(at, data)

        def remove(at: bytes) -> None:
            time_ms = unpack(at, len(at) - back)[0]
            if time_ms > self.stream_time_ms:
                self.observe(time_ms)
            remove_below(at)

        self.read: Callable[[bytes], bytes | None] = read
        self.write: Callable[[bytes, bytes], None] = write
        self.remove: Callable[[bytes], object] = remove

    def observe(self, time_ms: int) -> None:
        """Advance stream time to at least ``time_ms``."""
        if time_ms > self.stream_time_ms:
            self.stream_time_ms = time_ms
            self._expire()

    def note(self, segment: int) -> None:
        """Note that an entry is put into a segment, possibly only into the record cache for now."""
        if segment not in self.segments and segment >= self._first_segment:
            self.segments.add(segment)
            if self._recent is not None:
                self._recent.start(segment)

    def release(self, time_ms: int) -> None:
        """Let entries up to ``time_ms`` expire when they are old enough, because they were emitted."""
        if self._retention.holds_back and time_ms > self._released_ms:
            self._released_ms = time_ms
            self._expire()

    def cutoff_at(self, time_ms: int) -> int:
        """Return the cutoff at a stream time: entries up to it are expired then."""
        return min(time_ms - self._retention.kept_ms, self._released_ms)

    def _expire(self) -> None:
        self.cutoff_ms = self.cutoff_at(self.stream_time_ms)
        first = (self.cutoff_ms + 1) // self._retention.segment_ms
        if first > self._first_segment:
            self._first_segment = first
            old = {segment for segment in self.segments if segment < first}
            if old:
                self.segments -= old
                self._below.remove_below(segment_prefix(first))
                if self._recent is not None:
                    self._recent.forget_below(first)

    def segments_between(self, first_ms: int, last_ms: int, *, reverse: bool) -> list[int]:
        """Return the numbers of the segments that may have entries from ``first_ms`` to ``last_ms``."""
        length = self._retention.segment_ms
        first, last = max(first_ms, self.cutoff_ms + 1) // length, last_ms // length
        if last - first < 3:
            found = [segment for segment in range(first, last + 1) if segment in self.segments]
            return found[::-1] if reverse else found
        return sorted((segment for segment in list(self.segments) if first <= segment <= last), reverse=reverse)

    # -- as a bytes store --------------------------------------------------------------------------------------

    def write_batch(self, keys: Sequence[bytes], datas: Iterable[bytes | None], *, removes: bool = True) -> None:
        times_ms = list(map(self._time_of, keys))
        self.observe(max(times_ms, default=_UNKNOWN))
        # A standby does not learn what was emitted. It may drop entries that the changelog itself has deleted by now.
        self.release(self.stream_time_ms - self._retention.kept_ms - _DAY_MS)
        if min(times_ms, default=0) <= self.cutoff_ms:
            alive = [number for number, time_ms in enumerate(times_ms) if time_ms > self.cutoff_ms]
            given = list(datas)
            keys, datas = [keys[number] for number in alive], [given[number] for number in alive]
        self.segments.update(_I64.unpack(prefix)[0] for prefix in {at[:SEGMENT_BYTES] for at in keys})
        if self._recent is not None:
            self._recent.clear()
        self._below.write_batch(keys, datas, removes=removes)

    def scan(self, first: bytes | None, end: bytes | None, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        time_of, cutoff_ms = self._time_of, self.cutoff_ms
        return (entry for entry in self._below.scan(first, end, reverse=reverse) if time_of(entry[0]) > cutoff_ms)

    def collect(self, first: bytes, end: bytes) -> list[tuple[bytes, bytes]]:
        """Return the few entries from ``first`` (included) to ``end`` (excluded), in order."""
        entries = self._below.collect(first, end)
        if entries:
            time_of, cutoff_ms = self._time_of, self.cutoff_ms
            return [entry for entry in entries if time_of(entry[0]) > cutoff_ms]
        return entries

    def remove_below(self, end: bytes) -> None:
        self._below.remove_below(end)

    def approximate_count(self) -> int:
        return self._below.approximate_count()

    def clear(self) -> None:
        self._below.clear()
        self._bind(self._below)
        self._forget()

    def roll_back(self) -> None:
        """Learn segments and stream time again, after the bytes store was rolled back to the last commit."""
        self._forget()
        self._learn(self._below)

    def _forget(self) -> None:
        self.segments.clear()
        self.stream_time_ms = _UNKNOWN
        self.cutoff_ms = self._first_segment = -(2**63)
        self._released_ms = -(2**63) if self._retention.holds_back else 2**63
        if self._recent is not None:
            self._recent.clear()

    def close(self) -> None:
        if self._recent is not None:
            self._recent.clear()
        self._below.close()
