"""The common base of key-value stores with a record cache (Kafka Streams' CachingKeyValueStore over NamedCache).

A write stays in the cache, with the context of its record, until the task commits or the budget is exceeded. Then the
cache writes it to the underlying store, which logs it, and the flush listener forwards it. So of several updates of a
key within a commit interval, only the last one reaches the changelog and downstream nodes (KIP-63).

* Entries are flushed in the order of the last write of each key. Flushed entries stay in the cache as clean entries.
* The least recently used entry is evicted first, dirty or not. Every write and every read counts as a use. If the
  evicted entry is dirty, it is flushed, and then all other dirty entries of its store. So the changelog and downstream
  nodes get the entries in the same order for every budget.
* While an entry is flushed, the task's record context is the context of the entry.
* For eviction, all entries of a flush are clean from the start of the flush. If flushing an entry fails (the broker
  does not answer), this entry and all later ones become dirty again and are flushed again later. Downstream nodes still
  know the value that the underlying store had before, so ``_old_of_failed`` remembers it.

The order of use needs no bookkeeping while every read is part of a write (as in a count) and no entry was evicted: the
clean entries come first, in the order of ``_entries``, then the dirty entries, in the order of ``_dirty``. The first
other read or eviction creates ``_uses``, which keeps the order from then on.

For speed, an entry holds Python objects if the serdes guarantee that this makes no difference (``Serde.plain_type``).
Then values are encoded once per flush instead of once per write. Otherwise an entry holds bytes, so that other code
cannot change a cached value, and a value that cannot be serialized is refused when it is put.

Only the thread that owns the task writes to the cache. ``peek`` and ranges may be called by any thread. They first copy
the dirty entries and those being flushed, and then take a snapshot of the underlying store. This is safe: a flush
writes an entry to the underlying store before it removes the entry, and ``_last`` remembers the key that is being
written.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import filterfalse
from operator import itemgetter
from threading import get_ident
from typing import Any, TypeVar, cast

from streams_py.ports import Headers
from streams_py.state.caching.cache import RecordCache, encoded_length, headers_size
from streams_py.state.caching.closed import ClosedStore
from streams_py.state.custom.bytes_adapter import CustomBytesAdapter
from streams_py.state.stores.bytes_store import overlaid
from streams_py.state.stores.changelog_entries import RestoreRecord
from streams_py.state.stores.key_value import ChangeLog, StoreOverBytes
from streams_py.state.stores.operations import KeyValueOperations
from streams_py.topology.declare.nodes import RecordContext
from streams_py.topology.declare.stores import FlushListener

K = TypeVar("K")
V = TypeVar("V")
S = TypeVar("S")

ENTRY_BYTES = 45
"""Bytes counted per entry in addition to key, value, headers and topic name.

They are 25 bytes for Kafka's bookkeeping (LRUNode and dirty flag), and 20 for offset, timestamp and partition.
"""

_KEY_TYPES = (str, bytes, int)
"""Plain types that are hashed and compared quickly, without running Python code."""
Entry = tuple[Any, int, "str | None", int, int, int, Headers]
"""Value (None: deleted), counted bytes, and the record context: topic, partition, offset, timestamp, headers."""


class CachedStore(KeyValueOperations[K, V, S]):
    """The common base of plain and timestamped key-value stores with a record cache."""

    is_cached = True

    def __init__(
        self,
        below: StoreOverBytes[K, V, S],
        context: RecordContext,
        cache: RecordCache,
        *,
        keeps_what_is_read: bool = True,
        entry_bytes: int = ENTRY_BYTES,
    ) -> None:
        """Create a store with an empty cache.

        Args:
            below: The underlying store.
            context: The record context of the task.
            cache: The budget of the stream thread.
            keeps_what_is_read: Whether a value read from the underlying store becomes a clean entry.
            entry_bytes: Bytes counted per entry; see :data:`ENTRY_BYTES`.
        """
        codec = below.codec
        self.codec = codec
        self._below = below
        self._context = context
        self._cache = cache
        self._listener: FlushListener | None = None
        self._send_old_values = False
        self._flushing = False
        # A custom store may drop a key that still has a clean entry here.
        self._has_more_than_below = isinstance(below.content, CustomBytesAdapter)
        self._keeps_what_is_read = keeps_what_is_read
        self._entry_bytes = entry_bytes
        self._thread = get_ident()
        self._entries: dict[Any, Entry] = {}
        self._dirty: dict[Any, None] = {}
        self._uses: OrderedDict[Any, None] | None = None
        self._flushed: dict[Any, Entry] = {}  # entries of the running flush that are not written yet
        self._old_of_failed: dict[Any, bytes | None] = {}
        self._last: Any = None
        # Cache keys are the keys themselves where that is safe, otherwise their bytes. The type CachedStore, which no
        # key or value has, disables the shortcuts for keys and values of the plain type.
        self._finds_by_key = codec.key_serde.plain_type in _KEY_TYPES
        self._key_type: type[Any] | None = codec.key_serde.plain_type if self._finds_by_key else CachedStore
        self._key_size = codec.key_serde.fixed_size
        self._holds_objects = codec.value_serde.plain_type is not None
        self._value_type: type[Any] | None = codec.value_serde.plain_type or CachedStore
        self._value_size = codec.value_serde.fixed_size
        self._is_number = self._holds_objects and self._value_size is not None
        cache.register(self)

    @property
    def name(self) -> str:
        return self._below.name

    @property
    def persistent(self) -> bool:
        """Whether the content is on disk."""
        return self._below.persistent

    @property
    def is_open(self) -> bool:
        """False after :meth:`close`."""
        return self._below.is_open

    @property
    def content(self) -> Any:
        """The bytes store of the underlying store."""
        return self._below.content

    # -- reading -----------------------------------------------------------------------------------------------

    def get(self, key: K) -> S | None:
        """Return the value of ``key``, flushed or not."""
        at: Any = key if key.__class__ is self._key_type else self._cache_key(key)
        entry = self._entries.get(at)
        if entry is None:
            return self._load(at, is_written_next=False)
        self.note_use(at)
        return self._stored(entry[0])

    def peek(self, key: K) -> S | None:
        """As :meth:`get`, for any thread. Does not count as a use of the entry, and caches nothing."""
        entry = self._find(self._cache_key(key))
        if entry is None:
            return self._below.peek(key)
        self._below.check_open()
        return self._stored(entry[0])

    def value_data(self, key: K) -> bytes | None:
        """Return the serialized value of ``key``, flushed or not. Does not count as a use of the entry."""
        if (entry := self._find(self._cache_key(key))) is None:
            return self._below.value_data(key)
        return None if entry[0] is None else self._below.value_part(self._data_of(entry[0]))

    def _find(self, at: Any) -> Entry | None:
        """Return the newest entry. Thread-safe."""
        entry = self._entries.get(at)
        while entry is None and at in self._dirty:  # the owner is moving the entry
            entry = self._entries.get(at)
        return self._flushed.get(at) if entry is None else entry

    def scan(self, first: bytes | None, end: bytes | None, *, reverse: bool) -> Iterator[tuple[bytes, S]]:
        """Return the entries by serialized key from ``first`` (included) to ``end`` (excluded), flushed or not."""
        above = self._held_between(first, end)
        above.sort(key=itemgetter(0), reverse=reverse)
        return overlaid(above, self._below.scan(first, end, reverse=reverse), reverse=reverse)

    def _with_keys(self, entries: Iterator[tuple[bytes, S]]) -> Iterator[tuple[K, S]]:
        rows = super()._with_keys(entries)
        return self._using(rows) if get_ident() == self._thread else rows

    def _using(self, rows: Iterator[tuple[K, S]]) -> Iterator[tuple[K, S]]:
        for key, stored in rows:
            self.note_use(self._cache_key(key))
            yield key, stored

    def _held_between(self, first: bytes | None, end: bytes | None) -> list[tuple[bytes, S | None]]:
        found: list[tuple[bytes, S | None]] = []
        last = self._last
        held = dict.fromkeys(list(self._entries if self._has_more_than_below else self._dirty))
        held.update(dict.fromkeys(list(self._flushed)))
        if last is not None:
            held[last] = None
        for at in held:
            entry = self._find(at)
            if entry is None:
                continue  # evicted meanwhile, so the underlying store has it
            key = self._bytes_of(at)
            if (first is None or key >= first) and (end is None or key < end):
                found.append((key, self._stored(entry[0])))
        return found

    @property
    def below(self) -> StoreOverBytes[K, V, S]:
        """The underlying store."""
        return self._below

    def holds(self, at: Any) -> bool:
        """Whether the cache has an entry, clean or dirty, for the serialized key."""
        return at in self._entries

    def held_entries(self, keys: Iterable[Any] | None = None) -> list[tuple[Any, S | None]]:
        """Return cached entries, clean or dirty, by serialized key. None: deleted and not flushed yet.

        Only for stores whose keys are bytes. Thread-safe.

        Args:
            keys: The keys to look up. Default: all cached keys.
        """
        if keys is None:
            keys = dict.fromkeys([*self._entries, *self._flushed])
        found = ((at, self._find(at)) for at in keys)
        return [(at, self._stored(entry[0])) for at, entry in found if entry is not None]

    def counting_uses(self, rows: Iterable[tuple[Any, S]], held: list[tuple[Any, S | None]]) -> Iterator[tuple[Any, S]]:
        """Yield ``rows``, and mark the ``held`` entries as used when Kafka Streams' merged iterator would read them.

        That iterator reads one cached entry ahead, and skips deleted ones. ``held`` has the cached entries in the same
        order as ``rows``. Nothing is marked when another thread than the owner of the task iterates.
        """
        if get_ident() != self._thread:
            yield from rows
            return
        ahead, seen = iter(held), None
        for at, stored in rows:
            while seen is None and (next_held := next(ahead, None)) is not None:
                self.note_use(next_held[0])
                seen = next_held[0] if next_held[1] is not None else None
            yield at, stored
            if at == seen:
                seen = None
        for at, _ in ahead:
            self.note_use(at)

    def approximate_num_entries(self) -> int:
        """Return the number of entries as of the last flush. On disk an estimate."""
        return self._below.approximate_num_entries()

    def _cache_key(self, key: K) -> Any:
        """Return the key under which the cache has the entry of ``key``."""
        if key.__class__ is self._key_type:
            return key
        key_bytes = self.key_bytes(key)
        return self.codec.decode_key(key_bytes) if self._finds_by_key else key_bytes

    def _bytes_of(self, at: Any) -> bytes:
        return self.key_bytes(at) if self._finds_by_key else cast("bytes", at)

    def _load(self, at: Any, *, is_written_next: bool) -> S | None:
        """Read from the underlying store, and keep the value as a clean entry."""
        flushed = self._flushed.get(at)
        if flushed is None:
            data = self._below.read_data(self._bytes_of(at))
        else:  # not in the underlying store yet
            data = None if flushed[0] is None else self._data_of(flushed[0])
        if data is None:
            return None
        stored = self._below.decode_data(data)
        if self._keeps_what_is_read:
            size = self._size(at, len(data), None, ())
            entry = (self._held(stored) if self._holds_objects else data, size, None, -1, -1, -1, ())
            cache = self._cache
            cache.used_bytes += size
            if self._uses is None and (cache.used_bytes > cache.max_bytes or (self._dirty and not is_written_next)):
                self._keep_order()
            self._entries[at] = entry
            if self._uses is not None:
                self._uses[at] = None
            if cache.used_bytes > cache.max_bytes:
                self.evict()
        return stored

    # -- order of use ------------------------------------------------------------------------------------------

    def note_use(self, at: Any) -> None:
        """Count a read of an entry, if there is one, as a use."""
        if at in self._entries:
            uses = self._keep_order() if self._uses is None else self._uses
            uses.move_to_end(at)

    def _note_write(self, at: Any) -> None:
        """Count a write as a use. Only when ``_uses`` is not None."""
        uses = cast("OrderedDict[Any, None]", self._uses)
        uses[at] = None
        uses.move_to_end(at)

    def _keep_order(self) -> OrderedDict[Any, None]:
        """Keep the order of use in ``_uses`` from now on."""
        self._uses = uses = OrderedDict.fromkeys(filterfalse(self._dirty.__contains__, self._entries))
        uses.update(self._dirty)
        return uses

    # -- writing -----------------------------------------------------------------------------------------------

    @abstractmethod
    def _held(self, stored: S) -> Any:
        """Return the value that an entry holds for ``stored``, if entries hold objects."""

    @abstractmethod
    def _stored(self, held: Any) -> S | None:
        """Return the stored value for the value of an entry."""

    @abstractmethod
    def _data_of(self, held: Any) -> bytes: ...
    @abstractmethod
    def _value_of(self, stored: S) -> Any: ...
    @abstractmethod
    def _timestamp_of(self, stored: S) -> int:
        """Return the timestamp of the record that forwards it."""

    def _put_held(self, at: Any, held: Any, value_bytes: int) -> None:
        context, cache, entries = self._context, self._cache, self._entries
        topic, headers = context.topic, context.headers
        size = self._size(at, value_bytes, topic, headers)
        replaced = entries.get(at)
        self._last = at
        self._dirty.pop(at, None)  # raises if the store is closed
        self._dirty[at] = None
        if self._uses is not None:
            self._note_write(at)
        entries[at] = (held, size, topic, context.partition, context.offset, context.timestamp, headers)
        cache.used_bytes += size if replaced is None else size - replaced[1]
        if cache.used_bytes > cache.max_bytes:
            self.evict()

    def _size(self, at: Any, value_bytes: int, topic: str | None, headers: Headers) -> int:
        size: int = self._entry_bytes + value_bytes
        if self._key_size is not None:
            size += self._key_size
        else:
            size += len(at) if not self._finds_by_key or at.isascii() else encoded_length(at)
        if topic is not None:
            size += len(topic)
        return size + headers_size(headers) if headers else size

    @property
    def dirty_entries(self) -> int:
        """Number of entries that are not yet written to the underlying store and forwarded."""
        return len(self._dirty)

    def evict(self) -> None:
        """Evict least recently used entries until the cache is within its budget.

        Stops earlier when the store has no entries left. Evicting a dirty entry flushes all dirty entries of the store.
        If downstream nodes write to this store during the flush, the cache stays over budget until the next write, to
        avoid an endless loop.
        """
        cache, entries = self._cache, self._entries
        has_flushed = self._flushing
        while cache.used_bytes > cache.max_bytes and entries:
            uses = self._keep_order() if self._uses is None else self._uses
            oldest = next(iter(uses))
            if oldest not in self._dirty:
                self._forget(oldest)
            elif has_flushed:
                return
            else:
                has_flushed = True
                size = entries[oldest][1]
                try:
                    self._flush(oldest)
                finally:
                    cache.used_bytes -= size  # only now, as in Kafka Streams: downstream nodes have seen the old value

    def _forget(self, at: Any) -> None:
        entry = self._entries.pop(at, None)
        if entry is not None:
            self._cache.used_bytes -= entry[1]
            if self._uses is not None:
                del self._uses[at]

    def set_flush_listener(self, listener: FlushListener, *, send_old_values: bool) -> None:
        """Set the function that forwards flushed entries. Old values are read only if ``send_old_values``."""
        self._listener = listener
        self._send_old_values = send_old_values

    def flush_cache(self) -> int:
        """Write dirty entries to the underlying store and forward them, in the order of their last write.

        Entries that downstream nodes write to this store meanwhile are dirty afterwards; see ``flush_until_clean``.
        After an error, entries that were not forwarded are still dirty.

        Returns:
            The number of flushed entries.
        """
        return 0 if self._flushing or not self._dirty else self._flush()

    def _flush(self, evicted: Any = None) -> int:
        """Flush ``evicted``, which is removed from the cache, and then all dirty entries."""
        context, entries = self._context, self._entries
        saved = (context.topic, context.partition, context.offset, context.timestamp, context.headers)
        order = list(self._dirty)
        flushed: dict[Any, Entry] = {} if evicted is None else {evicted: entries[evicted]}
        if self._uses is None:  # keep clean entries in the order of their use
            flushed.update([(at, entries.pop(at)) for at in order])
            entries.update(flushed)
        else:
            flushed.update([(at, entries[at]) for at in order])
        self._flushing, self._flushed = True, flushed
        count, began_ms = len(flushed), self._cache.flush_begins()
        if evicted is not None:
            del entries[evicted]
            if self._uses is not None:
                del self._uses[evicted]
        self._dirty.clear()
        deleted: list[tuple[Any, Entry]] = []
        try:
            for at, entry in list(flushed.items()):
                self._flush_entry(at, entry)
                del flushed[at]
                if entry[0] is None:
                    deleted.append((at, entry))
        except BaseException:
            self._make_dirty_again(flushed)
            raise
        finally:
            self._flushing = False
            self._flushed = {}
            self._cache.flush_ended(began_ms, count - len(flushed))
            context.topic, context.partition, context.offset, context.timestamp, context.headers = saved
            for at, entry in deleted:  # a flushed deletion needs no clean entry
                if entries.get(at) is entry:
                    self._forget(at)
        return len(order)

    def _make_dirty_again(self, flushed: dict[Any, Entry]) -> None:
        """Make entries that could not be flushed dirty again, before entries that were put meanwhile."""
        entries, uses, dirty = self._entries, self._uses, self._dirty
        for at, entry in flushed.items():
            if at not in entries:  # evicted
                entries[at] = entry
                self._cache.used_bytes += entry[1]
                if uses is not None:
                    uses[at] = None
        later = list(dirty)
        dirty.update(dict.fromkeys(flushed))
        for at in later:
            self._last = at
            dirty[at] = dirty.pop(at)

    def _flush_entry(self, at: Any, entry: Entry) -> None:
        held, _, topic, partition, offset, timestamp, headers = entry
        below, listener, context = self._below, self._listener, self._context
        key = self._bytes_of(at)
        data = None if held is None else self._data_of(held)
        old: bytes | None = None
        if at in self._old_of_failed:
            old = self._old_of_failed[at]
        elif listener is not None and (data is None or self._send_old_values):
            old = below.read_data(key)
            if data is None and old is None:
                return
        context.topic = topic
        context.partition = partition
        context.offset = offset
        context.timestamp = timestamp
        context.headers = headers
        try:
            below.write_data(key, data)
            if listener is not None:
                new = self._stored(held)
                listener(
                    at if self._finds_by_key else self.codec.decode_key(key),
                    None if new is None else self._value_of(new),
                    self._value_of(below.decode_data(old)) if old is not None and self._send_old_values else None,
                    timestamp if new is None else self._timestamp_of(new),
                )
        except BaseException:
            self._old_of_failed[at] = old
            raise
        if self._old_of_failed:
            self._old_of_failed.pop(at, None)

    # -- life --------------------------------------------------------------------------------------------------

    def restore(self, records: Iterable[RestoreRecord]) -> int:
        """Apply changelog records to the underlying store. Clears the cache (a committed task is restored again)."""
        self.clear_cache()
        return self._below.restore(records)

    def clear_cache(self) -> None:
        """Drop all entries, dirty ones too, because the task was committed or failed."""
        self._dirty.clear()
        self._old_of_failed.clear()
        self._uses = None
        self._cache.used_bytes -= sum(entry[1] for entry in self._entries.values())
        self._entries.clear()

    def clear(self) -> None:
        """Remove everything without logging, before the store is restored from the beginning."""
        self.clear_cache()
        self._below.clear()

    def close(self) -> None:
        """Close without flushing the cache. All other methods raise InvalidStateStoreError afterwards."""
        if self._below.is_open:
            self._below.close()
            self.clear_cache()
            self._dirty = ClosedStore(self._below.check_open)
            self._cache.unregister(self)

    def rebind(self, *, log: ChangeLog | None, context: RecordContext) -> None:
        """Use the log and context of another task object, and belong to the current thread, from now on."""
        self._context = context
        self._thread = get_ident()
        self._below.rebind(log=log, context=context)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} over {self._below!r}>"
