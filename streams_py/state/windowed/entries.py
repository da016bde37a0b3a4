"""What window and session stores have in common: entries of a key-value store, found by key and time.

The entries are those of a plain or timestamped key-value store, with or without a record cache, so that writing,
logging, caching and flushing exist once. Its keys are places (:mod:`.layout`).
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
from streams_py.state.windowed.segments import AgingBytes
from streams_py.topology.declare.nodes import RecordContext
from streams_py.topology.declare.stores import FlushListener, WindowRetention

__all__ = ["AnyEntries", "WindowedEntries", "without_segment"]

K = TypeVar("K")
V = TypeVar("V")
S = TypeVar("S")

AnyEntries: TypeAlias = "StoreOverBytes[bytes, Any, Any] | CachedStore[bytes, Any, Any]"

_LATEST = 2**63 - 1
_SEGMENT_MS_MIN = 60_000  # of Kafka Streams
_logger = logging.getLogger(__name__)


def without_segment(log: ChangeLog | None) -> ChangeLog | None:
    """Writes changelog keys of places: the segment is nobody else's business."""
    if log is None:
        return None
    write = log
    return lambda at, data, timestamp_ms: write(at[SEGMENT_BYTES:], data, timestamp_ms)


class WindowedEntries(ListsIterators, ABC, Generic[K, V, S]):
    """``S`` is what the store holds per window: V, or V with its timestamp. Written by one thread, read by any."""

    def __init__(
        self,
        codec: StoreCodec[K, V],
        entries: AnyEntries,
        aging: AgingBytes,
        layout: Layout,
        retention: WindowRetention,
        context: RecordContext,
    ) -> None:
        self.codec = codec
        self.retention = retention
        self._entries = entries
        self._cached = entries if isinstance(entries, CachedStore) else None
        self._direct: StoreOverBytes[bytes, Any, Any] = entries.below if isinstance(entries, CachedStore) else entries
        self._aging = aging
        self._layout = layout
        self._context = context
        self._encode_key = codec.encode_key
        self._segment_ms = retention.segment_ms
        # The record cache of Kafka Streams is in the order of its segments; reading it counts as use. Backwards, its
        # iterator looks at what is left of its first segment, too.
        self._their_segment_ms = max(retention.retention_ms // 2, _SEGMENT_MS_MIN)
        self._latest_ms = aging.stream_time_ms
        # Places of each key that may be in the record cache: it is searched by key with every record.
        self._places: dict[bytes, dict[bytes, None]] = {}

    # -- what it is --------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Name of the store."""
        return self._entries.name

    @property
    def persistent(self) -> bool:
        """True when the content is on disk."""
        return self._entries.persistent

    @property
    def is_open(self) -> bool:
        """False after :meth:`close`."""
        return self._entries.is_open

    @property
    def is_cached(self) -> bool:
        """True when updates are merged in the record cache."""
        return self._entries.is_cached

    def observed_time(self) -> int:
        """The latest window start, or end of a session, that was ever put, in ms, as far as is known; -1 for none."""
        return self._aging.stream_time_ms

    def observe(self, time_ms: int) -> None:
        """Stream time is at least this."""
        self._aging.observe(time_ms)

    @property
    def expired_ms(self) -> int:
        """Windows that start (sessions that end) up to this time are expired; -1 when none is."""
        return max(self._aging.cutoff_ms, -1)

    def approximate_num_entries(self) -> int:
        """Number of windows, expired ones that are still there included; on disk an estimate."""
        return self._entries.approximate_num_entries()

    # -- keys --------------------------------------------------------------------------------------------------

    def key_bytes(self, key: K) -> bytes:
        """The serialized key."""
        try:
            return self._encode_key(key)
        except Exception as error:
            raise self.codec.key_error(error, key) from cause_of(error)

    def windowed_of(self, at: bytes) -> Windowed[K]:
        """What a place stands for."""
        key_bytes = self._layout.key_of(at)
        try:
            key = self.codec.decode_key(key_bytes)
        except Exception as error:
            raise self.codec.stored_error(error, key_bytes, is_key=True) from cause_of(error)
        return self._layout.windowed(key, at, self.retention)

    def _place(self, key: bytes, time_ms: int, suffix: bytes) -> bytes:
        """The place of something that is about to be put."""
        segment = time_ms // self._segment_ms
        aging = self._aging
        if segment not in aging.segments:
            aging.note(segment)
        if time_ms > self._latest_ms:
            self._latest_ms = time_ms
        at = segment_prefix(segment) + key + suffix
        if self._cached is not None:
            self._note_place(key, at)
        return at

    def _place_to_read(self, key: bytes, time_ms: int, suffix: bytes) -> bytes:
        return segment_prefix(time_ms // self._segment_ms) + key + suffix

    def _note_place(self, key: bytes, at: bytes) -> None:
        places = self._places.get(key)
        if places is None:
            self._places[key] = {at: None}
        else:
            places[at] = None

    def _forget_places(self) -> None:
        """After a flush: places that have left the cache are forgotten, now and then."""
        cached = self._cached
        if cached is None:
            return
        alive = {key: {at: None for at in places if cached.holds(at)} for key, places in self._places.items()}
        self._places = {key: places for key, places in alive.items() if places}

    # -- finding -----------------------------------------------------------------------------------------------

    def _entries_of(
        self, key: bytes, first_ms: int, last_ms: int, low: bytes, high: bytes, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, S]]:
        """Entries of a key from ``first_ms`` to ``last_ms``, by time; ``low`` to ``high`` may follow the key."""
        first_ms, last_ms = max(first_ms, 0), min(last_ms, max(self._latest_ms, self._aging.stream_time_ms))
        length = SEGMENT_BYTES + len(key) + self._layout.suffix_bytes
        found: list[tuple[bytes, Any]] = []
        decode = self._direct.decode_data
        for segment in self._aging.segments_between(first_ms, last_ms, reverse=False):
            prefix = segment_prefix(segment) + key
            entries = self._aging.collect(prefix + low, prefix + high + b"\0")
            found += [(at, decode(data)) for at, data in entries if len(at) == length]
        cached = self._cached
        places = None if cached is None else self._places.get(key)
        if cached is None or not places:
            return reversed(found) if reverse else iter(found)
        time_of, suffix_bytes = self._layout.time_of, self._layout.suffix_bytes
        seen_from_ms = first_ms - (first_ms % self._their_segment_ms if reverse else 0)
        merged = dict(found)
        held: list[tuple[bytes, Any]] = []
        for at, stored in cached.held_entries([at for at in list(places) if at[-suffix_bytes:] <= high]):
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
        """Entries of all keys (those of ``wanted`` key bytes) from ``first_ms`` to ``last_ms``: by time, key, and what
        follows the key; ``keys_last``: by what follows the key, then by key."""
        self.check_open()
        time_of, key_of, suffix_bytes = self._layout.time_of, self._layout.key_of, self._layout.suffix_bytes
        above: dict[int, dict[bytes, Any]] = {}
        held: list[tuple[bytes, Any]] = []
        if self._cached is not None:
            held = self._cached.held_entries()
            for at, stored in held:
                above.setdefault(time_of(at) // self._segment_ms, {})[at] = stored
        segments = set(self._aging.segments_between(first_ms, last_ms, reverse=False))
        segments.update(above)

        def order(entry: tuple[bytes, Any]) -> tuple[int, bytes, bytes]:
            at = entry[0]
            if keys_last:
                return time_of(at), at[-suffix_bytes:], key_of(at)
            return time_of(at), key_of(at), at[-suffix_bytes:]

        def seen(held: list[tuple[bytes, Any]]) -> list[tuple[bytes, Any]]:
            """What Kafka Streams' iterator over its cache looks at, in its order; None: it looks further."""
            if self.persistent and self.retention.holds_back and not reverse:
                # Theirs is in the order of time, and comes to its end by looking at one more of the same segment.
                rows = sorted(held, key=order)
                last = last_ms // self._their_segment_ms
                behind = [
                    at for at, _ in rows if time_of(at) > last_ms and time_of(at) // self._their_segment_ms == last
                ]
                inside = [row for row in rows if first_ms <= time_of(row[0]) <= last_ms]
                return [
                    *((at, stored if is_chosen(at) else None) for at, stored in inside),
                    *((at, None) for at in behind[:1]),
                ]
            segment_ms = self._their_segment_ms if self.persistent else 1
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
                "store %s: a range from a greater to a smaller key is empty; keys are ordered by their bytes, "
                "in which negative numbers come after positive ones",
                self.name,
            )
        return lambda key: low <= key and (high is None or key <= high)

    def all(self, *, reverse: bool = False) -> Iterator[tuple[Windowed[K], S]]:
        """Everything that is not expired: by time, then by key bytes."""
        return self._listed(self._scan_time(0, _LATEST, None, reverse=reverse))

    # -- cache, life -------------------------------------------------------------------------------------------

    @abstractmethod
    def _timestamp_of(self, windowed: Windowed[K], timestamp_ms: int) -> int:
        """Of the record that forwards a flushed entry."""

    def set_flush_listener(self, listener: FlushListener, *, send_old_values: bool) -> None:
        """Who forwards flushed entries, with windowed keys."""

        def flushed(at: bytes, new: Any, old: Any, timestamp_ms: int) -> None:
            windowed = self.windowed_of(at)
            listener(windowed, new, old, self._timestamp_of(windowed, timestamp_ms))

        self._entries.set_flush_listener(flushed, send_old_values=send_old_values)

    def release(self, time_ms: int) -> None:
        """Everything up to this time was emitted: it may expire from now on (emit on window close)."""
        self._aging.release(time_ms)

    def restore(self, records: Iterable[RestoreRecord]) -> int:
        """Apply changelog records: past log and cache, in order. Returns how many; null keys are skipped."""
        entries = ChangelogEntries.of(records)
        placed = entries.at(list(map(self._placed, entries.keys)))
        if self.retention.keeps_duplicates and placed.removes:  # there null deletes nothing,
            for at, value, _ in placed:
                if at is not None and value is None:
                    self._aging.observe(self._layout.time_of(at))  # but time has come so far
            placed = ChangelogEntries.of([record for record in placed if record[1] is not None])
        self._places.clear()
        return self._entries.restore(placed)

    def _placed(self, key: bytes | None) -> bytes | None:
        """Where an entry of the changelog lies."""
        if key is None:
            return None
        if len(key) < self._layout.suffix_bytes:
            raise InvalidStateStoreError(
                f"changelog {self.codec.topic} of store {self.name!r} has a key of {len(key)} bytes, too short "
                "for a key with its window: it was written by another kind of store"
            )
        return segment_prefix(self._layout.time_of(key) // self._segment_ms) + key

    def flush_cache(self) -> int:
        """Write and forward what the record cache holds; how many entries that were."""
        flushed = self._entries.flush_cache()
        if flushed:
            self._forget_places()
        return flushed

    def clear_cache(self) -> None:
        """Forget what the record cache holds."""
        self._entries.clear_cache()
        self._places.clear()

    def clear(self) -> None:
        """Remove everything, unlogged: before a restoration from the beginning."""
        self._entries.clear()
        self._places.clear()
        self._latest_ms = self._aging.stream_time_ms

    def roll_back(self) -> None:
        """The bytes below are as of the last commit again, and so is what is known of them."""
        self._aging.roll_back()
        self._latest_ms = self._aging.stream_time_ms

    def close(self) -> None:
        """Let go of the files. A second call does nothing; every other call raises InvalidStateStoreError."""
        self._entries.close()

    def rebind(self, *, log: ChangeLog | None, context: RecordContext) -> None:
        """Belong to another task object from now on."""
        self._context = context
        self._entries.rebind(log=without_segment(log), context=context)

    def check_open(self) -> None:
        """InvalidStateStoreError when the store is closed."""
        self._direct.check_open()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} over {self._entries!r}>"
