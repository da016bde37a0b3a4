"""RocksDB: one database per task, with a column family per store and one for the changelog positions.

The writes of a task wait in the layers of its stores (:mod:`.layer`) until the task commits. A commit writes all of
them as one batch, together with the changelog positions that the stores reach with it (the idea of KIP-1035).

The batch is in the write-ahead log when the commit returns. So a killed process leaves a committed state and the
position that belongs to it. The log is not synced to disk. After a power failure the machine therefore has an earlier
committed state, and the changelog topics have the rest.

A bulk restore (:mod:`.bulk_load`) bypasses the write-ahead log until the next commit, and may reopen the database for
loading. A small commit of a store is written as a single entry (:mod:`.bundles`). Rocksdict's raw mode stores keys and
values unchanged.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import takewhile
from types import MappingProxyType
from typing import Any, Final

import rocksdict

from streams_protocol.types import TopicPartition
from streams_py.errors import StateError
from streams_py.state.directory.checkpoint import DATABASE_DIRECTORY
from streams_py.state.disk import position_keys as keys
from streams_py.state.disk.background_close import BackgroundWork
from streams_py.state.disk.bundles import BUNDLE, name_of, unpacked
from streams_py.state.disk.damage import is_damage_in
from streams_py.state.disk.mode import Mode
from streams_py.state.disk.opening import Location, flush_at_once, open_database, prepare_folder
from streams_py.state.disk.options import (
    LEVEL_0_FILES_MERGED,
    LEVEL_0_FILES_MERGED_LATE,
    RocksMemory,
    database_options,
    remedy_for,
    shared_rocks_memory,
)
from streams_py.state.disk.store import RocksBytes, put_or_delete
from streams_py.system.forks import keep_undestroyed, when_forked
from streams_py.system.printable import text_of

__all__ = ["RocksMemory", "TaskDatabase"]

_POSITIONS: Final = "*positions"
"""Column family of the positions. Names of stores contain no asterisk."""
_OFFSET = struct.Struct(">q")
_NONE: Final[Mapping[Any, Any]] = MappingProxyType({})


class TaskDatabase:
    """The open database of one task, below the task's directory.

    All existing column families are opened, and the column families of ``stores``.

    Raises:
        StateError: The files cannot be read, or another process has them open. The message names the path.
    """

    def __init__(self, task_directory: str, stores: Iterable[str], *, memory: RocksMemory | None = None) -> None:
        self.path = os.path.join(task_directory, DATABASE_DIRECTORY)
        self.memory = memory or shared_rocks_memory()
        self.mode = Mode()
        self._flushing, self._ending = BackgroundWork("state-flush"), BackgroundWork("state-close")
        self._stores: dict[str, RocksBytes] = {}
        self._damage: tuple[str, str] | None = None  # text of the first error about damaged files, and of its cause
        self.is_logged = True
        """Whether everything in the memtables is in the write-ahead log too."""
        self._is_closed = True
        when_forked(self, keep_undestroyed)
        try:
            prepare_folder(self.path)
            found = self._open({"default", _POSITIONS, *stores})
            self._is_closed = False
            self._unbundle()
        except Exception as error:
            with suppress(Exception):  # the first error is the more useful one
                self.close()
            remedy = remedy_for(error) or (
                f"If another process uses this state.dir, give this one its own; if files are damaged, delete "
                f"{task_directory} and the state is restored from the changelog topics"
            )
            raise StateError(f"cannot open the state store files in {self.path}: {text_of(error)}. {remedy}") from error
        self.found_stores = frozenset(found)
        """Names of the stores that existed when the database was opened."""

    def _open(self, wanted: Collection[str]) -> set[str]:
        """Open the database with the existing column families and those in ``wanted``; return the existing ones.

        With an empty ``wanted`` the database must exist.
        """
        self._options = options = database_options(self.memory, loading=self.mode.is_loading)
        exists = os.path.exists(os.path.join(self.path, "CURRENT"))
        if not exists and not wanted:
            raise FileNotFoundError("they were deleted")
        found = set(rocksdict.Rdict.list_cf(self.path, options)) if exists else set()
        families = dict.fromkeys(sorted(found.union(wanted)), options)
        self._database = open_database(self.path, options, families)
        self.location = Location(self.path)
        self._positions: Any = self._database.get_column_family(_POSITIONS)
        return found

    def store(self, name: str) -> RocksBytes:
        """Return the bytes store of a store; the same object every time."""
        found = self._stores.get(name)
        if found is None:
            found = self._stores[name] = RocksBytes(self, name)
        return found

    def stores(self) -> list[RocksBytes]:
        """Return the stores that :meth:`store` was called for. Thread-safe."""
        return list(self._stores.values())

    def properties(self, store: str) -> Mapping[str, float]:
        """Return the RocksDB properties of a store (:meth:`RocksBytes.properties`). Thread-safe.

        Empty when :meth:`store` was never called for it.
        """
        found = self._stores.get(store)
        return {} if found is None else found.properties()

    # -- commits -----------------------------------------------------------------------------------------------

    @property
    def uncommitted_bytes(self) -> int:
        """Approximate size of the writes that wait for the next commit, in bytes. Thread-safe."""
        return sum(store.layer.size_bytes for store in self.stores())

    def positions(self) -> dict[TopicPartition, int]:
        """Return the changelog positions committed together with the stores' data. Unknown positions are missing."""
        found: dict[TopicPartition, int] = {}
        for key, data in self._attempt(lambda: list(self._positions.items(from_key=keys.TOPICS))):
            (found[keys.partition_in(key)],) = _OFFSET.unpack(data)
        return found

    def inputs(self) -> dict[TopicPartition, keys.InputEntry]:
        """Return the input offsets of the last commit here. The group had committed at least these offsets by then."""
        found = self._attempt(lambda: list(self._beginning_with(keys.INPUT)))
        return {keys.partition_in(at.removeprefix(keys.INPUT)): keys.read_input(data) for at, data in found}

    def layouts(self) -> dict[str, str]:
        """Return the stored layout of each store (:mod:`.layouts`). A store without a stored layout is missing."""
        return self._texts(keys.LAYOUT)

    def topic_ids(self) -> dict[str, str]:
        """Return the ids of the topics that positions refer to, as far as they were stored."""
        return self._texts(keys.TOPIC_ID)

    def _texts(self, prefix: bytes) -> dict[str, str]:
        entries = self._attempt(lambda: list(self._beginning_with(prefix)))
        return {key[len(prefix) :].decode(): data.decode() for key, data in entries}

    def _beginning_with(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        return takewhile(lambda entry: entry[0].startswith(prefix), self._positions.items(from_key=prefix))

    def note_layouts(self, layouts: Mapping[str, str]) -> None:
        """Store the layouts of these stores."""
        self._note(keys.LAYOUT, layouts, {})

    def note_topic_ids(self, ids: Mapping[str, str], at: Mapping[TopicPartition, int] = _NONE) -> None:
        """Store the ids of the topics that positions refer to.

        Args:
            ids: Topic -> topic id.
            at: New positions, stored in the same batch.
        """
        self._note(keys.TOPIC_ID, ids, at)

    def forget_topic_id(self, topic: str) -> None:
        """Delete the id of a topic."""
        self._attempt(lambda: self._positions.delete(keys.TOPIC_ID + topic.encode()))

    def _note(self, prefix: bytes, texts: Mapping[str, str], positions: Mapping[TopicPartition, int]) -> None:
        batch = rocksdict.WriteBatch(raw_mode=True)
        for partition, offset in positions.items():
            batch.put(keys.key_of(partition), _OFFSET.pack(offset), self.handle(_POSITIONS))
        for name, text in texts.items():
            batch.put(prefix + name.encode(), text.encode(), self.handle(_POSITIONS))
        self._attempt(lambda: self._database.write(batch))

    def commit(
        self, positions: Mapping[TopicPartition, int], inputs: Mapping[TopicPartition, keys.InputEntry] = _NONE
    ) -> bool:
        """Write the waiting writes of all stores, and the positions, as one batch.

        After a crash, the database has either the whole batch or nothing of it. After an error, all writes still wait.

        Args:
            positions: Changelog positions that the stores reach with this commit.
            inputs: Input offsets that the group has committed, stored in the same batch.

        Returns:
            False if there was nothing to commit. ``inputs`` were not stored then.
        """
        if not positions and all(store.layer.is_empty for store in self._stores.values()):
            return False
        batch = rocksdict.WriteBatch(raw_mode=True)
        for partition, entry in inputs.items():
            batch.put(keys.INPUT + keys.key_of(partition), keys.written_input(entry), self.handle(_POSITIONS))
        self.write(batch, positions)
        return True

    @property
    def has_failed(self) -> bool:
        """Whether a background write of RocksDB failed.

        RocksDB may have stopped its background threads for good. The next write raises the error.
        """
        try:
            return bool(self._database.property_int_value("rocksdb.background-errors"))
        except Exception:  # the database is being closed or reopened
            return False

    def leave_loading(self) -> None:
        """Make sure that the database is open for reading and writing, not for loading."""
        if self.mode.is_loading:
            self.reopen(loading=False)
        elif self.mode.merges_late:
            self.merge(late=False)

    def merge(self, *, late: bool) -> None:
        """Set when files are merged: ``late`` while records are restored in bulk."""
        self.mode.merges_late = late
        for store in self._stores.values():
            store.merge(LEVEL_0_FILES_MERGED_LATE if late else LEVEL_0_FILES_MERGED)

    def reopen(self, *, loading: bool) -> None:
        """Close the database and open it again, for loading or for reading and writing. Open scans end with an error.

        Args:
            loading: Whether to open it for loading.
        """
        with self.mode.closing:
            if self._is_closed:
                return
            self.location.check()
            self._flush()
            for store in self._stores.values():
                store.let_go()
            flush_at_once(self._positions)
            self._positions.close()
            self._database.close()
            self._is_closed = True  # until it is open again
            self.mode.is_loading = self.mode.merges_late = loading
            self._attempt(lambda: self._open(()))
            self._is_closed = False
            for store in self._stores.values():
                store.use_family()

    def flush_in_background(self) -> bool:
        """Flush data that bypassed the write-ahead log, on a background thread; return whether this has finished.

        The caller calls this again until it returns True. All calls must come from one thread.
        """
        if self.is_logged and not self._flushing.is_under_way:
            return True
        return self._flushing.is_done(self.flush) and (self.is_logged or self._is_closed)

    def flush(self) -> None:
        """Flush data that bypassed the write-ahead log. Thread-safe; :meth:`close` waits for it."""
        with self.mode.closing:
            if not self._is_closed:
                self._flush()

    def _flush(self) -> None:
        if self.is_logged:
            return
        self._flush_stores()
        # After the stores: if the process crashes in between, the stores get the same records again.
        self._attempt(self._positions.flush)
        self.is_logged = True
        self.mode.loaded_bytes = 0

    def _flush_stores(self) -> None:
        self.location.check()
        for store in self.stores():
            self._attempt(store.flush)

    def write(self, batch: Any, positions: Mapping[TopicPartition, int], *, logged: bool = True) -> None:
        """Write a batch, the waiting writes of all stores, and the positions that the stores reach with them.

        Args:
            batch: A rocksdict batch. The method adds the waiting writes and the positions to it.
            positions: Changelog positions.
            logged: Whether the write-ahead log gets them, too.
        """
        self.location.check()
        if logged:
            self.leave_loading()
            if not self.is_logged:  # flush() would wait for a running checkpoint, so only when needed
                self.flush()  # otherwise, after a crash, the log has positions whose records the stores lack
        stores = [store for store in self._stores.values() if not store.layer.is_empty]
        bundles = {store: bundle for store in stores if (bundle := store.bundle()) is not None}
        self._fill(batch, stores, positions, bundles)
        if logged:
            self._attempt(lambda: self._database.write(batch))
        else:
            options: Any = rocksdict.WriteOptions()
            options.disable_wal = True
            with self.mode.closing:  # not during a flush: it flushes positions last, and would include these
                self._attempt(lambda: self._database.write(batch, options))
                self.is_logged = False
        for store in stores:
            store.note_committed(bundles[store][1] if store in bundles else None)

    def _fill(
        self,
        batch: Any,
        stores: Iterable[RocksBytes],
        positions: Mapping[TopicPartition, int],
        bundles: Mapping[RocksBytes, tuple[bytes, bytes]],
    ) -> None:
        """Fill a batch. Must be a function separate from the write.

        A stored exception keeps the local variables of its traceback alive. A column family handle among them would
        keep the files open, and the database could not be opened again.
        """
        metadata = self.handle(_POSITIONS)
        for store in stores:
            if store in bundles:
                batch.put(*bundles[store], metadata)
            else:
                self._write_out(batch, store, metadata)
        for changelog, offset in positions.items():
            batch.put(keys.key_of(changelog), _OFFSET.pack(offset), metadata)

    def _write_out(self, batch: Any, store: RocksBytes, metadata: Any, *, layer: bool = True) -> None:
        family = self.handle(store.name)
        batch.set_default_column_family(family)  # passing it with each entry would double the cost of the entry
        store.entries_into(batch, family, layer=layer)
        batch.set_default_column_family(None)
        for key in store.bundle_keys:
            batch.delete(key, metadata)

    def write_out(self, store: RocksBytes) -> None:
        """Write the bundled entries of a store to its column family, and delete the bundles."""
        batch = self._bundled(store)
        self._attempt(lambda: self._database.write(batch))
        store.note_written_out()

    def _bundled(self, store: RocksBytes) -> Any:
        batch = rocksdict.WriteBatch(raw_mode=True)
        self._write_out(batch, store, self.handle(_POSITIONS), layer=False)
        return batch

    def drop_bundles(self, store: RocksBytes) -> None:
        """Delete the bundles of a store."""
        batch = rocksdict.WriteBatch(raw_mode=True)
        for key in store.bundle_keys:
            batch.delete(key, self.handle(_POSITIONS))
        if not batch.is_empty():
            self._attempt(lambda: self._database.write(batch))
            store.note_written_out()

    def _unbundle(self) -> None:
        """Write out the bundles left by a previous owner of the files."""
        batch = rocksdict.WriteBatch(raw_mode=True)
        try:
            for key, bundle in self._beginning_with(BUNDLE):  # in commit order
                batch.set_default_column_family(self.handle(name_of(key)))
                put_or_delete(batch, unpacked(bundle).items())
                batch.delete(key, self.handle(_POSITIONS))
        finally:  # a stored exception keeps the batch alive, and its handle would keep the files open
            batch.set_default_column_family(None)
        if not batch.is_empty():
            self._database.write(batch)

    def roll_back(self) -> None:
        """Drop the uncommitted writes of all stores."""
        for store in self._stores.values():
            store.drop_layer()

    def forget(self, changelogs: Collection[TopicPartition]) -> None:
        """Delete the positions of these changelogs, the ids of their topics, and all input offsets.

        The deletion is synced to disk, so it is durable before the stores change.
        """
        batch = rocksdict.WriteBatch(raw_mode=True)
        for partition in self.inputs():
            batch.delete(keys.INPUT + keys.key_of(partition), self.handle(_POSITIONS))
        for changelog in changelogs:
            batch.delete(keys.key_of(changelog), self.handle(_POSITIONS))
            batch.delete(keys.TOPIC_ID + changelog.topic.encode(), self.handle(_POSITIONS))
        self._attempt(lambda: self._database.write(batch))
        self.force_log()

    def force_log(self) -> None:
        """Sync the write-ahead log to disk, so that everything written survives a power failure."""
        self._attempt(lambda: self._database.flush_wal(True))

    def _attempt(self, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except StateError:
            raise
        except Exception as error:
            remedy = remedy_for(error) or "Data committed before is safe in the changelog topics"
            failed = StateError(f"cannot use the state store files in {self.path}: {text_of(error)}. {remedy}")
            failed.__cause__ = error
            self.note_failure(failed)
            raise failed from error

    def note_failure(self, error: StateError) -> bool:
        """Return whether an error reports damage of this database, and keep it in :attr:`damage`. Thread-safe."""
        if not is_damage_in(self.path, error) or self.location.is_gone:
            return False
        # Only the texts: the traceback of an error refers to handles, and files of open handles cannot be opened again.
        self._damage = self._damage or (str(error), str(error.__cause__))
        return True

    @property
    def damage(self) -> StateError | None:
        """The first error of any thread that reported damaged or missing files here, as a new object. Thread-safe."""
        if self._damage is None:
            return None
        text, cause = self._damage
        error = StateError(text)
        error.__cause__ = StateError(cause)
        return error

    def close(self) -> None:
        """Close the database and all open scans. Uncommitted writes are dropped. A second call does nothing.

        Closing flushes, which may fail. Everything is closed even then, because files that stay open could not be
        opened again. The first error is raised at the end.
        """
        self._ending.wait()
        self._close()

    def close_in_background(self) -> bool:
        """Run :meth:`close` on a background thread; return whether it has finished.

        The caller calls this again until it returns True.
        """
        return bool(self._attempt(lambda: self._ending.is_done(self._close)))

    def _close(self) -> None:
        stores = list(self._stores.values())
        for store in stores:  # first, because the next lines wait for other threads that flush
            store.flush_at_once()
        if not self._is_closed:
            flush_at_once(self._positions)
        with self.mode.closing:
            closing = [store.close for store in stores]
            if not self._is_closed:
                self._is_closed = True
                closing += [partial(self.location.close, self._positions), partial(self.location.close, self._database)]
                closing.append(self.location.check_closed)
            errors = []
            for close in closing:
                try:
                    close()
                except Exception as error:
                    errors.append(error)
            if errors:
                raise errors[0]

    def checkpoint(self, folder: str) -> tuple[dict[TopicPartition, int], dict[str, str]] | None:
        """Copy the committed state into a new folder of the same file system, mostly by hard links.

        Thread-safe; :meth:`close` waits for it.

        Returns:
            The positions that the copy has at least, and the ids of their topics. None when the database is closed.
        """
        with self.mode.closing:
            if self._is_closed:
                return None
            positions, topic_ids = self.positions(), self.topic_ids()
            self._flush_stores()  # otherwise the next line flushes while it holds the interpreter's lock
            self._attempt(lambda: rocksdict.Checkpoint(self._database).create_checkpoint(folder))
            return positions, topic_ids

    # -- implementation of StoreHost ----------------------------------------------------------------------------

    def handle(self, name: str) -> Any:
        """Return the handle that identifies a column family in batches."""
        return self._database.get_column_family_handle(name)

    def family(self, name: str) -> Any:
        """Return a column family. It is created if it does not exist."""
        try:
            return self._database.get_column_family(name)
        except Exception:  # rocksdict offers no check for existence
            return self._database.create_column_family(name, self._options)

    def empty_family(self, name: str) -> Any:
        """Drop a column family, whose handles must be closed, and return a new, empty one of the same name."""
        self._database.drop_column_family(name)
        return self.family(name)
