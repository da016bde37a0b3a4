"""Key-value stores with a record cache (Kafka Streams' CachingKeyValueStore over NamedCache).

A write stays in the cache, with the context of its record, until the task commits or the budget is exceeded. Then it
is written to the store below, which logs it, and the flush listener forwards it. So of several updates of a key within
a commit interval only the last one reaches changelog and downstream (KIP-63).

* Flushing goes in the order of the last write of each key. Flushed entries stay, clean, for reading.
* Evicting a dirty entry flushes all dirty entries of the store; the least recently used entry goes first. (Reads count
  as use only once something had to be evicted: before that, nobody needs the order.)
* While an entry is flushed the task's record context is that of the entry.

For speed an entry holds Python objects where the serdes promise that this makes no difference (``Serde.plain_type``);
then encoding happens once per flush instead of once per write. Otherwise it holds bytes, so that nobody can change a
cached value from outside, and a value that does not fit is refused when it is put.

The cache is written by the thread that owns the task. ``peek`` and ranges may be called from any thread: they first
copy the dirty entries, then take the snapshot below; a flush in between writes below before it forgets, and the key
that is just being rewritten is remembered in ``_last``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import Any, TypeVar

from streams_py.ports import Headers
from streams_py.state.bytes_store import overlaid
from streams_py.state.cache import RecordCache, headers_size
from streams_py.state.codec import TIMESTAMP_BYTES, timestamp_of
from streams_py.state.key_value import ChangeLog, PlainStore, RestoreRecord, StoreOverBytes, TimestampedStore
from streams_py.state.operations import KeyValueOperations
from streams_py.topology.nodes import RecordContext
from streams_py.topology.stores import FlushListener, Updater, ValueAndTimestamp

__all__ = ["CachedPlainStore", "CachedTimestampedStore"]

K = TypeVar("K")
V = TypeVar("V")
S = TypeVar("S")

_ENTRY_BYTES = 65
"""Counted per entry besides key, value and headers: 25 for Kafka's bookkeeping (LRUNode and dirty flag), 20 for offset,
timestamp and partition, 20 for a topic name of usual length."""

_KEY_TYPES = (str, bytes, int)
"""Plain types whose hashing and comparing is quick and runs no Python code."""

_FLUSH_PASSES_MAX = 8
"""A flush may make its own store dirty again (a processor below writes to it). Beyond so many rounds it is a circle."""

_Entry = tuple[Any, int, "str | None", int, int, int, Headers]
"""What is held (None: deleted), counted bytes, and the record context: topic, partition, offset, timestamp, headers."""

_new_tuple = tuple.__new__


class _Nothing:
    """No object is exactly of this type."""


class _ClosedStore(dict[Any, None]):
    """Takes the place of the dirty keys of a closed store, so that the path of a record needs no check."""

    def __init__(self, refuse: Callable[[], None]) -> None:
        super().__init__()
        self._refuse = refuse

    def pop(self, *_: object) -> Any:
        self._refuse()


class _CachedStore(KeyValueOperations[K, V, S]):
    """What both kinds have in common. ``below`` is the store that is cached."""

    is_cached = True

    def __init__(self, below: StoreOverBytes[K, V, S], context: RecordContext, cache: RecordCache) -> None:
        codec = below.codec
        self.codec = codec
        self._below = below
        self._context = context
        self._cache = cache
        self._listener: FlushListener | None = None
        self._send_old_values = False
        self._flushing = False
        # Clean entries are in the order of their last use; dirty ones stay where they are until flushed, or until
        # eviction meets them. The order that flushing needs is that of the dirty keys.
        self._entries: dict[Any, _Entry] = {}
        self._dirty: dict[Any, None] = {}
        self._last: Any = None
        self._evicts = False
        # Entries are found by the key itself where that is safe, else by its bytes.
        self._finds_by_key = codec.key_serde.plain_type in _KEY_TYPES
        self._key_type: type[Any] | None = codec.key_serde.plain_type if self._finds_by_key else _Nothing
        self._key_size = codec.key_serde.fixed_size
        self._holds_objects = codec.value_serde.plain_type is not None
        self._value_type: type[Any] | None = codec.value_serde.plain_type or _Nothing
        self._value_size = codec.value_serde.fixed_size
        cache.register(self)

    @property
    def name(self) -> str:
        return self._below.name

    @property
    def persistent(self) -> bool:
        """True when the content is on disk."""
        return self._below.persistent

    @property
    def is_open(self) -> bool:
        """False after :meth:`close`."""
        return self._below.is_open

    @property
    def content(self) -> Any:
        """The bytes below the cache."""
        return self._below.content

    # -- reading -----------------------------------------------------------------------------------------------

    def get(self, key: K) -> S | None:
        """What is stored for ``key``, flushed or not."""
        at: Any = key if key.__class__ is self._key_type else self._place_of(key)
        entry = self._entries.get(at)
        if entry is None:
            return self._load(at)
        if self._evicts:
            self._use(at)
        return self._stored(entry[0])

    def peek(self, key: K) -> S | None:
        """As :meth:`get`, for other threads: does not count as use of the entry, and caches nothing."""
        at = self._place_of(key)
        entry = self._entries.get(at)
        while entry is None and at in self._dirty:  # caught while it was moved
            entry = self._entries.get(at)
        if entry is None:
            return self._below.peek(key)
        self._below.check_open()
        return self._stored(entry[0])

    def _use(self, at: Any) -> None:
        if at not in self._dirty:
            self._entries[at] = self._entries.pop(at)

    def scan(self, first: bytes | None, end: bytes | None, *, reverse: bool) -> Iterator[tuple[bytes, S]]:
        """Snapshot of the entries by serialized key, from ``first`` on and below ``end``, unflushed ones included."""
        above = self._dirty_between(first, end)
        above.sort(key=itemgetter(0), reverse=reverse)
        return overlaid(above, self._below.scan(first, end, reverse=reverse), reverse=reverse)

    def _dirty_between(self, first: bytes | None, end: bytes | None) -> list[tuple[bytes, S | None]]:
        found: list[tuple[bytes, S | None]] = []
        last = self._last
        dirty = dict.fromkeys(list(self._dirty))
        if last is not None:
            dirty[last] = None
        for at in dirty:
            entry = self._entries.get(at)
            if entry is None:
                continue  # evicted meanwhile, so it is below
            key = self._bytes_of(at)
            if (first is None or key >= first) and (end is None or key < end):
                found.append((key, self._stored(entry[0])))
        return found

    def approximate_num_entries(self) -> int:
        """As of the last flush; on disk an estimate."""
        return self._below.approximate_num_entries()

    def _place_of(self, key: K) -> Any:
        """Where in the cache ``key`` is found."""
        if key.__class__ is self._key_type:
            return key
        key_bytes = self.key_bytes(key)
        return self.codec.decode_key(key_bytes) if self._finds_by_key else key_bytes

    def _bytes_of(self, at: Any) -> bytes:
        if not self._finds_by_key:
            found: bytes = at
            return found
        return self.key_bytes(at)

    def _load(self, at: Any) -> S | None:
        """Read from below, and keep it as a clean entry."""
        data = self._below.read_data(self._bytes_of(at))
        if data is None:
            return None
        stored = self._below.decode_data(data)
        self._keep(at, self._held(stored) if self._holds_objects else data, len(data), ())
        return stored

    # -- writing -----------------------------------------------------------------------------------------------

    @abstractmethod
    def _held(self, stored: S) -> Any:
        """What an entry holds for it, when it holds objects."""

    @abstractmethod
    def _stored(self, held: Any) -> S | None:
        """What an entry's content stands for."""

    @abstractmethod
    def _data_of(self, held: Any) -> bytes: ...
    @abstractmethod
    def _value_of(self, stored: S) -> Any: ...
    @abstractmethod
    def _timestamp_of(self, stored: S) -> int:
        """Of the record that forwards it."""

    def _put_held(self, at: Any, held: Any, value_bytes: int) -> None:
        self._last = at
        self._dirty.pop(at, None)
        self._dirty[at] = None
        self._keep(at, held, value_bytes, self._context.headers)

    def _keep(self, at: Any, held: Any, value_bytes: int, headers: Headers) -> None:
        context = self._context
        key_bytes = self._key_size
        size = _ENTRY_BYTES + (len(at) if key_bytes is None else key_bytes) + value_bytes
        if headers:
            size += headers_size(headers)
        replaced = self._entries.get(at)
        self._entries[at] = (held, size, context.topic, context.partition, context.offset, context.timestamp, headers)
        cache = self._cache
        cache.used_bytes += size if replaced is None else size - replaced[1]
        if cache.used_bytes > cache.max_bytes:
            self.evict()

    def evict(self) -> None:
        """Evict least recently used entries until the budget is kept; flushes first when only dirty ones are left."""
        self._evicts = True
        cache, entries, dirty = self._cache, self._entries, self._dirty
        while cache.used_bytes > cache.max_bytes and entries and not self._flushing:
            if len(dirty) == len(entries):
                self.flush_cache()
                if len(dirty) == len(entries):
                    return  # all written again by their own flush: over budget rather than losing them
            oldest = next(iter(entries))
            if oldest in dirty:  # used since it got here
                entries[oldest] = entries.pop(oldest)
            else:
                self._forget(oldest)

    def _forget(self, at: Any) -> None:
        entry = self._entries.pop(at, None)
        if entry is not None:
            self._cache.used_bytes -= entry[1]

    def set_flush_listener(self, listener: FlushListener, *, send_old_values: bool) -> None:
        """Who forwards flushed entries; the old value is read only when ``send_old_values``."""
        self._listener = listener
        self._send_old_values = send_old_values

    def flush_cache(self) -> None:
        """Write all dirty entries below, and forward them, in the order of their last write."""
        if self._flushing or not self._dirty:
            return
        context = self._context
        saved = (context.topic, context.partition, context.offset, context.timestamp, context.headers)
        self._flushing = True
        try:
            for _ in range(_FLUSH_PASSES_MAX):
                for at in list(self._dirty):
                    self._flush_entry(at, self._entries[at])
                if not self._dirty:
                    return
        finally:
            self._flushing = False
            context.topic, context.partition, context.offset, context.timestamp, context.headers = saved

    def _flush_entry(self, at: Any, entry: _Entry) -> None:
        held, _, topic, partition, offset, timestamp, headers = entry
        below, listener, context = self._below, self._listener, self._context
        key = self._bytes_of(at)
        data = None if held is None else self._data_of(held)
        old: bytes | None = None
        if listener is not None and (data is None or self._send_old_values):
            old = below.read_data(key)
            if data is None and old is None:
                self._flushed(at, held)
                return
        context.topic = topic
        context.partition = partition
        context.offset = offset
        context.timestamp = timestamp
        context.headers = headers
        below.write_data(key, data)
        self._flushed(at, held)
        if listener is not None:
            new = self._stored(held)
            listener(
                at if self._finds_by_key else self.codec.decode_key(key),
                None if new is None else self._value_of(new),
                self._value_of(below.decode_data(old)) if old is not None and self._send_old_values else None,
                timestamp if new is None else self._timestamp_of(new),
            )

    def _flushed(self, at: Any, held: Any) -> None:
        if held is None:
            self._forget(at)  # nothing to read again
        else:
            self._entries[at] = self._entries.pop(at)
        self._dirty.pop(at, None)

    # -- life --------------------------------------------------------------------------------------------------

    def restore(self, records: Iterable[RestoreRecord]) -> int:
        """Apply changelog records below the cache, which forgets what it has (a committed task is restored again)."""
        self.clear_cache()
        return self._below.restore(records)

    def clear_cache(self) -> None:
        """Forget all entries, unwritten ones too: the task was committed, or failed."""
        self._dirty.clear()
        self._cache.used_bytes -= sum(entry[1] for entry in self._entries.values())
        self._entries.clear()

    def clear(self) -> None:
        """Remove everything, unlogged: before a restoration from the beginning."""
        self.clear_cache()
        self._below.clear()

    def flush(self) -> None:
        """Flush what has left the cache to disk."""
        self._below.flush()

    def close(self) -> None:
        """Close without flushing the cache; every later call but this one raises InvalidStateStoreError."""
        if self._below.is_open:
            self._below.close()
            self.clear_cache()
            self._dirty = _ClosedStore(self._below.check_open)
            self._cache.unregister(self)

    def rebind(self, *, log: ChangeLog | None, context: RecordContext) -> None:
        """Belong to another task object from now on."""
        self._context = context
        self._below.rebind(log=log, context=context)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} over {self._below!r}>"


class CachedPlainStore(_CachedStore[K, V, V]):
    """:class:`PlainStore` with a record cache."""

    def __init__(self, below: PlainStore[K, V], context: RecordContext, cache: RecordCache) -> None:
        super().__init__(below, context, cache)
        self._plain = below

    def put(self, key: K, value: V | None) -> None:
        """Store ``value`` in the cache; None deletes."""
        at = self._place_of(key)
        if value is None:
            self._put_held(at, None, 0)
            return
        data = self._plain.encode_data(value)
        held: Any = value
        if not self._holds_objects:
            held = data
        elif value.__class__ is not self._value_type:
            held = self._plain.decode_data(data)
        self._put_held(at, held, len(data))

    def _held(self, stored: V) -> Any:
        return stored

    def _stored(self, held: Any) -> V | None:
        stored: V | None = held if held is None or self._holds_objects else self._plain.decode_data(held)
        return stored

    def _data_of(self, held: Any) -> bytes:
        return self._plain.encode_data(held) if self._holds_objects else held

    def _value_of(self, stored: V) -> Any:
        return stored

    def _timestamp_of(self, stored: V) -> int:
        return self._context.timestamp


class CachedTimestampedStore(_CachedStore[K, V, "ValueAndTimestamp[V]"]):
    """:class:`TimestampedStore` with a record cache."""

    def __init__(self, below: TimestampedStore[K, V], context: RecordContext, cache: RecordCache) -> None:
        super().__init__(below, context, cache)
        self._timestamped = below

    def get_parts(self, key: K) -> tuple[V, int] | None:
        """As :meth:`get`, but a bare (value, timestamp_ms): for operators, which only unpack it."""
        at: Any = key if key.__class__ is self._key_type else self._place_of(key)
        entry = self._entries.get(at)
        if entry is None:
            return self._load(at)
        if self._evicts:
            self._use(at)
        held: Any = entry[0]
        return held if self._holds_objects or held is None else self._timestamped.decode_parts(held)

    def put(self, key: K, value: ValueAndTimestamp[V] | None) -> None:
        """Store a value with its timestamp in the cache; None deletes."""
        if value is None:
            self._put_held(self._place_of(key), None, 0)
        else:
            self.put_value(key, value[0], value[1])

    def put_value(self, key: K, value: V | None, timestamp_ms: int) -> None:
        """Store a value with its timestamp in the cache; None deletes."""
        at: Any = key if key.__class__ is self._key_type else self._place_of(key)
        if value.__class__ is not self._value_type:
            self._put_other(at, value, timestamp_ms)
            return
        # As _put_held, without the calls: this is the path of every record of a cached aggregation.
        entries, dirty, context = self._entries, self._dirty, self._context
        self._last = at
        dirty.pop(at, None)  # refuses when the store is closed
        dirty[at] = None
        replaced = entries.get(at)
        if replaced is not None and self._value_size is not None:
            counted = replaced[1]  # of a number; headers that differ are not worth counting
        else:
            counted = self._count(at, value, replaced)
        entries[at] = (
            (value, timestamp_ms),
            counted,
            context.topic,
            context.partition,
            context.offset,
            context.timestamp,
            context.headers,
        )
        if self._cache.used_bytes > self._cache.max_bytes:
            self.evict()

    def updater(self, initializer: Callable[[], V] | None, aggregator: Callable[[K, Any, V], V | None]) -> Updater:
        """Reading, aggregating and writing of one record as one function; see ``TimestampedKeyValueStore``."""
        entries, cache, key_type, value_type = self._entries, self._cache, self._key_type, self._value_type
        holds_objects, is_number = self._holds_objects, self._value_size is not None

        def update(key: K, value: Any, timestamp_ms: int) -> tuple[Any, Any, int]:
            at: Any = key if key.__class__ is key_type else self._place_of(key)
            replaced = entries.get(at)
            if replaced is not None and holds_objects and not self._evicts:
                parts: tuple[V, int] | None = replaced[0]
            else:
                parts = self.get_parts(key)
                replaced = entries.get(at)
            old: V | None = None
            new: V | None
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
            dirty, context = self._dirty, self._context
            self._last = at
            dirty.pop(at, None)  # refuses when the store is closed
            dirty[at] = None
            entries[at] = (
                (new, timestamp_ms),
                replaced[1] if replaced is not None and is_number else self._count(at, new, replaced),
                context.topic,
                context.partition,
                context.offset,
                context.timestamp,
                context.headers,
            )
            if cache.used_bytes > cache.max_bytes:
                self.evict()
            return new, old, timestamp_ms

        return update

    def _put_other(self, at: Any, value: V | None, timestamp_ms: int) -> None:
        """A deletion, or a value that is held as bytes, or one that the serde turns into the plain type first."""
        if value is None:
            self._put_held(at, None, 0)
            return
        data = self._timestamped.encode_parts(value, timestamp_ms)
        self._put_held(at, self._timestamped.decode_parts(data) if self._holds_objects else data, len(data))

    def _count(self, at: Any, value: Any, replaced: _Entry | None) -> int:
        """Bytes of an entry, added to what the cache uses."""
        headers = self._context.headers
        size = _ENTRY_BYTES + TIMESTAMP_BYTES + (len(value) if self._value_size is None else self._value_size)
        size += (len(at) if self._key_size is None else self._key_size) + (headers_size(headers) if headers else 0)
        self._cache.used_bytes += size if replaced is None else size - replaced[1]
        return size

    def _flush_entry(self, at: Any, entry: _Entry) -> None:
        held, _, topic, partition, offset, timestamp, headers = entry
        if held is None:
            super()._flush_entry(at, entry)
            return
        # The same with fewer calls: with short commit intervals this is on the path of every other record.
        below, listener, context = self._timestamped, self._listener, self._context
        key = self.key_bytes(at) if self._finds_by_key else at
        if self._holds_objects:
            value, timestamp_ms = held
            data = below.encode_parts(value, timestamp_ms)
        else:
            data, timestamp_ms = held, timestamp_of(held)
        old = below.read_data(key) if self._send_old_values and listener is not None else None
        context.topic = topic
        context.partition = partition
        context.offset = offset
        context.timestamp = timestamp
        context.headers = headers
        below.write_stamped(key, data, timestamp_ms)
        self._entries[at] = self._entries.pop(at)
        self._dirty.pop(at, None)
        if listener is not None:
            if not self._holds_objects:
                value = below.decode_parts(data)[0]
            before = None if old is None else below.decode_parts(old)[0]
            listener(at if self._finds_by_key else self.codec.decode_key(key), value, before, timestamp_ms)

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
