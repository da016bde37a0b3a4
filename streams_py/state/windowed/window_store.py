"""Window stores: a value per key and window start (Kafka Streams' ``WindowStore`` and ``TimestampedWindowStore``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

from streams_py.serdes.windowed import Windowed
from streams_py.state.caching.cached_timestamped import CachedTimestampedStore
from streams_py.state.stores.codec import StoreCodec
from streams_py.state.stores.key_value import ChangeLog, TimestampedStore
from streams_py.state.windowed.entries import AnyEntries, WindowedEntries
from streams_py.state.windowed.layout import SEGMENT_BYTES, WINDOW_LAYOUT, Layout, segment_prefix
from streams_py.state.windowed.recent import RecentSegments
from streams_py.state.windowed.segments import ExpiringSegments
from streams_py.topology.declare.nodes import RecordContext
from streams_py.topology.declare.stores import ValueAndTimestamp, WindowRetention, WindowUpdater

K = TypeVar("K")
V = TypeVar("V")
S = TypeVar("S")

_SEQUENCE_MASK = 0x7FFFFFFF

_suffix = WINDOW_LAYOUT.suffix
_last_suffix = WINDOW_LAYOUT.last_suffix
_time_of = WINDOW_LAYOUT.time_of
_SUFFIX_BYTES = WINDOW_LAYOUT.suffix_bytes


class WindowStoreOverEntries(WindowedEntries[K, V, S]):
    """The common base of all window stores. Times are window starts in ms, ranges include both ends."""

    def fetch(self, key: K, start: int) -> S | None:
        """Return the entry of a key and window, or None."""
        at = self._key_to_read(self.key_bytes(key), start, _suffix(start))
        found: S | None = self._entries.get(at)
        return found

    def value_data(self, windowed: Windowed[K]) -> bytes | None:
        """Return the serialized value of a window, as stored."""
        start = windowed.start
        return self._entries.value_data(self._key_to_read(self.key_bytes(windowed.key), start, _suffix(start)))

    def peek(self, key: K, start: int) -> S | None:
        """As :meth:`fetch`, for any thread."""
        at = self._key_to_read(self.key_bytes(key), start, _suffix(start))
        found: S | None = self._entries.peek(at)
        return found

    def fetch_between(self, key: K, first: int, last: int, *, reverse: bool = False) -> Iterator[tuple[int, S]]:
        """Return (start, entry) of a key's windows that start from ``first`` to ``last``, ordered by start."""
        return self._listed(self.between(key, first, last, reverse=reverse))

    def between(self, key: K, first: int, last: int, *, reverse: bool = False) -> Iterator[tuple[int, S]]:
        """As :meth:`fetch_between`, for operators. They consume it immediately, so it is not tracked as open."""
        self.check_open()
        time_of = self._layout.time_of
        low, high = _suffix(max(first, 0)), _last_suffix(max(last, 0))
        found = self._entries_of(self.key_bytes(key), first, last, low, high, reverse=reverse)
        return ((time_of(at), stored) for at, stored in found)

    def fetch_keys(
        self, first_key: K | None, last_key: K | None, first: int, last: int, *, reverse: bool = False
    ) -> Iterator[tuple[Windowed[K], S]]:
        """Return the windows of the keys from ``first_key`` to ``last_key`` (None: open end).

        They start from ``first`` to ``last``, and are ordered by start, then by key bytes.
        """
        wanted = self._between_keys(first_key, last_key)
        return self._listed(self._scan_time(max(first, 0), last, wanted, reverse=reverse))

    def fetch_all(self, first: int, last: int, *, reverse: bool = False) -> Iterator[tuple[Windowed[K], S]]:
        """Return the windows of all keys that start from ``first`` to ``last``, ordered by start, then by key bytes."""
        return self._listed(self._scan_time(max(first, 0), last, None, reverse=reverse))

    def _timestamp_of(self, windowed: Windowed[K], timestamp_ms: int) -> int:
        return timestamp_ms


class PlainWindowStore(WindowStoreOverEntries[K, V, V]):
    """A window store of the Processor API: values without timestamps, logged with the context's timestamp."""

    def put(self, key: K, value: V | None, start: int) -> None:
        """Store ``value`` for the window that starts at ``start``; None deletes."""
        self._entries.put(self._key_to_write(self.key_bytes(key), start, _suffix(start)), value)


class TimestampedWindowStore(WindowStoreOverEntries[K, V, "ValueAndTimestamp[V]"]):
    """A window store of windowed aggregations: values with the timestamp of the latest record in them."""

    def put(self, key: K, value: ValueAndTimestamp[V] | None, start: int) -> None:
        """Store a value with its timestamp for the window that starts at ``start``; None deletes."""
        self._entries.put(self._key_to_write(self.key_bytes(key), start, _suffix(start)), value)

    def put_value(self, key: K, value: V | None, timestamp_ms: int, start: int) -> None:
        """As :meth:`put`, without a pair object."""
        self._timestamped.put_value(self._key_to_write(self.key_bytes(key), start, _suffix(start)), value, timestamp_ms)

    def updater(self, initializer: Callable[[], V], aggregator: Callable[[K, Any, V], V | None]) -> WindowUpdater:
        """Return a function that reads, aggregates and writes one record in one window."""

        def take(at: bytes, record: tuple[K, Any], aggregate: V) -> V | None:
            return aggregator(record[0], record[1], aggregate)

        update_entry, stored_key = self._timestamped.updater(initializer, take), self._key_to_write
        key_bytes = self.key_bytes

        def update(key: K, value: Any, timestamp_ms: int, start: int) -> tuple[Any, Any, int]:
            return update_entry(stored_key(key_bytes(key), start, _suffix(start)), (key, value), timestamp_ms)

        return update

    @property
    def _timestamped(self) -> TimestampedStore[bytes, V] | CachedTimestampedStore[bytes, V]:
        return cast("TimestampedStore[bytes, V]", self._entries)


class DuplicatesWindowStore(WindowStoreOverEntries[K, V, V]):
    """A window store of stream-stream joins: all records of a key in arrival order, even with equal timestamps.

    A null value stores nothing and deletes nothing. But it is logged, takes a sequence number and advances stream time.
    """

    def __init__(
        self,
        codec: StoreCodec[K, V],
        entries: AnyEntries,
        expiring: ExpiringSegments,
        layout: Layout,
        retention: WindowRetention,
        context: RecordContext,
        recent: RecentSegments | None,
    ) -> None:
        super().__init__(codec, entries, expiring, layout, retention, context)
        self._log: ChangeLog | None = None
        self._sequence = 0
        self._recent = recent

    def last_sequence(self) -> int:
        """Return the last sequence number used. The next record with the same key and time must get another one."""
        return self._sequence

    def continue_after(self, sequence: int) -> None:
        """Continue after ``sequence``. Stored records may have the numbers up to it."""
        self._sequence = max(self._sequence, sequence)

    def put(self, key: K, value: V | None, start: int) -> bool:
        """Add a value at a time. Returns False when the time has expired, so that the value is not stored."""
        self.check_open()
        self._sequence = sequence = (self._sequence + 1) & _SEQUENCE_MASK
        key_bytes = self.key_bytes(key)
        suffix = _suffix(start, sequence)
        data = None if value is None else self._direct.encode_data(value)
        if self._log is not None:
            self._log(key_bytes + suffix, data, self._context.timestamp)
        expiring = self._expiring
        if data is None:
            expiring.observe(start)
            return True
        self._direct.write_data(self._key_to_write(key_bytes, start, suffix), data)
        if start <= expiring.cutoff_ms:
            return False
        if self._recent is not None:
            self._recent.add(start // self._segment_ms, key_bytes, start, sequence, data)
        return True

    def between(self, key: K, first: int, last: int, *, reverse: bool = False) -> Iterator[tuple[int, V]]:
        """Return (time, value) of a key from ``first`` to ``last``, ordered by time, then by arrival."""
        recent, expiring = self._recent, self._expiring
        if recent is None:
            return super().between(key, first, last, reverse=reverse)
        self.check_open()
        key_bytes = self.key_bytes(key)
        first = max(first, 0, expiring.cutoff_ms + 1)
        found: list[tuple[int, V]] = []
        for segment in expiring.segments_between(first, last, reverse=False):
            held = recent.find(segment, key_bytes, first, last)
            if held is None:
                found += self._on_disk(segment, key_bytes, first, last)
            else:
                for time_ms, _, data in held:
                    found.append((time_ms, self._direct.decode_data(data)))
        return reversed(found) if reverse else iter(found)

    def _on_disk(self, segment: int, key: bytes, first: int, last: int) -> Iterator[tuple[int, V]]:
        prefix, length, time_of = segment_prefix(segment) + key, SEGMENT_BYTES + len(key) + _SUFFIX_BYTES, _time_of
        for at, data in self._expiring.collect(prefix + _suffix(first), prefix + _last_suffix(last) + b"\0"):
            if len(at) == length:
                yield time_of(at), self._direct.decode_data(data)

    def fetch(self, key: K, start: int) -> V | None:
        """Return the first value of a key at a time."""
        return next((value for _, value in self.between(key, start, start)), None)

    peek = fetch

    def rebind(self, *, log: ChangeLog | None, context: RecordContext) -> None:
        """Use the log and context of another task object from now on."""
        super().rebind(log=None, context=context)
        self._log = log
        self._sequence = 0
