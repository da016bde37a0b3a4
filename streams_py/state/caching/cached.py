"""What key-value stores with a record cache have in common (Kafka Streams' CachingKeyValueStore over NamedCache).

A write stays in the cache, with the context of its record, until the task commits or the budget is exceeded. Then it
is written to the store below, which logs it, and the flush listener forwards it. So of several updates of a key within
a commit interval only the last one reaches changelog and downstream (KIP-63).

* Flushing goes in the order of the last write of each key. Flushed entries stay, clean, for reading.
* The least recently used entry is evicted first, dirty or not. A dirty one is flushed, and after it all other dirty
  entries of its store, so that changelog and downstream get them in one order whatever the budget. Every write and
  every read is a use.
* While an entry is flushed the task's record context is that of the entry.
* What is flushed is no longer dirty from the beginning on, as far as eviction goes. An entry whose flush failed on the
  way (the broker did not answer), and those behind it, are dirty again and are flushed again; the value that was below
  it then is remembered in ``_owed``, because that is the one that the nodes below know.

Counting does not pay for the order of use: until a read is not part of a write, or an entry is evicted, clean entries
are in the order of their use, and dirty ones, in the order of ``_dirty``, were all used after them. From then on
``_uses`` has the order.

For speed an entry holds Python objects where the serdes promise that this makes no difference (``Serde.plain_type``);
then encoding happens once per flush instead of once per write. Otherwise it holds bytes, so that nobody can change a
cached value from outside, and a value that does not fit is refused when it is put.

The cache is written by the thread that owns the task. ``peek`` and ranges may be called from any thread: they first
copy the dirty entries and those that are being flushed, then take the snapshot below; a flush in between writes below
before it forgets, and the key that is just being rewritten is remembered in ``_last``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import filterfalse, repeat
from operator import itemgetter
from threading import get_ident
from typing import Any, TypeVar, cast

from streams_py.ports import Headers
from streams_py.state.caching.cache import RecordCache, encoded_length, headers_size
from streams_py.state.caching.closed import ClosedStore
from streams_py.state.custom.supplied_bytes import SuppliedBytes
from streams_py.state.stores.bytes_store import overlaid
from streams_py.state.stores.changelog_entries import RestoreRecord
from streams_py.state.stores.key_value import ChangeLog, StoreOverBytes
from streams_py.state.stores.operations import KeyValueOperations
from streams_py.topology.declare.nodes import RecordContext
from streams_py.topology.declare.stores import FlushListener

__all__ = ["ENTRY_BYTES", "CachedStore", "Entry"]

K = TypeVar("K")
V = TypeVar("V")
S = TypeVar("S")

ENTRY_BYTES = 45
"""Counted per entry besides key, value, headers and the topic's name: 25 for Kafka's bookkeeping (LRUNode and dirty
flag), 20 for offset, timestamp and partition."""

_KEY_TYPES = (str, bytes, int)
"""Plain types whose hashing and comparing is quick and runs no Python code."""
Entry = tuple[Any, int, "str | None", int, int, int, Headers]
"""What is held (None: deleted), counted bytes, and the record context: topic, partition, offset, timestamp, headers."""

_new_tuple = tuple.__new__


class CachedStore(KeyValueOperations[K, V, S]):
    """What both kinds have in common. ``below`` is the store that is cached."""

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
        """``keeps_what_is_read``: a value read below becomes a clean entry. ``entry_bytes``: counted per entry."""
        codec = below.codec
        self.codec = codec
        self._below = below
        self._context = context
        self._cache = cache
        self._listener: FlushListener | None = None
        self._send_old_values = False
        self._flushing = False
        self._outlives = isinstance(below.content, SuppliedBytes)  # an entry here, what is dropped below
        self._keeps_what_is_read = keeps_what_is_read
        self._entry_bytes = entry_bytes
        self._thread = get_ident()
        self._entries: dict[Any, Entry] = {}
        self._dirty: dict[Any, None] = {}
        self._uses: OrderedDict[Any, None] | None = None
        self._flushed: dict[Any, Entry] = {}  # taken to be flushed, and not written yet
        self._owed: dict[Any, bytes | None] = {}
        self._last: Any = None
        # Entries are found by the key itself where that is safe, else by its bytes. No key or value is a CachedStore.
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
            return self._load(at, is_written_next=False)
        self.note_use(at)
        return self._stored(entry[0])

    def peek(self, key: K) -> S | None:
        """As :meth:`get`, for other threads: does not count as use of the entry, and caches nothing."""
        entry = self._find(self._place_of(key))
        if entry is None:
            return self._below.peek(key)
        self._below.check_open()
        return self._stored(entry[0])

    def value_data(self, key: K) -> bytes | None:
        """The serialized value of ``key``, flushed or not. Does not count as use of the entry."""
        if (entry := self._find(self._place_of(key))) is None:
            return self._below.value_data(key)
        return None if entry[0] is None else self._below.value_part(self._data_of(entry[0]))

    def _find(self, at: Any) -> Entry | None:
        """The newest entry, for any thread."""
        entry = self._entries.get(at)
        while entry is None and at in self._dirty:  # caught while it was moved
            entry = self._entries.get(at)
        return self._flushed.get(at) if entry is None else entry

    def scan(self, first: bytes | None, end: bytes | None, *, reverse: bool) -> Iterator[tuple[bytes, S]]:
        """Snapshot of the entries by serialized key, from ``first`` on and below ``end``, unflushed ones included."""
        above = self._held_between(first, end)
        above.sort(key=itemgetter(0), reverse=reverse)
        return overlaid(above, self._below.scan(first, end, reverse=reverse), reverse=reverse)

    def _with_keys(self, entries: Iterator[tuple[bytes, S]]) -> Iterator[tuple[K, S]]:
        rows = super()._with_keys(entries)
        return self._using(rows) if get_ident() == self._thread else rows

    def _using(self, rows: Iterator[tuple[K, S]]) -> Iterator[tuple[K, S]]:
        for key, stored in rows:
            self.note_use(self._place_of(key))
            yield key, stored

    def _held_between(self, first: bytes | None, end: bytes | None) -> list[tuple[bytes, S | None]]:
        found: list[tuple[bytes, S | None]] = []
        last = self._last
        held = dict.fromkeys(list(self._entries if self._outlives else self._dirty))
        held.update(dict.fromkeys(list(self._flushed)))
        if last is not None:
            held[last] = None
        for at in held:
            entry = self._find(at)
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
        if places is None:
            places = dict.fromkeys([*self._entries, *self._flushed])
        found = ((at, self._find(at)) for at in places)
        return [(at, self._stored(entry[0])) for at, entry in found if entry is not None]

    def counting_uses(self, rows: Iterable[tuple[Any, S]], held: list[tuple[Any, S | None]]) -> Iterator[tuple[Any, S]]:
        """``rows``; those that are also ``held`` here, in the same order, count as used when Kafka Streams' merged
        iterator looks at them: that is one ahead, also past deleted ones. By another thread than ours, none do."""
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
        """As of the last flush; on disk an estimate."""
        return self._below.approximate_num_entries()

    def _place_of(self, key: K) -> Any:
        """Where in the cache ``key`` is found."""
        if key.__class__ is self._key_type:
            return key
        key_bytes = self.key_bytes(key)
        return self.codec.decode_key(key_bytes) if self._finds_by_key else key_bytes

    def _bytes_of(self, at: Any) -> bytes:
        return self.key_bytes(at) if self._finds_by_key else cast("bytes", at)

    def _load(self, at: Any, *, is_written_next: bool) -> S | None:
        """Read from below, and keep it as a clean entry."""
        flushed = self._flushed.get(at)
        if flushed is None:
            data = self._below.read_data(self._bytes_of(at))
        else:  # not below yet
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
        """An entry, if there is one, was read."""
        if at in self._entries:
            uses = self._keep_order() if self._uses is None else self._uses
            uses.move_to_end(at)

    def _note_write(self, at: Any) -> None:
        """While ``_uses`` has the order."""
        uses = cast("OrderedDict[Any, None]", self._uses)
        uses[at] = None
        uses.move_to_end(at)

    def _keep_order(self) -> OrderedDict[Any, None]:
        """From now on."""
        self._uses = uses = OrderedDict.fromkeys(filterfalse(self._dirty.__contains__, self._entries))
        uses.update(self._dirty)
        return uses

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
        context, cache, entries = self._context, self._cache, self._entries
        topic, headers = context.topic, context.headers
        size = self._size(at, value_bytes, topic, headers)
        replaced = entries.get(at)
        self._last = at
        self._dirty.pop(at, None)  # refuses when the store is closed
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
        """How many entries are to be written below and forwarded."""
        return len(self._dirty)

    def evict(self, entries_max: int | None = None) -> None:
        """Let go of least recently used entries until the budget is kept, none is left, or so many are gone.
        A dirty one is flushed, with all others of the store. Over budget rather than in a circle: when the nodes below
        have put into this store meanwhile, the rest waits for the next write.
        """
        cache, entries = self._cache, self._entries
        has_flushed = self._flushing
        for _ in repeat(None) if entries_max is None else repeat(None, entries_max):
            if cache.used_bytes <= cache.max_bytes or not entries:
                return
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
                    cache.used_bytes -= size  # only now, as there: the nodes below have met the old figure

    def _forget(self, at: Any) -> None:
        entry = self._entries.pop(at, None)
        if entry is not None:
            self._cache.used_bytes -= entry[1]
            if self._uses is not None:
                del self._uses[at]

    def set_flush_listener(self, listener: FlushListener, *, send_old_values: bool) -> None:
        """Who forwards flushed entries; the old value is read only when ``send_old_values``."""
        self._listener = listener
        self._send_old_values = send_old_values

    def flush_cache(self) -> int:
        """Write what is dirty below, and forward it, in the order of the last write; how many entries that were.

        What the nodes below put into this store meanwhile is dirty afterwards; see ``flush_until_clean``. After an
        error the entries that were not forwarded are still dirty.
        """
        return 0 if self._flushing or not self._dirty else self._flush()

    def _flush(self, evicted: Any = None) -> int:
        """Flush ``evicted``, which is no entry any more from then on, and what is dirty."""
        context, entries = self._context, self._entries
        saved = (context.topic, context.partition, context.offset, context.timestamp, context.headers)
        order = list(self._dirty)
        flushed: dict[Any, Entry] = {} if evicted is None else {evicted: entries[evicted]}
        if self._uses is None:  # clean from now on, and in the order of their use
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
            self._take_back(flushed)
            raise
        finally:
            self._flushing = False
            self._flushed = {}
            self._cache.flush_ended(began_ms, count - len(flushed))
            context.topic, context.partition, context.offset, context.timestamp, context.headers = saved
            for at, entry in deleted:  # nothing to read again
                if entries.get(at) is entry:
                    self._forget(at)
        return len(order)

    def _take_back(self, flushed: dict[Any, Entry]) -> None:
        """What could not be flushed is dirty as before, and comes before what was put meanwhile."""
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
        if at in self._owed:
            old = self._owed[at]
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
            self._owed[at] = old
            raise
        if self._owed:
            self._owed.pop(at, None)

    # -- life --------------------------------------------------------------------------------------------------

    def restore(self, records: Iterable[RestoreRecord]) -> int:
        """Apply changelog records below the cache, which forgets what it has (a committed task is restored again)."""
        self.clear_cache()
        return self._below.restore(records)

    def clear_cache(self) -> None:
        """Forget all entries, unwritten ones too: the task was committed, or failed."""
        self._dirty.clear()
        self._owed.clear()
        self._uses = None
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
            self._dirty = ClosedStore(self._below.check_open)
            self._cache.unregister(self)

    def rebind(self, *, log: ChangeLog | None, context: RecordContext) -> None:
        """Belong to another task object from now on."""
        self._context = context
        self._thread = get_ident()
        self._below.rebind(log=log, context=context)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} over {self._below!r}>"
