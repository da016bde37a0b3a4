"""One store on disk as a bytes store: its uncommitted layer, over what was committed lately, over its column family."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import takewhile
from operator import gt
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NoReturn

import rocksdict

from streams_py.errors import StateError, StateStoreMigratedError, StreamsError
from streams_py.state.disk.bundles import bundle_key, is_worth_it, packed
from streams_py.state.disk.layer import SMALL_BYTES, Layer
from streams_py.state.disk.options import BUFFERS_WAITING_MAX, LEVEL_0_FILES_MAX, remedy_for
from streams_py.state.disk.properties import PROPERTIES
from streams_py.state.stores.bytes_store import overlaid
from streams_py.system.printable import text_of

if TYPE_CHECKING:
    from streams_py.state.disk.database import TaskDatabase

__all__ = ["RocksBytes", "flush_at_once", "put_or_delete"]

_MISSING: Final = object()
_BUNDLED_BYTES_MAX: Final = 1 << 20
"""In the bundles of one store: what opening it costs more."""
_BUNDLES_MAX: Final = 1_000
_LOOKED_AT: Final = 64
_OUT_OF_ORDER: Final = 0.1
"""Of the first so many keys that are restored at a time: more that are followed by a lower one are no order. Of random
ones, half are."""
_STALLS: Final = dict.fromkeys(("level0_slowdown_writes_trigger", "level0_stop_writes_trigger"), str(1 << 30))
"""RocksDB's options that make writers wait for files of the first level to be merged, from so many on."""
_ENDED: Final[Iterator[tuple[bytes, bytes]]] = iter(())


def put_or_delete(batch: Any, entries: Iterable[tuple[bytes, bytes | None]]) -> None:
    """Add entries (None: removed) to a batch, in its default column family."""
    put, delete = batch.put, batch.delete
    for key, data in entries:
        if data is None:
            delete(key)
        else:
            put(key, data)


def flush_at_once(family: Any) -> None:
    """Have what is in memory of a column family flushed without a wait, from now on until it is opened again.

    RocksDB lets a flush wait as long as writers would have to, until files of the first level are merged, and closing
    flushes. Whoever closes writes no more, and breaks off what merges."""
    with suppress(Exception):  # rocksdict says in several ways that it is closed; and a disk that is full is told later
        if int(family.property_value("rocksdb.num-files-at-level0")) >= LEVEL_0_FILES_MAX:
            family.set_options(_STALLS)


class _Closed(dict[bytes, "bytes | None"]):
    """What a closed store has in memory: refuses, so that nothing gets lost silently."""

    def get(self, *_: object) -> NoReturn:
        raise StateStoreMigratedError("the store is closed")

    def __setitem__(self, *_: object) -> NoReturn:
        raise StateStoreMigratedError("the store is closed")

    update = __setitem__


class _Held:
    """What is read before the column family is: ``waiting`` is the dict of the layer, ``written`` that of ``lately``,
    which has the latest of what was committed, among it all that is in ``bundles`` of the database (so many) and not in
    the family.

    Only the thread that owns the store writes. Other threads look into ``waiting``, then ``written``, then the
    family; that is safe because what is committed is in ``written`` or in the family before it leaves ``waiting``, and
    what was bundled is in the family before it leaves ``written``.
    """

    __slots__ = ("bundled_bytes", "bundles", "lately", "layer", "load", "waiting", "was_scanned", "written")

    def __init__(self) -> None:
        self.load: Callable[[bytes], Any]
        """Reads the family."""
        self.use(Layer())
        self.keep(Layer())
        self.bundles = self.bundled_bytes = 0
        self.was_scanned = False
        """Since the last commit. A store that is scanned has no bundles: they are one more run to merge."""

    def use(self, layer: Layer) -> None:
        self.layer = layer
        self.waiting = layer.data

    def keep(self, lately: Layer) -> None:
        self.lately = lately
        self.written = lately.data


class RocksBytes:
    """One column family as a bytes store. Writes wait in :attr:`layer` until the database commits."""

    def __init__(self, database: TaskDatabase, name: str) -> None:
        self.name = name
        self._database = database
        self._scans: weakref.WeakSet[_Scan] = weakref.WeakSet()
        self._is_closed = False
        self._scanning = Lock()  # scans are opened by any thread
        self._held = _Held()
        self._memory = database.memory
        self.use_family()
        self._memory.note_opened()
        held = self._held

        def read(key: bytes) -> bytes | None:
            data: Any = held.waiting.get(key, _MISSING)
            if data is _MISSING:
                data = held.written.get(key, _MISSING)
                if data is _MISSING:
                    floor = held.layer.floor
                    data = held.load(key) if floor is None or key >= floor else None
            return data  # type: ignore[no-any-return]  # bytes or None, whatever it came from

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
        """Use the column family of the database as it is open now."""
        self._bind(self._attempt(lambda: self._database.family(self.name)))

    def _bind(self, family: Any) -> None:
        self._family = family
        self._held.load = self._load if self._database.is_loading else family.get

    def _load(self, key: bytes) -> Any:
        self._database.note_read()
        return self._family.get(key)

    def _refuse(self, _key: bytes) -> NoReturn:
        raise StateStoreMigratedError(f"store {self.name!r} is being closed or opened again")

    def write_batch(self, keys: Sequence[bytes], datas: Iterable[bytes | None], *, removes: bool = True) -> None:
        held = self._held
        batch = self._database.restoring
        if batch is None or held.bundles or not held.layer.is_empty:
            held.waiting.update(zip(keys, datas, strict=True))
            held.layer.in_bulk = True
            return
        if held.written:
            held.keep(Layer())
        if not self._database.is_loading:
            some = keys[:_LOOKED_AT]
            self._database.is_shuffled = sum(map(gt, some, some[1:])) > len(some) * _OUT_OF_ORDER
        batch.set_default_column_family(self._database.handle(self.name))
        try:
            if not removes:
                any(map(batch.put, keys, datas))  # all of them: it returns None
            else:
                put_or_delete(batch, zip(keys, datas, strict=True))
        finally:
            batch.set_default_column_family(None)

    def take_in(self, files: Iterable[str]) -> None:
        """Take in sorted files whole, which are used up, one over the other, and over everything that is here."""
        if self._held.bundles:
            self._database.write_out(self)
        self._held.keep(Layer())
        options = rocksdict.IngestExternalFileOptions()
        options.set_move_files(True)
        for file in files:
            self._attempt(partial(self._family.ingest_external_file, [file], options))

    def scan(self, first: bytes | None, end: bytes | None, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        self._database.note_read()
        layer = self._held.layer  # before the snapshot: what is committed in between is in both, and not in neither
        above = self._above(layer, first, end, reverse=reverse)
        floor = layer.floor
        if floor is not None and (first is None or first < floor):
            first = floor
        with self._scanning:
            scan: _Scan = self._attempt(lambda: _Scan(self._family, self, first, end, above, reverse=reverse))
            self._scans.add(scan)
        return scan

    def collect(self, first: bytes, end: bytes) -> list[tuple[bytes, bytes]]:
        self._database.note_read()
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
                    entries.status()  # raises if damage has ended it
            except Exception:
                return list(self.scan(first, end))  # once more, to say what failed
        return list(overlaid(above, iter(below), reverse=False)) if above else below

    def _above(
        self, layer: Layer, first: bytes | None, end: bytes | None, *, reverse: bool
    ) -> list[tuple[bytes, bytes | None]]:
        """What is not in the column family, or newer there: the layer, and what is bundled."""
        held = self._held
        held.was_scanned = True
        above = layer.between(first, end, reverse=reverse)
        if not held.bundles:
            return above
        below = held.lately.between(first, end, reverse=reverse)
        return sorted((dict(below) | dict(above)).items(), reverse=reverse)

    def remove_below(self, end: bytes) -> None:
        if self._held.bundles:
            self._database.write_out(self)
        self._held.keep(Layer())
        self._held.use(self._held.layer.above(end))

    def approximate_count(self) -> int:
        waiting = sum(data is not None for data in list(self._held.waiting.values()))
        return waiting + (self._attempt(lambda: self._family.property_int_value("rocksdb.estimate-num-keys")) or 0)

    def clear(self) -> None:
        self._database.drop_bundles(self)
        self._held.keep(Layer())
        self.drop_layer()
        if next(self.scan(None, None), None) is None:
            return  # dropping and creating a column family takes tens of milliseconds
        self.let_go()
        self._bind(self._attempt(lambda: self._database.empty_family(self.name)))

    def close(self) -> None:
        self.flush_at_once()
        with self._database.closing:  # a handle that flushes cannot be closed
            if not self._is_closed:
                self._is_closed = True
                self._memory.note_closed()
                self._held.use(Layer(_Closed()))
                self._held.keep(Layer(_Closed()))  # bundled data is nowhere else: a reader must not miss it and go on
                self.let_go()

    def let_go(self) -> None:
        """Close the handle and the scans: one that stays open would keep the files open."""
        self._held.load = self._refuse
        self.flush_at_once()
        with self._scanning:
            for scan in list(self._scans):
                scan.end()
            with suppress(rocksdict.DbClosedError):  # no other one could be opened after it
                self._database.place.close(self._family)

    def properties(self) -> Mapping[str, float]:
        """What RocksDB says of the store (:data:`PROPERTIES`). Any thread may ask; empty when it is closed."""
        try:
            with self._scanning:
                found = {name: self._family.property_int_value(f"rocksdb.{name}") for name in PROPERTIES}
        except Exception:  # rocksdict says in several ways that a store is being emptied or closed
            return {}
        return {name: of for name, of in found.items() if of is not None}

    @property
    def is_behind(self) -> bool:
        """True while so much waits for the disk that RocksDB would soon make writers wait. Any thread may ask."""
        try:
            with self._scanning:
                buffers = self._family.property_int_value("rocksdb.num-immutable-mem-table")
                files = int(self._family.property_value("rocksdb.num-files-at-level0"))
        except Exception:  # it is being emptied or closed
            return False
        return buffers >= BUFFERS_WAITING_MAX or files >= LEVEL_0_FILES_MAX

    # -- for the database --------------------------------------------------------------------------------------

    @property
    def layer(self) -> Layer:
        """What waits for the next commit."""
        return self._held.layer

    def bundle(self) -> tuple[bytes, bytes] | None:
        """What waits as one entry, its key and its data; None when it is to be written out."""
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
        """The keys of its bundles in the database."""
        return [bundle_key(self.name, number) for number in range(self._held.bundles)]

    def entries_into(self, batch: Any, family: Any, *, layer: bool = True) -> None:
        """Add what is bundled to a batch, whose default this family is, and what waits if ``layer`` is wanted, too."""
        held = self._held
        if layer and held.layer.floor is not None:
            batch.delete_range(b"", held.layer.floor, family)
        entries = held.written if held.bundles else {}
        if layer:
            entries = entries | held.waiting if entries else held.waiting
        put_or_delete(batch, entries.items())

    def flush(self) -> None:
        """Bring what is committed from memory into files; closing has."""
        if not self._is_closed:
            self._family.flush()

    def flush_at_once(self) -> None:
        """See :func:`flush_at_once`. Any thread may."""
        with self._scanning:
            flush_at_once(self._family)

    def merge(self, files: int) -> None:
        """Have so many files of the first level merged into the next one."""
        self._attempt(lambda: self._family.set_options({"level0_file_num_compaction_trigger": str(files)}))

    def note_committed(self, bundle: bytes | None) -> None:
        """What waited is in the database, as this bundle or else written out."""
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
        """Nothing is bundled any more."""
        self._held.bundles = self._held.bundled_bytes = 0

    def drop_layer(self) -> None:
        """Forget what waits."""
        if not self._is_closed and not self._held.layer.is_empty:
            if self._held.layer.floor is not None:
                self._held.keep(Layer())
            self._held.use(Layer())

    def _attempt(self, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except rocksdict.DbClosedError as error:
            raise StateStoreMigratedError(f"store {self.name!r} is closed") from error
        except Exception as error:
            raise self.failure(error) from error

    def failure(self, error: Exception) -> StreamsError:
        """The error to raise for one of the database."""
        if self._is_closed:  # rocksdict says in several ways that it is closing
            return StateStoreMigratedError(f"store {self.name!r} is closed")
        remedy = remedy_for(error) or "What was committed before is safe in the changelog topic"
        return StateError(f"store {self.name!r} in {self._database.path} failed: {text_of(error)}. {remedy}")


class _Scan:
    """Entries of a snapshot; :meth:`end` makes it let go of the files."""

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
        # Kept as long as the items: the iterator points into it, and rocksdict 0.3.29 does not see to that.
        self._options = rocksdict.ReadOptions()
        if end is not None:
            self._options.set_iterate_upper_bound(end)
        if reverse:
            items = family.items(backwards=True, read_opt=self._options)
        else:
            items = family.items(from_key=first, read_opt=self._options)
        items = _whole(items, family, first, self._options, reverse=reverse)
        if reverse and first is not None:
            # Not set_iterate_lower_bound: in rocksdict 0.3.29 that sets the upper bound.
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
            self._items = _ENDED  # lets go of the snapshot
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
    """Yield all ``items``. Raises the error of the database if damage has ended them.

    rocksdict's iterators end at a damaged block as they do behind the last entry, without an error. So after the last
    item, an iterator that has a status reads the next block again.

    Args:
        items: From ``first`` on, or backwards from the upper bound of ``options``. They are opened already, so that
            their snapshot is that of the moment in which the scan was opened.
        family: The column family.
        first: The first key, None for all.
        options: Those of ``items``.
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
