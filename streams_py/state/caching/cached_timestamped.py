"""A timestamped key-value store with a record cache; see :mod:`streams_py.state.caching.cached`.

Cached aggregations use this store. For speed, each operation on a record is written out as one function, without calls
between objects.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from streams_py.state.caching.cache import RecordCache, encoded_length
from streams_py.state.caching.cached import ENTRY_BYTES, CachedStore, Entry
from streams_py.state.stores.codec import TIMESTAMP_BYTES, timestamp_of
from streams_py.state.stores.key_value import TimestampedStore
from streams_py.topology.declare.nodes import RecordContext
from streams_py.topology.declare.stores import Updater, ValueAndTimestamp

K = TypeVar("K")
V = TypeVar("V")

_new_tuple = tuple.__new__


class CachedTimestampedStore(CachedStore[K, V, "ValueAndTimestamp[V]"]):
    """A :class:`TimestampedStore` with a record cache."""

    def __init__(
        self,
        below: TimestampedStore[K, V],
        context: RecordContext,
        cache: RecordCache,
        *,
        keeps_what_is_read: bool = True,
        entry_bytes: int = ENTRY_BYTES,
    ) -> None:
        super().__init__(below, context, cache, keeps_what_is_read=keeps_what_is_read, entry_bytes=entry_bytes)
        self._timestamped = below

    def get_parts(self, key: K) -> tuple[V, int] | None:
        """As :meth:`get`, but returns a plain tuple (value, timestamp_ms), for operators that only unpack it."""
        at: Any = key if key.__class__ is self._key_type else self._cache_key(key)
        entry = self._entries.get(at)
        if entry is None:
            return self._load(at, is_written_next=False)
        self.note_use(at)
        held: Any = entry[0]
        return held if self._holds_objects or held is None else self._timestamped.decode_parts(held)

    def put(self, key: K, value: ValueAndTimestamp[V] | None) -> None:
        """Store a value with its timestamp in the cache. None deletes."""
        if value is None:
            self._put_held(self._cache_key(key), None, 0)
        else:
            self.put_value(key, value[0], value[1])

    def put_value(self, key: K, value: V | None, timestamp_ms: int) -> None:
        """Store a value with its timestamp in the cache. None deletes."""
        at: Any = key if key.__class__ is self._key_type else self._cache_key(key)
        if value.__class__ is not self._value_type:
            self._put_other(at, value, timestamp_ms)
            return
        # Same as _put_held, but without calls, because this runs for every record of a cached aggregation.
        entries, dirty, context = self._entries, self._dirty, self._context
        replaced = entries.get(at)
        topic, headers = context.topic, context.headers
        if (
            replaced is not None
            and self._is_number
            and replaced[2] is topic
            and replaced[6] is headers
            and replaced[0] is not None
        ):
            counted = replaced[1]
        else:
            counted = self._count(at, value, replaced)
        self._last = at
        dirty.pop(at, None)  # raises if the store is closed
        dirty[at] = None
        if self._uses is not None:
            self._note_write(at)
        entries[at] = (
            (value, timestamp_ms),
            counted,
            topic,
            context.partition,
            context.offset,
            context.timestamp,
            headers,
        )
        if self._cache.used_bytes > self._cache.max_bytes:
            self.evict()

    def meet(self, key: K) -> None:
        """Read ``key`` before it is written, if that could evict other entries.

        Kafka Streams' table source reads the old row first, and the row that it reads may evict other entries.
        """
        at: Any = key if key.__class__ is self._key_type else self._cache_key(key)
        if at not in self._entries and self._cache.used_bytes * 2 > self._cache.max_bytes:
            self._load(at, is_written_next=True)

    def updater(self, initializer: Callable[[], V] | None, aggregator: Callable[[K, Any, V], V | None]) -> Updater:
        """Return a function that reads, aggregates and writes one record; see ``TimestampedKeyValueStore``."""
        entries, cache, key_type, value_type = self._entries, self._cache, self._key_type, self._value_type
        holds_objects, is_number, decode = self._holds_objects, self._is_number, self._timestamped.decode_parts
        count, find = self._count, entries.get
        dirty, undirty = self._dirty, self._dirty.pop

        def update(key: K, value: Any, timestamp_ms: int) -> tuple[Any, Any, int]:
            at: Any = key if key.__class__ is key_type else self._cache_key(key)
            replaced = find(at)
            parts: tuple[V, int] | None
            if replaced is None:
                parts = self._load(at, is_written_next=True)
                replaced = find(at)
            elif holds_objects:  # the write further down counts as the use
                parts = replaced[0]
            else:
                parts = None if replaced[0] is None else decode(replaced[0])
            old: Any = None
            new: Any
            if parts is None:
                if initializer is None:
                    new = value
                else:
                    old = initializer()
                    new = aggregator(key, value, old)
            else:
                old, stored_ms = parts
                if stored_ms > timestamp_ms:
                    timestamp_ms = stored_ms
                new = aggregator(key, value, old)
            if new.__class__ is not value_type:
                self._put_other(at, new, timestamp_ms)
                return new, old, timestamp_ms
            context = self._context
            topic, headers = context.topic, context.headers
            if parts is None or replaced is None or replaced[2] is not topic or replaced[6] is not headers:
                counted = count(at, new, replaced)
            elif is_number:
                counted = replaced[1]
            else:  # only the size of the value may have changed
                more = (
                    len(new) - len(old)
                    if new.isascii() and old.isascii()
                    else encoded_length(new) - encoded_length(old)
                )
                counted = replaced[1] + more
                cache.used_bytes += more
            self._last = at
            undirty(at, None)
            dirty[at] = None
            if self._uses is not None:
                self._note_write(at)
            entries[at] = (
                (new, timestamp_ms),
                counted,
                topic,
                context.partition,
                context.offset,
                context.timestamp,
                headers,
            )
            if cache.used_bytes > cache.max_bytes:
                self.evict()
            return new, old, timestamp_ms

        return update

    def _put_other(self, at: Any, value: V | None, timestamp_ms: int) -> None:
        """Put a deletion, a value that is held as bytes, or one that the serde must convert to the plain type."""
        if value is None:
            self._put_held(at, None, 0)
            return
        data = self._timestamped.encode_parts(value, timestamp_ms)
        self._put_held(at, self._timestamped.decode_parts(data) if self._holds_objects else data, len(data))

    def _count(self, at: Any, value: Any, replaced: Entry | None) -> int:
        """Return the counted bytes of an entry, and add them to the bytes that the cache uses."""
        self._timestamped.check_open()
        context = self._context
        value_bytes: int | None = self._value_size
        if value_bytes is None:
            value_bytes = len(value) if value.isascii() else encoded_length(value)
        size = self._size(at, TIMESTAMP_BYTES + value_bytes, context.topic, context.headers)
        self._cache.used_bytes += size if replaced is None else size - replaced[1]
        return size

    def _flush_entry(self, at: Any, entry: Entry) -> None:
        held, _, topic, partition, offset, timestamp, headers = entry
        if held is None:
            super()._flush_entry(at, entry)
            return
        # Same as the base class, with fewer calls: with short commit intervals this runs for every second record.
        below, listener, context = self._timestamped, self._listener, self._context
        key = self.key_bytes(at) if self._finds_by_key else at
        if self._holds_objects:
            value, timestamp_ms = held
            data = below.encode_parts(value, timestamp_ms)
        else:
            data, timestamp_ms = held, timestamp_of(held)
        old: bytes | None = None
        if at in self._old_of_failed:
            old = self._old_of_failed[at]
        elif self._send_old_values and listener is not None:
            old = below.read_data(key)
        context.topic = topic
        context.partition = partition
        context.offset = offset
        context.timestamp = timestamp
        context.headers = headers
        try:
            below.write_stamped(key, data, timestamp_ms)
            if listener is not None:
                if not self._holds_objects:
                    value = below.decode_parts(data)[0]
                before = below.decode_parts(old)[0] if old is not None and self._send_old_values else None
                listener(at if self._finds_by_key else self.codec.decode_key(key), value, before, timestamp_ms)
        except BaseException:
            self._old_of_failed[at] = old
            raise
        if self._old_of_failed:
            self._old_of_failed.pop(at, None)

    def _held(self, stored: ValueAndTimestamp[V]) -> Any:
        return stored[0], stored[1]

    def _stored(self, held: Any) -> ValueAndTimestamp[V] | None:
        if held is None:
            return None
        if not self._holds_objects:
            return self._timestamped.decode_data(held)
        return _new_tuple(ValueAndTimestamp, held)

    def _data_of(self, held: Any) -> bytes:
        return self._timestamped.encode_data(held) if self._holds_objects else held

    def _value_of(self, stored: ValueAndTimestamp[V]) -> Any:
        return stored[0]

    def _timestamp_of(self, stored: ValueAndTimestamp[V]) -> int:
        return stored[1]
