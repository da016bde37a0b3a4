"""RocksDB: one database per task, one column family per store.

The write-ahead log is off: the changelog topic is the log, and a checkpoint is written only after a flush to disk (a
crash in between restores the difference). Rocksdict's raw mode keeps keys and values as the bytes they are.

A read or a write costs RocksDB 1 to 2 us, and every update of a key is another entry of the memtable. So the latest
writes of a store wait in a dict until there are some thousand of them, and go in as one batch; a flush, a scan and
closing write them out. In a crash they are lost no more and no less than a memtable without a log is.

Memory is bounded for the process, not per store as in Kafka Streams: all databases share one block cache, and one
write buffer manager makes them flush when their memtables together grow too large. Arena blocks are small, so that a
hundred tasks that have seen one record each do not hold a hundred megabytes.
"""

from __future__ import annotations

import errno
import os
import weakref
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import takewhile
from operator import itemgetter
from threading import Lock, get_ident
from typing import Any, Final, NoReturn

import rocksdict

from streams_py.errors import InvalidStateStoreError, StateError
from streams_py.state.bytes_store import overlaid
from streams_py.state.checkpoint import DATABASE_DIRECTORY

__all__ = ["RocksBytes", "RocksMemory", "TaskDatabase", "shared_rocks_memory"]

_BATCH_ENTRIES = 1000
_RECENT_ENTRIES_MAX = 4096
_RECENT_BYTES_MAX = 1 << 20
"""Of large values. Twice this much is held: what waits to be written, and what was written last, for reading."""
_SMALL_BYTES = _RECENT_BYTES_MAX // _RECENT_ENTRIES_MAX
"""Up to here a value need not be counted: so many entries of it are no more than the limit."""
_WRITE_BUFFER_BYTES = 8 << 20
"""Per store. Half of Kafka's: a counter that is overwritten leaves a version per write in the buffer, and reading and
writing get slower as it outgrows the processor's cache (10,000 counters: 2.9 us per get and put, 3.8 with 16 MB)."""


class RocksMemory:
    """What the databases of this process may hold in memory together, in bytes."""

    def __init__(self, *, block_cache_bytes: int = 64 << 20, write_buffer_bytes: int = 64 << 20) -> None:
        self.block_cache = rocksdict.Cache(block_cache_bytes)
        # allow_stall=False: beyond the limit the database being written flushes; writers are never blocked.
        self.write_buffers = rocksdict.WriteBufferManager(write_buffer_bytes, False)


@cache
def shared_rocks_memory() -> RocksMemory:
    """The process's one :class:`RocksMemory`."""
    return RocksMemory()


class TaskDatabase:
    """The database of one task, below its directory.

    Opened with the column families that exist and those of ``stores``. Raises StateError naming the path when the
    files cannot be read or another process has them open.
    """

    def __init__(self, task_directory: str, stores: Iterable[str], *, memory: RocksMemory | None = None) -> None:
        self.path = os.path.join(task_directory, DATABASE_DIRECTORY)
        self._memory = memory or shared_rocks_memory()
        self._options = _options(self._memory)
        self._stores: dict[str, RocksBytes] = {}
        self._is_closed = False
        try:
            os.makedirs(self.path, mode=0o750, exist_ok=True)
            exists = os.path.exists(os.path.join(self.path, "CURRENT"))
            families = set(rocksdict.Rdict.list_cf(self.path, self._options)) if exists else set()
            families |= {"default", *stores}
            self._database = rocksdict.Rdict(self.path, self._options, dict.fromkeys(sorted(families), self._options))
        except Exception as error:
            remedy = _remedy(error) or (
                f"If another process uses this state.dir, give this one its own; if files are damaged, delete "
                f"{task_directory} and the state is restored from the changelog topics"
            )
            raise StateError(f"cannot open the state store files in {self.path}: {error}. {remedy}") from error

    def store(self, name: str) -> RocksBytes:
        """The bytes of one store; the same object every time."""
        found = self._stores.get(name)
        if found is None:
            found = self._stores[name] = RocksBytes(self, name)
        return found

    def flush(self) -> None:
        """Flush all stores in use to disk."""
        for store in self._stores.values():
            store.flush()

    def close(self) -> None:
        """Close everything, open scans included; a second call does nothing."""
        for store in self._stores.values():
            store.close()
        if not self._is_closed:
            self._is_closed = True
            self._database.close()

    # -- for RocksBytes ----------------------------------------------------------------------------------------

    def family(self, name: str) -> Any:
        """A handle of one column family (creating it if need be) that writes without the write-ahead log."""
        try:
            handle = self._database.get_column_family(name)
        except Exception:  # rocksdict has no question "does it exist"
            handle = self._database.create_column_family(name, self._options)
        handle.set_write_options(_without_log())
        return handle

    def empty_family(self, name: str) -> Any:
        """Drop a column family whose handles are closed and give a handle of a new, empty one."""
        self._database.drop_column_family(name)
        return self.family(name)

    def write(self, name: str, entries: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Write entries of one store as one batch."""
        batch = rocksdict.WriteBatch(raw_mode=True)
        batch.set_default_column_family(self._database.get_column_family_handle(name))
        for key, data in entries:
            if data is None:
                batch.delete(key)
            else:
                batch.put(key, data)
        self._database.write(batch, _without_log())

    def remove_range(self, name: str, first: bytes, end: bytes) -> None:
        """Remove the entries of one store from ``first`` on and below ``end``, with one tombstone for all."""
        batch = rocksdict.WriteBatch(raw_mode=True)
        batch.delete_range(first, end, self._database.get_column_family_handle(name))
        self._database.write(batch, _without_log())


_OPEN_FILES_PER_TASK: Final = "7 to 9"
_MISSING: Final = object()


class _Recent:
    """The latest writes of one store (None: removed). ``written`` are those of the batch before, for reading only.

    Only the thread that owns the store writes. Other threads look first here, then in the database; that is safe
    because a batch is in the database before it leaves ``waiting``.
    """

    __slots__ = ("bytes_left", "owner", "waiting", "written")

    def __init__(self) -> None:
        self.waiting: dict[bytes, bytes | None] = {}
        self.written: dict[bytes, bytes | None] = {}
        self.bytes_left = _RECENT_BYTES_MAX
        self.owner = 0

    def note_written(self) -> None:
        self.written = self.waiting
        self.waiting = {}
        self.bytes_left = _RECENT_BYTES_MAX

    def forget(self, *, closed: bool = False) -> None:
        self.written = {}
        self.waiting = _Closed() if closed else {}


class _Closed(dict[bytes, "bytes | None"]):
    """Waiting writes of a closed store: refuses, so that nothing gets lost silently."""

    def get(self, *_: object) -> NoReturn:
        raise InvalidStateStoreError("the store is closed")

    def __setitem__(self, *_: object) -> NoReturn:
        raise InvalidStateStoreError("the store is closed")


class RocksBytes:
    """One column family as a bytes store."""

    def __init__(self, database: TaskDatabase, name: str) -> None:
        self._database = database
        self._name = name
        self._scans: weakref.WeakSet[_Scan] = weakref.WeakSet()
        self._is_closed = False
        self._scanning = Lock()  # scans are opened by any thread
        self._recent = _Recent()
        self._bind(self._attempt(lambda: database.family(name)))

    def _bind(self, family: Any) -> None:
        self._family = family
        recent, load, write_out = self._recent, family.get, self._write_out

        def read(key: bytes) -> bytes | None:
            data: Any = recent.waiting.get(key, _MISSING)
            if data is _MISSING:
                data = recent.written.get(key, _MISSING)
                if data is _MISSING:
                    data = load(key)
            return data  # type: ignore[no-any-return]  # bytes or None, whatever it came from

        def write(key: bytes, data: bytes) -> None:
            waiting = recent.waiting
            if not waiting:
                recent.owner = get_ident()
            waiting[key] = data
            if len(data) > _SMALL_BYTES:
                recent.bytes_left -= len(data)
                if recent.bytes_left < 0:
                    write_out()
            elif len(waiting) >= _RECENT_ENTRIES_MAX:
                write_out()

        def remove(key: bytes) -> None:
            waiting = recent.waiting
            if not waiting:
                recent.owner = get_ident()
            waiting[key] = None
            if len(waiting) >= _RECENT_ENTRIES_MAX:
                write_out()

        self.read: Callable[[bytes], bytes | None] = read
        self.write: Callable[[bytes, bytes], None] = write
        self.remove: Callable[[bytes], object] = remove

    def _write_out(self) -> None:
        recent = self._recent
        if recent.waiting:
            self._write_all(recent.waiting.items())
            recent.note_written()

    def write_batch(self, entries: Iterable[tuple[bytes, bytes | None]]) -> None:
        self._write_out()
        self._recent.forget()
        pending: list[tuple[bytes, bytes | None]] = []
        for entry in entries:
            pending.append(entry)
            if len(pending) >= _BATCH_ENTRIES:
                self._write_all(pending)
                pending = []
        if pending:
            self._write_all(pending)

    def _write_all(self, entries: Iterable[tuple[bytes, bytes | None]]) -> None:
        self._attempt(lambda: self._database.write(self._name, entries))

    def scan(self, first: bytes | None, end: bytes | None, *, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        if self._recent.owner == get_ident():
            self._write_out()
        above = self._waiting_between(first, end, reverse=reverse)
        with self._scanning:
            scan: _Scan = self._attempt(lambda: _Scan(self._family, self._name, first, end, above, reverse=reverse))
            self._scans.add(scan)
        return scan

    def _waiting_between(
        self, first: bytes | None, end: bytes | None, *, reverse: bool
    ) -> list[tuple[bytes, bytes | None]]:
        found = [
            (key, data)
            for key, data in list(self._recent.waiting.items())
            if (first is None or key >= first) and (end is None or key < end)
        ]
        found.sort(key=itemgetter(0), reverse=reverse)
        return found

    def remove_below(self, end: bytes) -> None:
        self._write_out()
        self._recent.forget()
        self._attempt(lambda: self._database.remove_range(self._name, b"", end))

    def approximate_count(self) -> int:
        waiting = sum(data is not None for data in list(self._recent.waiting.values()))
        return waiting + (self._attempt(lambda: self._family.property_int_value("rocksdb.estimate-num-keys")) or 0)

    def clear(self) -> None:
        self._recent.forget()
        if next(self.scan(None, None), None) is None:
            return  # dropping and creating a column family takes tens of milliseconds
        self._let_go()
        self._bind(self._attempt(lambda: self._database.empty_family(self._name)))

    def flush(self) -> None:
        self._write_out()
        self._attempt(lambda: self._family.flush(True))

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            try:
                self._write_out()
            finally:
                self._recent.forget(closed=True)
                self._let_go()

    def _let_go(self) -> None:
        """Close the handle and the scans: one that stays open would keep the files open."""
        with self._scanning:
            for scan in list(self._scans):
                scan.end()
            self._family.close()

    def _attempt(self, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except rocksdict.DbClosedError as error:
            raise InvalidStateStoreError(f"store {self._name!r} is closed") from error
        except Exception as error:
            remedy = _remedy(error) or "What was committed before is safe in the changelog topic"
            raise StateError(f"store {self._name!r} in {self._database.path} failed: {error}. {remedy}") from error


class _Scan:
    """Entries of a snapshot; :meth:`end` makes it let go of the files."""

    __slots__ = ("__weakref__", "_items", "_name", "_options")

    def __init__(
        self,
        family: Any,
        name: str,
        first: bytes | None,
        end: bytes | None,
        above: list[tuple[bytes, bytes | None]],
        *,
        reverse: bool,
    ) -> None:
        self._name = name
        # Kept as long as the items: the iterator points into it, and rocksdict 0.3.29 does not see to that.
        self._options = rocksdict.ReadOptions()
        if end is not None:
            self._options.set_iterate_upper_bound(end)
        items: Iterator[tuple[bytes, bytes]]
        if not reverse:
            items = family.items(from_key=first, read_opt=self._options)
        else:
            items = family.items(backwards=True, read_opt=self._options)
            if first is not None:
                # Not set_iterate_lower_bound: in rocksdict 0.3.29 that sets the upper bound.
                items = takewhile(lambda entry: entry[0] >= first, items)
        self._items: Iterator[tuple[bytes, bytes]] | None = overlaid(above, items, reverse=reverse) if above else items

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        return self

    def __next__(self) -> tuple[bytes, bytes]:
        items = self._items
        if items is None:
            raise InvalidStateStoreError(f"store {self._name!r} was closed while it was iterated over")
        try:
            return next(items)
        except StopIteration:
            self._items = _NOTHING  # lets go of the snapshot
            raise

    def end(self) -> None:
        self._items = None


_NOTHING: Iterator[tuple[bytes, bytes]] = iter(())


def _remedy(error: Exception) -> str | None:
    """What to do about an error that comes from the machine, not from the files."""
    text = str(error)
    if os.strerror(errno.EMFILE) in text or os.strerror(errno.ENFILE) in text:
        return (
            f"Each task with a persistent store keeps {_OPEN_FILES_PER_TASK} files open: raise the limit of open files "
            "(ulimit -n, or LimitNOFILE= of a service) and start again"
        )
    if os.strerror(errno.ENOSPC) in text:
        return (
            "Make room on that disk, or set state.dir to another one: the state is restored from the changelog topics"
        )
    return None


def _options(memory: RocksMemory) -> Any:
    table = rocksdict.BlockBasedOptions()
    table.set_block_cache(memory.block_cache)
    table.set_cache_index_and_filter_blocks(True)
    table.set_pin_l0_filter_and_index_blocks_in_cache(True)
    table.set_bloom_filter(10, False)
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    options.set_block_based_table_factory(table)
    options.set_compression_type(rocksdict.DBCompressionType.lz4())
    options.set_write_buffer_manager(memory.write_buffers)
    options.set_write_buffer_size(_WRITE_BUFFER_BYTES)
    options.set_arena_block_size(64 << 10)
    options.set_max_open_files(256)
    options.set_keep_log_file_num(1)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    return options


def _without_log() -> Any:
    options: Any = rocksdict.WriteOptions()
    options.disable_wal = True  # an attribute, whatever the stub file says
    return options
