"""A store on disk as a bytes store: uncommitted layer, then recent commits in memory, then the column family."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import takewhile
from operator import gt
from threading import Lock
from typing import Any, Final, NoReturn, Protocol

import rocksdict

from streams_py.errors import StateError, StateStoreMigratedError, StreamsError
from streams_py.state.disk.bundles import bundle_key, is_worth_it, packed
from streams_py.state.disk.layer import SMALL_BYTES, Layer
from streams_py.state.disk.mode import Mode
from streams_py.state.disk.opening import Location, flush_at_once
from streams_py.state.disk.options import BUFFERS_WAITING_MAX, LEVEL_0_FILES_MAX, RocksMemory, remedy_for
from streams_py.state.disk.properties import PROPERTIES
from streams_py.state.stores.bytes_store import overlaid
from streams_py.system.printable import text_of

_MISSING: Final = object()
_BUNDLED_BYTES_MAX: Final = 1 << 20
"""Size limit of the bundles of one store, in bytes. Opening the database has to write out the bundles."""
_BUNDLES_MAX: Final = 1_000
"""Maximum number of bundles of one store."""
_SAMPLED: Final = 64
"""Number of keys of each restored batch that are examined for key order."""
_OUT_OF_ORDER: Final = 0.1
"""Maximum share of sampled keys followed by a lower key in an ordered batch. In random order it is one half."""
_ENDED: Final[Iterator[tuple[bytes, bytes]]] = iter(())


def put_or_delete(batch: Any, entries: Iterable[tuple[bytes, bytes | None]]) -> None:
    """Add entries (None: deleted) to a batch, for its default column family."""
    put, delete = batch.put, batch.delete
    for key, data in entries:
        if data is None:
            delete(key)
        else:
            put(key, data)


class _Closed(dict[bytes, "bytes | None"]):
    """The in-memory data of a closed store. Raises on every access, so that no write is lost silently."""

    def get(self, *_: object) -> NoReturn:
        raise StateStoreMigratedError("the store is closed")

    def __setitem__(self, *_: object) -> NoReturn:
        raise StateStoreMigratedError("the store is closed")

    update = __setitem__


class _InMemory:
    """The part of a store that is in memory, and is read before the column family.

    * ``waiting``: the dict of the uncommitted ``layer``.
    * ``written``: the dict of ``recent``, which has recently committed entries. It includes all bundled entries, which
      are in the database's ``bundles`` (that many) but not in the column family.

    Only the thread that owns the store writes. Other threads read ``waiting``, then ``written``, then the column
    family. This is safe: a committed entry is in ``written`` or in the column family before it leaves ``waiting``, and
    a bundled entry is in the column family before it leaves ``written``.
    """

    __slots__ = ("bundled_bytes", "bundles", "layer", "load", "recent", "waiting", "was_scanned", "written")

    def __init__(self) -> None:
        self.load: Callable[[bytes], Any]
        """Reads a key from the column family."""
        self.use(Layer())
        self.keep(Layer())
        self.bundles = self.bundled_bytes = 0
        self.was_scanned = False
        """Whether it was scanned since the last commit. If so, no bundle is made: scans would have to merge it."""

    def use(self, layer: Layer) -> None:
        self.layer = layer
        self.waiting = layer.data

    def keep(self, recent: Layer) -> None:
        self.recent = recent
        self.written = recent.data


class StoreHost(Protocol):
    """The database that contains a store, as far as the store needs it."""

    path: str
    memory: RocksMemory
    mode: Mode
    location: Location

    def family(self, name: str) -> Any: ...  # a column family, which is created if it does not exist
    def handle(self, name: str) -> Any: ...  # identifies a column family in batches
    def empty_family(self, name: str) -> Any: ...  # in the place of one whose handles are closed
    def write_out(self, store: RocksBytes) -> None: ...  # bundled entries to the column family; deletes the bundles
    def drop_bundles(self, store: RocksBytes) -> None: ...  # deletes the bundles
    def flush(self) -> None: ...  # data that bypassed the write-ahead log; thread-safe
    def note_failure(self, error: StateError) -> bool: ...  # keeps the first error about damaged files; thread-safe


class RocksBytes:
    """One column family as a bytes store. Writes wait in :attr:`layer` until the database commits."""

    def __init__(self, host: StoreHost, name: str) -> None:
        self.name = name
        self._host = host
        self._mode = host.mode
        self._scans: weakref.WeakSet[_Scan] = weakref.WeakSet()
        self._is_closed = False
        self._scanning = Lock()  # any thread may open a scan
        self._held = _InMemory()
        self._memory = host.memory
        self.use_family()
        self._memory.note_opened()
        held = self._held

        def read(key: bytes) -> bytes | None:
            data: Any = held.waiting.get(key, _MISSING)
            if data is _MISSING:
                data = held.written.get(key, _MISSING)
                if data is _MISSING:
                    floor = held.layer.floor
                    try:
                        data = held.load(key) if floor is None or key >= floor else None
                    except StreamsError:
                        raise
                    except Exception as error:
                        raise self.failure(error) from error
            return data  # type: ignore[no-any-return]  # bytes or None in each case

        def write(key: bytes, data: bytes) -> None:
            if len(key) + len(data) > SMALL_BYTES:
                held.layer.count_large(key, data)
            held.waiting[key] = data

        def remove(key: bytes) -> None:
            held.waiting[key] = None

        self.read: Callable[[bytes], bytes | None] = read
        self.write: Callable[[bytes, bytes], None] = write
        self.remove: Callable[[bytes], object] = remove

    def use_family(self) -> None:
        """Use the column family of the currently open database."""
        self._bind(self._attempt(lambda: self._host.family(self.name)))

    def _bind(self, family: Any) -> None:
        self._family = family
        self._held.load = self._load if self._mode.is_loading else family.get

    def _load(self, key: bytes) -> Any:
        self._note_read()
        return self._family.get(key)

    def _note_read(self) -> None:
        """Prepare for a read of the files. Thread-safe.

        In a database that is open for loading, the first read after a restore flushes the memtables, which may take
        long. Otherwise each read would have to sort the memtable, and the interpreter's lock is held meanwhile.
        """
        mode = self._mode
        if mode.is_loading and not mode.is_read:
            with suppress(StateError):  # the thread that restores gets the same error
                self._host.flush()
        mode.is_read = True

    def _refuse(self, _key: bytes) -> NoReturn:
        raise StateStoreMigratedError(f"store {self.name!r} is being closed or reopened")

    def write_batch(self, keys: Sequence[bytes], datas: Iterable[bytes | None], *, removes: bool = True) -> None:
        held = self._held
        batch = self._mode.batch
        if batch is None or held.bundles or not held.layer.is_empty:
            held.waiting.update(zip(keys, datas, strict=True))
            held.layer.in_bulk = True
            return
        if held.written:
            held.keep(Layer())
        if not self._mode.is_loading:
            some = keys[:_SAMPLED]
            self._mode.is_shuffled = sum(map(gt, some, some[1:])) > len(some) * _OUT_OF_ORDER
        batch.set_default_column_family(self._host.handle(self.name))
        try:
            if not removes:
                any(map(batch.put, keys, datas))  # consumes the whole map, because put returns None
            else:
                put_or_delete(batch, zip(keys, datas, strict=True))
        finally:
            batch.set_default_column_family(None)

    def take_in(self, files: Iterable[str]) -> None:
        """Ingest sorted files in their order, on top of the store's content. The files are moved into the database."""
        if self._held.bundles:
            self._host.write_out(self)
        self._held.keep(Layer())
        options = rocksdict.IngestExternalFileOptions()
        options.set_move_files(True)
        for file in files:
            self._attempt(partial(self._family.ingest_external_file, [file], options))

    def scan(self, first: bytes | None, end: bytes | None, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        self._note_read()
        layer = self._held.layer  # before the snapshot: entries committed in between are in both, not in neither
        above = self._above(layer, first, end, reverse=reverse)
        floor = layer.floor
        if floor is not None and (first is None or first < floor):
            first = floor
        with self._scanning:
            scan: _Scan = self._attempt(lambda: _Scan(self._family, self, first, end, above, reverse=reverse))
            self._scans.add(scan)
        return scan

    def collect(self, first: bytes, end: bytes) -> list[tuple[bytes, bytes]]:
        self._note_read()
        layer = self._held.layer
        above = self._above(layer, first, end, reverse=False)
        floor = layer.floor
        start = first if floor is None or floor < first else floor
        options = rocksdict.ReadOptions()
        options.set_iterate_upper_bound(end)
        below: list[tuple[bytes, bytes]] = []
        if start < end:
            try:
                with self._scanning:
                    entries = self._family.iter(options)
                    entries.seek(start)
                    while entries.valid():
                        below.append((entries.key(), entries.value()))
                        entries.next()
                    entries.status()  # raises if a damaged block ended the iteration
            except Exception:
                return list(self.scan(first, end))  # fails again, with an error that names the store
        return list(overlaid(above, iter(below), reverse=False)) if above else below

    def _above(
        self, layer: Layer, first: bytes | None, end: bytes | None, *, reverse: bool
    ) -> list[tuple[bytes, bytes | None]]:
        """Return entries that the column family does not have in this version: the layer, and bundled entries."""
        held = self._held
        held.was_scanned = True
        above = layer.between(first, end, reverse=reverse)
        if not held.bundles:
            return above
        below = held.recent.between(first, end, reverse=reverse)
        return sorted((dict(below) | dict(above)).items(), reverse=reverse)

    def remove_below(self, end: bytes) -> None:
        if self._held.bundles:
            self._host.write_out(self)
        self._held.keep(Layer())
        self._held.use(self._held.layer.above(end))

    def approximate_count(self) -> int:
        waiting = sum(data is not None for data in list(self._held.waiting.values()))
        return waiting + (self._attempt(lambda: self._family.property_int_value("rocksdb.estimate-num-keys")) or 0)

    def clear(self) -> None:
        self._host.drop_bundles(self)
        self._held.keep(Layer())
        self.drop_layer()
        if next(self.scan(None, None), None) is None:
            return  # already empty; dropping and creating a column family would take tens of milliseconds
        self.let_go()
        self._bind(self._attempt(lambda: self._host.empty_family(self.name)))

    def close(self) -> None:
        self.flush_at_once()
        with self._mode.closing:  # a handle cannot be closed during a flush
            if not self._is_closed:
                self._is_closed = True
                self._memory.note_closed()
                self._held.use(Layer(_Closed()))
                self._held.keep(Layer(_Closed()))  # bundled entries exist nowhere else: a reader must not miss them
                self.let_go()

    def let_go(self) -> None:
        """Close the handle and all scans. An open one would keep the files open."""
        self._held.load = self._refuse
        self.flush_at_once()
        with self._scanning:
            for scan in list(self._scans):
                scan.end()
            with suppress(rocksdict.DbClosedError):  # the handle was already closed
                self._host.location.close(self._family)

    def properties(self) -> Mapping[str, float]:
        """Return the RocksDB properties of the store (:data:`PROPERTIES`). Empty when it is closed. Thread-safe."""
        try:
            with self._scanning:
                found = {name: self._family.property_int_value(f"rocksdb.{name}") for name in PROPERTIES}
        except Exception:  # while a store is being emptied or closed, rocksdict raises several kinds of errors
            return {}
        return {name: of for name, of in found.items() if of is not None}

    @property
    def is_behind(self) -> bool:
        """Whether RocksDB would soon delay writers, because too much data waits for the disk. Thread-safe."""
        try:
            with self._scanning:
                buffers = self._family.property_int_value("rocksdb.num-immutable-mem-table")
                files = int(self._family.property_value("rocksdb.num-files-at-level0"))
        except Exception:  # the store is being emptied or closed
            return False
        return buffers >= BUFFERS_WAITING_MAX or files >= LEVEL_0_FILES_MAX

    # -- for the database --------------------------------------------------------------------------------------

    @property
    def layer(self) -> Layer:
        """The writes that wait for the next commit."""
        return self._held.layer

    def bundle(self) -> tuple[bytes, bytes] | None:
        """Return the waiting writes as a bundle (key, data). None when they should be written key by key."""
        held = self._held
        data, written = held.waiting, held.written
        layer = held.layer
        if layer.floor is not None or layer.in_bulk or layer.large_bytes or held.was_scanned:
            return None
        if len(data) + len(written) > self._memory.kept_entries or not is_worth_it(data, written):
            return None
        bundle = packed(data)
        if held.bundles == _BUNDLES_MAX or held.bundled_bytes + len(bundle) > _BUNDLED_BYTES_MAX:
            return None
        return bundle_key(self.name, held.bundles), bundle

    @property
    def bundle_keys(self) -> list[bytes]:
        """The keys of the store's bundles in the database."""
        return [bundle_key(self.name, number) for number in range(self._held.bundles)]

    def entries_into(self, batch: Any, family: Any, *, layer: bool = True) -> None:
        """Add the bundled entries to a batch, and the waiting writes if ``layer``.

        ``family`` is the store's column family, and must be the default column family of the batch.
        """
        held = self._held
        if layer and held.layer.floor is not None:
            batch.delete_range(b"", held.layer.floor, family)
        entries = held.written if held.bundles else {}
        if layer:
            entries = entries | held.waiting if entries else held.waiting
        put_or_delete(batch, entries.items())

    def flush(self) -> None:
        """Flush committed data from the memtable to files. Does nothing when closed: closing has flushed."""
        if not self._is_closed:
            self._family.flush()

    def flush_at_once(self) -> None:
        """See :func:`flush_at_once`. Thread-safe."""
        with self._scanning:
            flush_at_once(self._family)

    def merge(self, files: int) -> None:
        """Set the number of level-0 files that triggers their compaction into the next level."""
        self._attempt(lambda: self._family.set_options({"level0_file_num_compaction_trigger": str(files)}))

    def note_committed(self, bundle: bytes | None) -> None:
        """Mark the waiting writes as committed: as this bundle, or key by key if ``bundle`` is None."""
        held = self._held
        layer = held.layer
        if bundle is None:
            self.note_written_out()
        else:
            held.bundles += 1
            held.bundled_bytes += len(bundle)
        if layer.in_bulk or layer.large_bytes:
            held.keep(Layer())
        else:
            held.written.update(layer.data)
            if not held.bundles and len(held.written) > self._memory.kept_entries:
                held.keep(layer if len(layer.data) <= self._memory.kept_entries else Layer())
        held.use(Layer())
        held.was_scanned = False

    def note_written_out(self) -> None:
        """Mark all bundles as written to the column family."""
        self._held.bundles = self._held.bundled_bytes = 0

    def drop_layer(self) -> None:
        """Drop the waiting writes."""
        if not self._is_closed and not self._held.layer.is_empty:
            if self._held.layer.floor is not None:
                self._held.keep(Layer())
            self._held.use(Layer())

    def _attempt(self, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except StreamsError:
            raise
        except Exception as error:
            raise self.failure(error) from error

    def failure(self, error: Exception) -> StreamsError:
        """Return the error to raise for an error of the database."""
        # While closing, rocksdict raises several kinds of errors.
        if self._is_closed or isinstance(error, rocksdict.DbClosedError):
            return StateStoreMigratedError(f"store {self.name!r} is closed")
        remedy = remedy_for(error) or "Data committed before is safe in the changelog topic"
        failed = StateError(f"store {self.name!r} in {self._host.path} failed: {text_of(error)}. {remedy}")
        failed.__cause__ = error
        self._host.note_failure(failed)
        return failed


class _Scan:
    """An iterator over the entries of a snapshot. :meth:`end` releases the files."""

    __slots__ = ("__weakref__", "_items", "_options", "_store")

    def __init__(
        self,
        family: Any,
        store: RocksBytes,
        first: bytes | None,
        end: bytes | None,
        above: list[tuple[bytes, bytes | None]],
        *,
        reverse: bool,
    ) -> None:
        self._store = store
        # Must live as long as the iterator, which points into it. rocksdict 0.3.29 does not keep it alive.
        self._options = rocksdict.ReadOptions()
        if end is not None:
            self._options.set_iterate_upper_bound(end)
        if reverse:
            items = family.items(backwards=True, read_opt=self._options)
        else:
            items = family.items(from_key=first, read_opt=self._options)
        items = _whole(items, family, first, self._options, reverse=reverse)
        if reverse and first is not None:
            # set_iterate_lower_bound cannot be used: in rocksdict 0.3.29 it sets the upper bound.
            items = takewhile(lambda entry: entry[0] >= first, items)
        self._items: Iterator[tuple[bytes, bytes]] | None = overlaid(above, items, reverse=reverse) if above else items

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        return self

    def __next__(self) -> tuple[bytes, bytes]:
        items = self._items
        if items is None:
            raise StateStoreMigratedError(f"store {self._store.name!r} was closed while it was iterated over")
        try:
            return next(items)
        except StopIteration:
            self._items = _ENDED  # releases the snapshot
            raise
        except Exception as error:
            raise self._store.failure(error) from error

    def end(self) -> None:
        self._items = None


def _whole(
    items: Iterator[tuple[bytes, bytes]],
    family: Any,
    first: bytes | None,
    options: rocksdict.ReadOptions,
    *,
    reverse: bool,
) -> Iterator[tuple[bytes, bytes]]:
    """Yield all ``items``. Raises the error of the database if a damaged block ended the iteration.

    rocksdict's iterators end at a damaged block as they do after the last entry, without an error. So after the last
    item, another iterator, which has a status, reads the next block again.

    Args:
        items: Entries from ``first`` on, or backwards from the upper bound of ``options``. The iterator is already
            open, so that its snapshot is from the time at which the scan was opened.
        family: The column family.
        first: The first key, or None for all keys.
        options: The read options of ``items``.
        reverse: Whether the items go backwards.
    """
    last: bytes | None = None
    for entry in items:
        last = entry[0]
        yield entry
    again = family.iter(options)
    if reverse:
        if last is None:
            again.seek_to_last()
        else:
            again.seek_for_prev(last)
            if again.valid():
                again.prev()
    elif last is not None:
        again.seek(last + b"\0")
    elif first is not None:
        again.seek(first)
    else:
        again.seek_to_first()
    again.status()
