"""The common base of window and session stores: entries of a key-value store, found by key and time.

The entries are in a plain or timestamped key-value store, with or without a record cache. So writing, logging, caching
and flushing are implemented only once. The keys of that store are the *stored keys* of :mod:`.layout`.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import Any, Generic, TypeAlias, TypeVar

from streams_py.errors import InvalidStateStoreError
from streams_py.serdes.reasons import cause_of
from streams_py.serdes.windowed import Windowed
from streams_py.state.caching.cached import CachedStore
from streams_py.state.stores.changelog_entries import ChangelogEntries, RestoreRecord
from streams_py.state.stores.codec import StoreCodec
from streams_py.state.stores.key_value import ChangeLog, StoreOverBytes
from streams_py.state.stores.open_iterators import ListsIterators
from streams_py.state.windowed.layout import SEGMENT_BYTES, Layout, segment_prefix
from streams_py.state.windowed.segments import ExpiringSegments
from streams_py.topology.declare.nodes import RecordContext
from streams_py.topology.declare.stores import FlushListener, WindowRetention

K = TypeVar("K")
V = TypeVar("V")
S = TypeVar("S")

AnyEntries: TypeAlias = "StoreOverBytes[bytes, Any, Any] | CachedStore[bytes, Any, Any]"

_LATEST = 2**63 - 1
_SEGMENT_MS_MIN = 60_000  # the minimum in Kafka Streams
_logger = logging.getLogger(__name__)


def without_segment(log: ChangeLog | None) -> ChangeLog | None:
    """Return a log that removes the segment from stored keys. Changelog keys have none."""
    if log is None:
        return None
    write = log
    return lambda at, data, timestamp_ms: write(at[SEGMENT_BYTES:], data, timestamp_ms)


class WindowedEntries(ListsIterators, ABC, Generic[K, V, S]):
    """A store with one entry per key and window. One thread writes, any thread reads.

    ``S`` is the type of a stored entry: V, or V with its timestamp.
    """

    def __init__(
        self,
        codec: StoreCodec[K, V],
        entries: AnyEntries,
        expiring: ExpiringSegments,
        layout: Layout,
        retention: WindowRetention,
        context: RecordContext,
    ) -> None:
        self.codec = codec
        self.retention = retention
        self._entries = entries
        self._cached = entries if isinstance(entries, CachedStore) else None
        self._direct: StoreOverBytes[bytes, Any, Any] = entries.below if isinstance(entries, CachedStore) else entries
        self._expiring = expiring
        self._layout = layout
        self._context = context
        self._encode_key = codec.encode_key
        self._segment_ms = retention.segment_ms
        # Kafka Streams orders its record cache by its own segments. An entry that is read counts as used. In reverse
        # order, its iterator also reads the rest of its first segment.
        self._java_segment_ms = max(retention.retention_ms // 2, _SEGMENT_MS_MIN)
        self._latest_ms = expiring.stream_time_ms
        # Key -> its stored keys that may be in the record cache, because operators search the cache by key for each
        # record.
        self._cached_keys: dict[bytes, dict[bytes, None]] = {}

    # -- properties --------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Name of the store."""
        return self._entries.name

    @property
    def persistent(self) -> bool:
        """Whether the content is on disk."""
        return self._entries.persistent

    @property
    def is_open(self) -> bool:
        """False after :meth:`close`."""
        return self._entries.is_open

    @property
    def is_cached(self) -> bool:
        """Whether the store has a record cache."""
        return self._entries.is_cached

    def observed_time(self) -> int:
        """Return the latest window start (sessions: end) ever put, in ms, as far as known; -1 for none."""
        return self._expiring.stream_time_ms

    def observe(self, time_ms: int) -> None:
        """Advance stream time to at least ``time_ms``."""
        self._expiring.observe(time_ms)

    @property
    def expired_ms(self) -> int:
        """Windows that start, and sessions that end, at or before this time in ms are expired. -1: none are.

        Includes those that the entries in the record cache will expire when the cache is flushed.
        """
        return max(self._expiring.cutoff_ms, self._expiring.cutoff_at(self._latest_ms), -1)

    def approximate_num_entries(self) -> int:
        """Return the number of windows, including expired ones that are not removed yet. On disk an estimate."""
        return self._entries.approximate_num_entries()

    # -- keys --------------------------------------------------------------------------------------------------

    def key_bytes(self, key: K) -> bytes:
        """Return the serialized key."""
        try:
            return self._encode_key(key)
        except Exception as error:
            raise self.codec.key_error(error, key) from cause_of(error)

    def windowed_of(self, at: bytes) -> Windowed[K]:
        """Return the key and window of a stored key."""
        key_bytes = self._layout.key_of(at)
        try:
            key = self.codec.decode_key(key_bytes)
        except Exception as error:
            raise self.codec.stored_error(error, key_bytes, is_key=True) from cause_of(error)
        return self._layout.windowed(key, at, self.retention)

    def _key_to_write(self, key: bytes, time_ms: int, suffix: bytes) -> bytes:
        """Return the stored key for an entry that is about to be put."""
        segment = time_ms // self._segment_ms
        expiring = self._expiring
        if segment not in expiring.segments:
            expiring.note(segment)
        if time_ms > self._latest_ms:
            self._latest_ms = time_ms
        at = segment_prefix(segment) + key + suffix
        if self._cached is not None:
            self._note_cached_key(key, at)
        return at

    def _key_to_read(self, key: bytes, time_ms: int, suffix: bytes) -> bytes:
        return segment_prefix(time_ms // self._segment_ms) + key + suffix

    def _note_cached_key(self, key: bytes, at: bytes) -> None:
        stored_keys = self._cached_keys.get(key)
        if stored_keys is None:
            self._cached_keys[key] = {at: None}
        else:
            stored_keys[at] = None

    def _forget_evicted_keys(self) -> None:
        """Forget stored keys that are no longer in the cache. Called after flushes."""
        cached = self._cached
        if cached is None:
            return
        alive = {key: {at: None for at in found if cached.holds(at)} for key, found in self._cached_keys.items()}
        self._cached_keys = {key: found for key, found in alive.items() if found}

    # -- finding -----------------------------------------------------------------------------------------------

    def _entries_of(
        self, key: bytes, first_ms: int, last_ms: int, low: bytes, high: bytes, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, S]]:
        """Return the entries of a key from ``first_ms`` to ``last_ms``, ordered by time.

        ``low`` and ``high`` are the lowest and highest suffix of the stored keys.
        """
        first_ms, last_ms = max(first_ms, 0), min(last_ms, max(self._latest_ms, self._expiring.stream_time_ms))
        length = SEGMENT_BYTES + len(key) + self._layout.suffix_bytes
        found: list[tuple[bytes, Any]] = []
        decode = self._direct.decode_data
        for segment in self._expiring.segments_between(first_ms, last_ms, reverse=False):
            prefix = segment_prefix(segment) + key
            entries = self._expiring.collect(prefix + low, prefix + high + b"\0")
            found += [(at, decode(data)) for at, data in entries if len(at) == length]
        cached = self._cached
        cached_keys = None if cached is None else self._cached_keys.get(key)
        if cached is None or not cached_keys:
            return reversed(found) if reverse else iter(found)
        time_of, suffix_bytes = self._layout.time_of, self._layout.suffix_bytes
        seen_from_ms = first_ms - (first_ms % self._java_segment_ms if reverse else 0)
        merged = dict(found)
        held: list[tuple[bytes, Any]] = []
        for at, stored in cached.held_entries([at for at in list(cached_keys) if at[-suffix_bytes:] <= high]):
            is_wanted = low <= at[-suffix_bytes:] and first_ms <= time_of(at) <= last_ms
            if is_wanted:
                merged[at] = stored
            if seen_from_ms <= time_of(at) <= last_ms:
                held.append((at, stored if is_wanted else None))
        held.sort(key=itemgetter(0), reverse=reverse)
        rows = [row for row in sorted(merged.items(), key=itemgetter(0), reverse=reverse) if row[1] is not None]
        return cached.counting_uses(rows, held)

    def _scan_time(
        self,
        first_ms: int,
        last_ms: int,
        wanted: Callable[[bytes], bool] | None,
        *,
        reverse: bool,
        keys_last: bool = False,
    ) -> Iterator[tuple[Windowed[K], S]]:
        """Return the entries of many keys from ``first_ms`` to ``last_ms``.

        Args:
            first_ms: Lowest time, included.
            last_ms: Highest time, included.
            wanted: Whether to return the entries of a serialized key. None: return the entries of all keys.
            reverse: Whether to return the entries in reverse order.
            keys_last: Whether to order by time, suffix, key. Otherwise the order is by time, key, suffix.
        """
        self.check_open()
        time_of, key_of, suffix_bytes = self._layout.time_of, self._layout.key_of, self._layout.suffix_bytes
        above: dict[int, dict[bytes, Any]] = {}
        held: list[tuple[bytes, Any]] = []
        if self._cached is not None:
            held = self._cached.held_entries()
            for at, stored in held:
                above.setdefault(time_of(at) // self._segment_ms, {})[at] = stored
        segments = set(self._expiring.segments_between(first_ms, last_ms, reverse=False))
        segments.update(above)

        def order(entry: tuple[bytes, Any]) -> tuple[int, bytes, bytes]:
            at = entry[0]
            if keys_last:
                return time_of(at), at[-suffix_bytes:], key_of(at)
            return time_of(at), key_of(at), at[-suffix_bytes:]

        def seen(held: list[tuple[bytes, Any]]) -> list[tuple[bytes, Any]]:
            """Return the cached entries that Kafka Streams' iterator reads, in its order.

            The iterator skips an entry with the value None, and continues.
            """
            if self.persistent and self.retention.holds_back and not reverse:
                # Kafka Streams' cache is in time order. Its iterator stops after reading one more entry of the segment.
                rows = sorted(held, key=order)
                last = last_ms // self._java_segment_ms
                behind = [
                    at for at, _ in rows if time_of(at) > last_ms and time_of(at) // self._java_segment_ms == last
                ]
                inside = [row for row in rows if first_ms <= time_of(row[0]) <= last_ms]
                return [
                    *((at, stored if is_chosen(at) else None) for at, stored in inside),
                    *((at, None) for at in behind[:1]),
                ]
            segment_ms = self._java_segment_ms if self.persistent else 1
            looked_at = [
                (at, stored if is_chosen(at) else None) for at, stored in held if wanted is None or is_chosen(at)
            ]
            looked_at.sort(key=lambda row: (time_of(row[0]) // segment_ms, row[0][SEGMENT_BYTES:]), reverse=reverse)
            return looked_at

        def is_chosen(at: bytes) -> bool:
            return first_ms <= time_of(at) <= last_ms and (wanted is None or wanted(key_of(at)))

        def chosen() -> Iterator[tuple[bytes, S]]:
            for segment in sorted(segments, reverse=reverse):
                content = dict(self._direct.scan(segment_prefix(segment), segment_prefix(segment + 1), reverse=False))
                content.update(above.get(segment, {}))
                rows = [(at, stored) for at, stored in content.items() if stored is not None and is_chosen(at)]
                rows.sort(key=order, reverse=reverse)
                yield from rows

        for at, stored in chosen() if self._cached is None else self._cached.counting_uses(chosen(), seen(held)):
            yield self.windowed_of(at), stored

    def _between_keys(self, first: K | None, last: K | None) -> Callable[[bytes], bool] | None:
        if first is None and last is None:
            return None
        low = b"" if first is None else self.key_bytes(first)
        high = None if last is None else self.key_bytes(last)
        if high is not None and low > high:
            _logger.warning(
                "store %s: returning an empty range because its first key is greater than its last; keys are compared "
                "by their serialized bytes, which sort negative numbers after positive ones",
                self.name,
            )
        return lambda key: low <= key and (high is None or key <= high)

    def all(self, *, reverse: bool = False) -> Iterator[tuple[Windowed[K], S]]:
        """Return all entries that have not expired, ordered by time, then by key bytes."""
        return self._listed(self._scan_time(0, _LATEST, None, reverse=reverse))

    # -- cache, life -------------------------------------------------------------------------------------------

    @abstractmethod
    def _timestamp_of(self, windowed: Windowed[K], timestamp_ms: int) -> int:
        """Return the timestamp of the record that forwards a flushed entry."""

    def set_flush_listener(self, listener: FlushListener, *, send_old_values: bool) -> None:
        """Set the function that forwards flushed entries. It gets windowed keys."""

        def flushed(at: bytes, new: Any, old: Any, timestamp_ms: int) -> None:
            windowed = self.windowed_of(at)
            listener(windowed, new, old, self._timestamp_of(windowed, timestamp_ms))

        self._entries.set_flush_listener(flushed, send_old_values=send_old_values)

    def release(self, time_ms: int) -> None:
        """Let windows up to ``time_ms`` expire, because they were emitted (emit on window close)."""
        self._expiring.release(time_ms)

    def restore(self, records: Iterable[RestoreRecord]) -> int:
        """Apply changelog records in order, bypassing log and cache. Null keys are skipped.

        Returns:
            The number of applied records.
        """
        entries = ChangelogEntries.of(records)
        stored = entries.at(list(map(self._stored_key, entries.keys)))
        if self.retention.keeps_duplicates and stored.removes:  # in such a store a null value deletes nothing,
            for at, value, _ in stored:
                if at is not None and value is None:
                    self._expiring.observe(self._layout.time_of(at))  # but it advances stream time
            stored = ChangelogEntries.of([record for record in stored if record[1] is not None])
        self._cached_keys.clear()
        return self._entries.restore(stored)

    def _stored_key(self, key: bytes | None) -> bytes | None:
        """Return the stored key for the key of a changelog record."""
        if key is None:
            return None
        if len(key) < self._layout.suffix_bytes:
            raise InvalidStateStoreError(
                f"changelog {self.codec.topic} of store {self.name!r} has a key of {len(key)} bytes, which is too "
                "short for a key with its window: another kind of store has written it"
            )
        return segment_prefix(self._layout.time_of(key) // self._segment_ms) + key

    def flush_cache(self) -> int:
        """Write and forward the dirty entries of the record cache. Returns their number."""
        flushed = self._entries.flush_cache()
        if flushed:
            self._forget_evicted_keys()
        return flushed

    def clear_cache(self) -> None:
        """Drop all entries of the record cache, dirty ones too."""
        self._entries.clear_cache()
        self._cached_keys.clear()

    def clear(self) -> None:
        """Remove everything without logging, before the store is restored from the beginning."""
        self._entries.clear()
        self._cached_keys.clear()
        self._latest_ms = self._expiring.stream_time_ms

    def roll_back(self) -> None:
        """Update segments and stream time after the bytes store was rolled back to the last commit."""
        self._expiring.roll_back()
        self._latest_ms = self._expiring.stream_time_ms

    def close(self) -> None:
        """Close the files. A second call does nothing; all other methods raise InvalidStateStoreError afterwards."""
        self._entries.close()

    def rebind(self, *, log: ChangeLog | None, context: RecordContext) -> None:
        """Use the log and context of another task object from now on."""
        self._context = context
        self._entries.rebind(log=without_segment(log), context=context)

    def check_open(self) -> None:
        """Raise InvalidStateStoreError if the store is closed."""
        self._direct.check_open()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} over {self._entries!r}>"
