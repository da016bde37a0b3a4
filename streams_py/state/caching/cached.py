"""What key-value stores with a record cache have in common (Kafka Streams' CachingKeyValueStore over NamedCache).

A write stays in the cache, with the context of its record, until the task commits or the budget is exceeded. Then it
is written to the store below, which logs it, and the flush listener forwards it. So of several updates of a key within
a commit interval only the last one reaches changelog and downstream (KIP-63).

* Flushing goes in the order of the last write of each key. Flushed entries stay, clean, for reading.
* Evicting a dirty entry flushes all dirty entries of the store; the least recently used entry goes first. (Reads count
  as use only once something had to be evicted: before that, nobody needs the order.)
* While an entry is flushed the task's record context is that of the entry.
* An entry is clean when the listener has returned. One whose flush failed on the way (the broker did not answer) stays
  dirty and is flushed again; the value that was below it then is remembered in ``_owed``, because that is the one that
  the nodes below know.

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
from streams_py.state.caching.cache import RecordCache, headers_size
from streams_py.state.changelog_entries import RestoreRecord
from streams_py.state.custom.supplied_bytes import SuppliedBytes
from streams_py.state.key_value import ChangeLog, StoreOverBytes
from streams_py.state.operations import KeyValueOperations
from streams_py.topology.nodes import RecordContext
from streams_py.topology.stores import FlushListener

__all__ = ["ENTRY_BYTES", "CachedStore", "Entry"]

K = TypeVar("K")
V = TypeVar("V")
S = TypeVar("S")

ENTRY_BYTES = 65
"""Counted per entry besides key, value and headers: 25 for Kafka's bookkeeping (LRUNode and dirty flag), 20 for offset,
timestamp and partition, 20 for a topic name of usual length."""

_KEY_TYPES = (str, bytes, int)
"""Plain types whose hashing and comparing is quick and runs no Python code."""

Entry = tuple[Any, int, "str | None", int, int, int, Headers]
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


class CachedStore(KeyValueOperations[K, V, S]):
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
        self._outlives = isinstance(below.content, SuppliedBytes)  # an entry here, what is dropped below
        # Clean entries are in the order of their last use; dirty ones stay where they are until flushed, or until
        # eviction meets them. The order that flushing needs is that of the dirty keys.
        self._entries: dict[Any, Entry] = {}
        self._dirty: dict[Any, None] = {}
        self._owed: dict[Any, bytes | None] = {}
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
        above = self._held_between(first, end)
        above.sort(key=itemgetter(0), reverse=reverse)
        return overlaid(above, self._below.scan(first, end, reverse=reverse), reverse=reverse)

    def _held_between(self, first: bytes | None, end: bytes | None) -> list[tuple[bytes, S | None]]:
        found: list[tuple[bytes, S | None]] = []
        last = self._last
        held = dict.fromkeys(list(self._entries if self._outlives else self._dirty))
        if last is not None:
            held[last] = None
        for at in held:
            entry = self._entries.get(at)
            while entry is None and at in self._dirty:  # caught while it was moved
                entry = self._entries.get(at)
            if entry is None:
                continue  # evicted meanwhile, so it is below
            key = self._bytes_of(at)
            if (first is None or key >= first) and (end is None or key < end):
                found.append((key, self._stored(entry[0])))
        return found

    @property
    def below(self) -> StoreOverBytes[K, V, S]:
        """The store that is cached."""
        return self._below

    def holds(self, at: Any) -> bool:
        """Whether there is an entry, clean or dirty, for the serialized key."""
        return at in self._entries

    def held_entries(self, places: Iterable[Any] | None = None) -> list[tuple[Any, S | None]]:
        """Entries, clean ones too, by serialized key; None: deleted and not flushed yet. Default: all of them.

        Only for stores whose keys are bytes. For any thread.
        """
        found: list[tuple[Any, S | None]] = []
        for at in list(self._entries) if places is None else places:
            entry = self._entries.get(at)
            while entry is None and at in self._dirty:  # caught while it was moved
                entry = self._entries.get(at)
            if entry is not None:
                found.append((at, self._stored(entry[0])))
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
        size = ENTRY_BYTES + (len(at) if key_bytes is None else key_bytes) + value_bytes
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

    def flush_cache(self) -> int:
        """Write what is dirty below, and forward it, in the order of the last write; how many entries that were.

        What the nodes below put into this store meanwhile is dirty afterwards; see ``flush_until_clean``. After an
        error the entries that were not forwarded are still dirty.
        """
        if self._flushing or not self._dirty:
            return 0
        context = self._context
        saved = (context.topic, context.partition, context.offset, context.timestamp, context.headers)
        self._flushing = True
        flushed = 0
        try:
            for at in list(self._dirty):
                self._flush_entry(at, self._entries[at])
                flushed += 1
        finally:
            self._flushing = False
            context.topic, context.partition, context.offset, context.timestamp, context.headers = saved
        return flushed

    def _flush_entry(self, at: Any, entry: Entry) -> None:
        held, _, topic, partition, offset, timestamp, headers = entry
        below, listener, context = self._below, self._listener, self._context
        key = self._bytes_of(at)
        data = None if held is None else self._data_of(held)
        old: bytes | None = None
        if at in self._owed:
            old = self._owed[at]
        elif listener is not None and (data is None or self._send_old_values):
            old = below.read_data(key)
            if data is None and old is None:
                self._flushed(at, entry)
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
            self._owed[at] = old
            raise
        self._flushed(at, entry)

    def _flushed(self, at: Any, entry: Entry) -> None:
        """An entry is written and forwarded. It is clean, unless a node below has put another one meanwhile."""
        if self._owed:
            self._owed.pop(at, None)
        if self._entries.get(at) is not entry:
            return
        if entry[0] is None:
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
        self._owed.clear()
        self._cache.used_bytes -= sum(entry[1] for entry in self._entries.values())
        self._entries.clear()

    def clear(self) -> None:
        """Remove everything, unlogged: before a restoration from the beginning."""
        self.clear_cache()
        self._below.clear()

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
