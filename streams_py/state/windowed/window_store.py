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
from streams_py.state.windowed.segments import AgingBytes
from streams_py.topology.declare.nodes import RecordContext
from streams_py.topology.declare.stores import ValueAndTimestamp, WindowRetention, WindowUpdater

__all__ = ["DuplicatesWindowStore", "PlainWindowStore", "TimestampedWindowStore", "WindowStoreOverEntries"]

K = TypeVar("K")
V = TypeVar("V")
S = TypeVar("S")

_LATEST = 2**63 - 1
_SEQUENCE_MASK = 0x7FFFFFFF

_suffix = WINDOW_LAYOUT.suffix
_last_suffix = WINDOW_LAYOUT.last_suffix
_time_of = WINDOW_LAYOUT.time_of
_SUFFIX_BYTES = WINDOW_LAYOUT.suffix_bytes


class WindowStoreOverEntries(WindowedEntries[K, V, S]):
    """What all window stores have in common. Times are window starts in ms, ranges include both ends."""

    def fetch(self, key: K, start: int) -> S | None:
        """What is stored for a key and window."""
        at = self._place_to_read(self.key_bytes(key), start, _suffix(start))
        found: S | None = self._entries.get(at)
        return found

    def value_data(self, windowed: Windowed[K]) -> bytes | None:
        """The serialized value of a window, as it was stored."""
        start = windowed.start
        return self._entries.value_data(self._place_to_read(self.key_bytes(windowed.key), start, _suffix(start)))

    def peek(self, key: K, start: int) -> S | None:
        """As :meth:`fetch`, for other threads."""
        at = self._place_to_read(self.key_bytes(key), start, _suffix(start))
        found: S | None = self._entries.peek(at)
        return found

    def fetch_between(self, key: K, first: int, last: int, *, reverse: bool = False) -> Iterator[tuple[int, S]]:
        """(start, stored) of a key's windows that start from ``first`` to ``last``, ascending unless ``reverse``."""
        return self._listed(self.between(key, first, last, reverse=reverse))

    def between(self, key: K, first: int, last: int, *, reverse: bool = False) -> Iterator[tuple[int, S]]:
        """As :meth:`fetch_between`, for operators: they take it at once, so it is not listed as open."""
        self.check_open()
        time_of = self._layout.time_of
        low, high = _suffix(max(first, 0)), _last_suffix(max(last, 0))
        found = self._entries_of(self.key_bytes(key), first, last, low, high, reverse=reverse)
        return ((time_of(at), stored) for at, stored in found)

    def fetch_keys(
        self, first_key: K | None, last_key: K | None, first: int, last: int, *, reverse: bool = False
    ) -> Iterator[tuple[Windowed[K], S]]:
        """Windows of the keys from ``first_key`` to ``last_key`` (None: open end) that start from ``first`` to
        ``last``: by start, then by key bytes."""
        wanted = self._between_keys(first_key, last_key)
        return self._listed(self._scan_time(max(first, 0), last, wanted, reverse=reverse))

    def fetch_all(self, first: int, last: int, *, reverse: bool = False) -> Iterator[tuple[Windowed[K], S]]:
        """Windows of all keys that start from ``first`` to ``last``: by start, then by key bytes."""
        return self._listed(self._scan_time(max(first, 0), last, None, reverse=reverse))

    def _timestamp_of(self, windowed: Windowed[K], timestamp_ms: int) -> int:
        return timestamp_ms


class PlainWindowStore(WindowStoreOverEntries[K, V, V]):
    """Window store of the Processor API: values without timestamps, logged with the context's timestamp."""

    def put(self, key: K, value: V | None, start: int) -> None:
        """Store ``value`` for the window that starts at ``start``; None deletes."""
        self._entries.put(self._place(self.key_bytes(key), start, _suffix(start)), value)


class TimestampedWindowStore(WindowStoreOverEntries[K, V, "ValueAndTimestamp[V]"]):
    """Window store of windowed aggregations: values with the timestamp of the latest record in them."""

    def put(self, key: K, value: ValueAndTimestamp[V] | None, start: int) -> None:
        """Store a value with its timestamp for the window that starts at ``start``; None deletes."""
        self._entries.put(self._place(self.key_bytes(key), start, _suffix(start)), value)

    def put_value(self, key: K, value: V | None, timestamp_ms: int, start: int) -> None:
        """As :meth:`put`, without a pair object."""
        self._timestamped.put_value(self._place(self.key_bytes(key), start, _suffix(start)), value, timestamp_ms)

    def updater(self, initializer: Callable[[], V], aggregator: Callable[[K, Any, V], V | None]) -> WindowUpdater:
        """Reading, aggregating and writing of one record in one window as one function."""

        def take(at: bytes, record: tuple[K, Any], aggregate: V) -> V | None:
            return aggregator(record[0], record[1], aggregate)

        update_entry, place, key_bytes = self._timestamped.updater(initializer, take), self._place, self.key_bytes

        def update(key: K, value: Any, timestamp_ms: int, start: int) -> tuple[Any, Any, int]:
            return update_entry(place(key_bytes(key), start, _suffix(start)), (key, value), timestamp_ms)

        return update

    @property
    def _timestamped(self) -> TimestampedStore[bytes, V] | CachedTimestampedStore[bytes, V]:
        return cast("TimestampedStore[bytes, V]", self._entries)


class DuplicatesWindowStore(WindowStoreOverEntries[K, V, V]):
    """Window store of stream-stream joins: all records of a key, also of one time, in the order they came.

    A null value stores and deletes nothing, but is logged, takes a sequence number and moves stream time.
    """

    def __init__(
        self,
        codec: StoreCodec[K, V],
        entries: AnyEntries,
        aging: AgingBytes,
        layout: Layout,
        retention: WindowRetention,
        context: RecordContext,
        recent: RecentSegments | None,
    ) -> None:
        super().__init__(codec, entries, aging, layout, retention, context)
        self._log: ChangeLog | None = None
        self._sequence = 0
        self._recent = recent

    def last_sequence(self) -> int:
        """The sequence number that was given last. The next record of one key and time must have another one."""
        return self._sequence

    def continue_after(self, sequence: int) -> None:
        """Go on behind a sequence number: those up to it may be of records that are stored."""
        self._sequence = max(self._sequence, sequence)

    def put(self, key: K, value: V | None, start: int) -> bool:
        """Add a value at a time; False when it is expired already, and not kept."""
        self.check_open()
        self._sequence = sequence = (self._sequence + 1) & _SEQUENCE_MASK
        key_bytes = self.key_bytes(key)
        suffix = _suffix(start, sequence)
        data = None if value is None else self._direct.encode_data(value)
        if self._log is not None:
            self._log(key_bytes + suffix, data, self._context.timestamp)
        aging = self._aging
        if data is None:
            aging.observe(start)
            return True
        self._direct.write_data(self._place(key_bytes, start, suffix), data)
        if start <= aging.cutoff_ms:
            return False
        if self._recent is not None:
            self._recent.add(start // self._segment_ms, key_bytes, start, sequence, data)
        return True

    def between(self, key: K, first: int, last: int, *, reverse: bool = False) -> Iterator[tuple[int, V]]:
        """(time, value) of a key from ``first`` to ``last``, in the order of time and coming unless ``reverse``."""
        recent, aging = self._recent, self._aging
        if recent is None:
            return super().between(key, first, last, reverse=reverse)
        self.check_open()
        key_bytes = self.key_bytes(key)
        first = max(first, 0, aging.cutoff_ms + 1)
        found: list[tuple[int, V]] = []
        for segment in aging.segments_between(first, last, reverse=False):
            held = recent.find(segment, key_bytes, first, last)
            if held is None:
                found += self._on_disk(segment, key_bytes, first, last)
            else:
                for time_ms, _, data in held:
                    found.append((time_ms, self._direct.decode_data(data)))
        return reversed(found) if reverse else iter(found)

    def _on_disk(self, segment: int, key: bytes, first: int, last: int) -> Iterator[tuple[int, V]]:
        prefix, length, time_of = segment_prefix(segment) + key, SEGMENT_BYTES + len(key) + _SUFFIX_BYTES, _time_of
        for at, data in self._aging.collect(prefix + _suffix(first), prefix + _last_suffix(last) + b"\0"):
            if len(at) == length:
                yield time_of(at), self._direct.decode_data(data)

    def fetch(self, key: K, start: int) -> V | None:
        """The first value of a key at a time."""
        return next((value for _, value in self.between(key, start, start)), None)

    peek = fetch

    def rebind(self, *, log: ChangeLog | None, context: RecordContext) -> None:
        """Belong to another task object from now on."""
        super().rebind(log=None, context=context)
        self._log = log
        self._sequence = 0
