"""RocksDB: one database per task, one column family per store, and one for the positions in the changelogs.

What tasks write waits in the layers of its stores (:mod:`.layer`) until the task commits. Then everything goes in as
one batch, together with the changelog positions that it brings the stores to (the idea of KIP-1035). The batch is in
the write-ahead log when the call returns, so a killed process leaves a committed state and the position that belongs to
it; the log is not forced to the disk, and a machine that loses its power goes back to an earlier such state, whose rest
the changelog topics have. What is restored in bulk goes past that log, until the next commit, and into a database that
is opened for writing alone: it takes entries in a tenth of the time. Small commits of one store go in as one entry each
(:mod:`.bundles`). Rocksdict's raw mode keeps keys and values as the bytes they are.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import takewhile
from threading import RLock
from types import MappingProxyType
from typing import Any, Final

import rocksdict

from streams_protocol.types import TopicPartition
from streams_py.errors import StateError
from streams_py.state.directory.checkpoint import DATABASE_DIRECTORY
from streams_py.state.disk import position_keys as keys
from streams_py.state.disk.background_close import Aside
from streams_py.state.disk.bundles import BUNDLE, name_of, unpacked
from streams_py.state.disk.opening import Place, open_database, prepare_folder
from streams_py.state.disk.options import (
    LEVEL_0_FILES_MERGED,
    LEVEL_0_FILES_MERGED_LATE,
    RocksMemory,
    database_options,
    remedy_for,
    shared_rocks_memory,
)
from streams_py.state.disk.store import RocksBytes, flush_at_once, put_or_delete
from streams_py.system.forks import keep_undestroyed, when_forked
from streams_py.system.printable import text_of

__all__ = ["RocksMemory", "TaskDatabase"]

_POSITIONS: Final = "*positions"
"""No store is called like this: names have no asterisk."""
_OFFSET = struct.Struct(">q")
_NONE: Final[Mapping[Any, Any]] = MappingProxyType({})
_LOGGED_RECORDS: Final = 20_000
"""So many records of a restoration in bulk go through the write-ahead log: that costs less than the flush that is
needed without."""
_LOOK_BYTES: Final = 256 << 10  # loaded between two checks for disk back-pressure


class TaskDatabase:
    """The database of one task, below its directory.

    Opened with the column families that exist and those of ``stores``. Raises StateError naming the path when the
    files cannot be read or another process has them open.
    """

    def __init__(self, task_directory: str, stores: Iterable[str], *, memory: RocksMemory | None = None) -> None:
        self.path = os.path.join(task_directory, DATABASE_DIRECTORY)
        self.memory = memory or shared_rocks_memory()
        self.is_loading = False
        """Open for many writes that nobody reads yet."""
        self.is_read = False
        """Something in files was read since the last time that records were restored."""
        self.is_shuffled = False
        """The keys that were restored last came in no order."""
        self._may_load = True
        self._loaded_records = 0
        """In bulk, since somebody wanted it open for reading and writing."""
        self._merges_late = False
        """Files are merged later than in a database that is read."""
        self._loaded_bytes = 0
        """Since somebody looked whether the disk takes it."""
        self._settling, self._ending = Aside("state-flush"), Aside("state-close")
        self._stores: dict[str, RocksBytes] = {}
        self.restoring: Any = None
        """The batch that is being filled by :meth:`restore`."""
        self.is_logged = True
        """Everything in memory is in the write-ahead log too."""
        self._is_closed = True
        when_forked(self, keep_undestroyed)
        self.closing = RLock()  # a checkpoint keeps the database and its stores open, and so does a flush
        try:
            prepare_folder(self.path)
            found = self._open({"default", _POSITIONS, *stores})
            self._is_closed = False
            self._unbundle()
        except Exception as error:
            with suppress(Exception):  # of the two, the first error says more
                self.close()
            remedy = remedy_for(error) or (
                f"If another process uses this state.dir, give this one its own; if files are damaged, delete "
                f"{task_directory} and the state is restored from the changelog topics"
            )
            raise StateError(f"cannot open the state store files in {self.path}: {text_of(error)}. {remedy}") from error
        self.found_stores = frozenset(found)
        """Names of the stores that were there when it was opened."""

    def _open(self, wanted: Collection[str]) -> set[str]:
        """Open it with these column families and those that exist, which are returned; without any, what is there."""
        self._options = options = database_options(self.memory, loading=self.is_loading)
        exists = os.path.exists(os.path.join(self.path, "CURRENT"))
        if not exists and not wanted:
            raise FileNotFoundError("they were deleted")
        found = set(rocksdict.Rdict.list_cf(self.path, options)) if exists else set()
        families = dict.fromkeys(sorted(found.union(wanted)), options)
        self._database = open_database(self.path, options, families)
        self.place = Place(self.path)
        self._positions: Any = self._database.get_column_family(_POSITIONS)
        return found

    def store(self, name: str) -> RocksBytes:
        """The bytes of one store; the same object every time."""
        found = self._stores.get(name)
        if found is None:
            found = self._stores[name] = RocksBytes(self, name)
        return found

    def properties(self, store: str) -> Mapping[str, float]:
        """What RocksDB says of a store (:meth:`RocksBytes.properties`); empty when nobody uses it. Thread-safe."""
        found = self._stores.get(store)
        return {} if found is None else found.properties()

    # -- commits -----------------------------------------------------------------------------------------------

    @property
    def uncommitted_bytes(self) -> int:
        """What waits in memory for the next commit, about. Thread-safe."""
        return sum(store.layer.size_bytes for store in list(self._stores.values()))

    def positions(self) -> dict[TopicPartition, int]:
        """The offsets that were committed with what they stand for; those of which nothing is known are missing."""
        found: dict[TopicPartition, int] = {}
        for key, data in self._attempt(lambda: list(self._positions.items(from_key=keys.TOPICS))):
            (found[keys.partition_in(key)],) = _OFFSET.unpack(data)
        return found

    def inputs(self) -> dict[TopicPartition, keys.InputEntry]:
        """What the group had committed of the task's input when this was committed, at least."""
        found = self._attempt(lambda: list(self._beginning_with(keys.INPUT)))
        return {keys.partition_in(at.removeprefix(keys.INPUT)): keys.read_input(data) for at, data in found}

    def layouts(self) -> dict[str, str]:
        """How the files of each store are laid out (:mod:`.layouts`); those that nobody has noted are missing."""
        return self._texts(keys.LAYOUT)

    def topic_ids(self) -> dict[str, str]:
        """Of the topics that positions speak of: the ids that the cluster gave them, as far as they were noted."""
        return self._texts(keys.TOPIC_ID)

    def _texts(self, prefix: bytes) -> dict[str, str]:
        entries = self._attempt(lambda: list(self._beginning_with(prefix)))
        return {key[len(prefix) :].decode(): data.decode() for key, data in entries}

    def _beginning_with(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        return takewhile(lambda entry: entry[0].startswith(prefix), self._positions.items(from_key=prefix))

    def note_layouts(self, layouts: Mapping[str, str]) -> None:
        """The files of these stores are laid out like this."""
        self._note(keys.LAYOUT, layouts, {})

    def note_topic_ids(self, ids: Mapping[str, str], at: Mapping[TopicPartition, int] = _NONE) -> None:
        """The ids of the topics that positions are in; ``at``: new positions in these."""
        self._note(keys.TOPIC_ID, ids, at)

    def forget_topic_id(self, topic: str) -> None:
        """Which topic the positions are in is no longer known."""
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
        """Write what waits in all stores, and the positions, as one batch: after a crash all of it is there, or
        nothing. After an error everything still waits. ``inputs``, which the group has, go along; False when there was
        nothing that they could go along with."""
        if not positions and all(store.layer.is_empty for store in self._stores.values()):
            return False
        batch = rocksdict.WriteBatch(raw_mode=True)
        for partition, entry in inputs.items():
            batch.put(keys.INPUT + keys.key_of(partition), keys.written_input(entry), self.handle(_POSITIONS))
        self._write(batch, positions)
        return True

    def restore(self, load: Callable[[], object], positions: Mapping[TopicPartition, int], *, in_bulk: int = 0) -> None:
        """Commit what ``load`` writes, and the positions that it brings the stores to. What it writes with
        ``write_batch`` goes straight into the batch: nobody reads it before it is committed. After an error nothing of
        that is left.

        ``in_bulk``: it writes so many records that nobody needs on the disk before :meth:`settle_aside` has brought
        them there. When there are many, they go past the write-ahead log, which would be half of what the disk has to
        write. Column families are flushed together, so what a crash leaves is still a committed state with its
        positions, but an older one. And into a database that is open for loading until :meth:`end_loading` or the next
        commit, unless keys come in order, which RocksDB takes quickly anyway, or it is read meanwhile: each read would
        have to sort what lies in memory."""
        self._loaded_records += in_bulk
        unlogged = bool(in_bulk) and self._loaded_records > _LOGGED_RECORDS
        if unlogged:
            self._choose_loading()
        self.is_read = False
        batch = self.restoring = rocksdict.WriteBatch(raw_mode=True)
        try:
            load()
        finally:
            self.restoring = None
        if not unlogged:
            self._write(batch, positions)
            return
        self._loaded_bytes += batch.size_in_bytes()
        options: Any = rocksdict.WriteOptions()
        options.disable_wal = True
        self._write(batch, positions, options)

    def take_in(self, store: str, files: Iterable[str], positions: Mapping[TopicPartition, int]) -> None:
        """Have sorted files in a store, over all that it has, then the positions that they bring it to: after a crash
        in between it has more than is known, which does no harm when the same follows once more."""
        self.restore(lambda: None, {})
        self.settle()
        self.store(store).take_in(files)
        self._loaded_bytes += _LOOK_BYTES
        self.restore(lambda: None, positions)

    def _choose_loading(self) -> None:
        if self.is_loading and self.is_read:
            self._may_load = False
            self._reopen(loading=False)
        elif not self.is_loading and self._may_load and self.is_shuffled and not self.is_read:
            self._reopen(loading=True)
        if not self._merges_late:
            self._merge(late=True)

    def note_read(self) -> None:
        """Something in files is about to be read. What is loaded is brought there first, once until more is restored,
        which may take its time: each read would have to sort what lies in memory, and nothing else runs meanwhile. Any
        thread may."""
        if self.is_loading and not self.is_read:
            with suppress(StateError):  # whoever restores meets it, too
                self.settle()
        self.is_read = True

    @property
    def is_behind(self) -> bool:
        """True while what is restored past the log, or comes in files, waits for the disk: whoever restores has to
        pause. Any thread may ask."""
        if self._loaded_bytes < _LOOK_BYTES:
            return False
        if not self._has_failed and any(store.is_behind for store in list(self._stores.values())):
            return True
        self._loaded_bytes = 0
        return False

    @property
    def _has_failed(self) -> bool:
        """RocksDB's threads could not write. It may have stopped them for good, and tells who writes next why."""
        try:
            return bool(self._database.property_int_value("rocksdb.background-errors"))
        except Exception:  # it is being closed, or opened again
            return False

    def end_loading(self) -> None:
        """Have it open for reading and writing again; what is restored in bulk after that is another restoration. For
        the thread that owns it."""
        self._loaded_records = 0
        self._leave_loading()

    def _leave_loading(self) -> None:
        self._may_load = True
        if self.is_loading:
            self._reopen(loading=False)
        elif self._merges_late:
            self._merge(late=False)

    def _merge(self, *, late: bool) -> None:
        self._merges_late = late
        for store in self._stores.values():
            store.merge(LEVEL_0_FILES_MERGED_LATE if late else LEVEL_0_FILES_MERGED)

    def _reopen(self, *, loading: bool) -> None:
        with self.closing:
            if self._is_closed:
                return
            self.place.check()
            self._settle()
            for store in self._stores.values():
                store.let_go()
            flush_at_once(self._positions)
            self._positions.close()
            self._database.close()
            self._is_closed = True  # unless the next line succeeds
            self.is_loading = self._merges_late = loading
            self._attempt(lambda: self._open(()))
            self._is_closed = False
            for store in self._stores.values():
                store.use_family()

    def settle_aside(self) -> bool:
        """Bring what is not in the log to the disk, on a thread of its own; to be asked again until it is True. For one
        thread, whichever."""
        if self.is_logged and not self._settling.is_under_way:
            return True
        return self._settling.is_done(self.settle) and (self.is_logged or self._is_closed)

    def settle(self) -> None:
        """Bring what is not in the log to the disk. Any thread may; :meth:`close` waits for it."""
        with self.closing:
            if not self._is_closed:
                self._settle()

    def _settle(self) -> None:
        if self.is_logged:
            return
        self._flush_stores()
        # After the stores: what a crash leaves in between is given the same records again.
        self._attempt(self._positions.flush)
        self.is_logged = True
        self._loaded_bytes = 0

    def _flush_stores(self) -> None:
        self.place.check()
        for store in list(self._stores.values()):
            self._attempt(store.flush)

    def _write(self, batch: Any, positions: Mapping[TopicPartition, int], options: Any = None) -> None:
        self.place.check()
        logs = options is None
        if logs:
            self._leave_loading()
            if not self.is_logged:  # else nobody waits for a copy that is being made
                self.settle()  # after a crash the log would claim positions of which the stores have only a part
        stores = [store for store in self._stores.values() if not store.layer.is_empty]
        bundles = {store: bundle for store in stores if (bundle := store.bundle()) is not None}
        self._fill(batch, stores, positions, bundles)
        if logs:
            self._attempt(lambda: self._database.write(batch))
        else:
            with self.closing:  # not while it settles: positions, which are flushed last, would claim this too
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
        """Apart from the write: an error that somebody keeps, keeps the variables of where it came from. A handle of a
        column family among them would keep the files open, and nobody could open the database again."""
        beside = self.handle(_POSITIONS)
        for store in stores:
            if store in bundles:
                batch.put(*bundles[store], beside)
            else:
                self._write_out(batch, store, beside)
        for changelog, offset in positions.items():
            batch.put(keys.key_of(changelog), _OFFSET.pack(offset), beside)

    def _write_out(self, batch: Any, store: RocksBytes, beside: Any, *, layer: bool = True) -> None:
        family = self.handle(store.name)
        batch.set_default_column_family(family)  # for each entry, passing it costs as much as the entry
        store.entries_into(batch, family, layer=layer)
        batch.set_default_column_family(None)
        for key in store.bundle_keys:
            batch.delete(key, beside)

    def write_out(self, store: RocksBytes) -> None:
        """Have in its column family what is bundled of a store."""
        batch = self._bundled(store)
        self._attempt(lambda: self._database.write(batch))
        store.note_written_out()

    def _bundled(self, store: RocksBytes) -> Any:
        batch = rocksdict.WriteBatch(raw_mode=True)
        self._write_out(batch, store, self.handle(_POSITIONS), layer=False)
        return batch

    def drop_bundles(self, store: RocksBytes) -> None:
        """Forget what is bundled of a store."""
        batch = rocksdict.WriteBatch(raw_mode=True)
        for key in store.bundle_keys:
            batch.delete(key, self.handle(_POSITIONS))
        if not batch.is_empty():
            self._attempt(lambda: self._database.write(batch))
            store.note_written_out()

    def _unbundle(self) -> None:
        """Write out the bundles that an earlier owner of the files has left."""
        batch = rocksdict.WriteBatch(raw_mode=True)
        try:
            for key, bundle in self._beginning_with(BUNDLE):  # in the order of their numbers
                batch.set_default_column_family(self.handle(name_of(key)))
                put_or_delete(batch, unpacked(bundle).items())
                batch.delete(key, self.handle(_POSITIONS))
        finally:  # who keeps an error keeps the batch, whose handle would keep the files open
            batch.set_default_column_family(None)
        if not batch.is_empty():
            self._database.write(batch)

    def roll_back(self) -> None:
        """Drop what waits in all stores: they are as of the last commit."""
        for store in self._stores.values():
            store.drop_layer()

    def forget(self, changelogs: Collection[TopicPartition]) -> None:
        """Nothing is known of these any more, nor of their topics, nor of what was read; on disk, before anything else
        happens to their stores."""
        batch = rocksdict.WriteBatch(raw_mode=True)
        for partition in self.inputs():
            batch.delete(keys.INPUT + keys.key_of(partition), self.handle(_POSITIONS))
        for changelog in changelogs:
            batch.delete(keys.key_of(changelog), self.handle(_POSITIONS))
            batch.delete(keys.TOPIC_ID + changelog.topic.encode(), self.handle(_POSITIONS))
        self._attempt(lambda: self._database.write(batch))
        self.force_log()

    def force_log(self) -> None:
        """Have on the disk what was written: also a machine that loses its power keeps it."""
        self._attempt(lambda: self._database.flush_wal(True))

    def _attempt(self, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except StateError:
            raise
        except Exception as error:
            remedy = remedy_for(error) or "What was committed before is safe in the changelog topics"
            raise StateError(f"the state store files in {self.path} failed: {text_of(error)}. {remedy}") from error

    def close(self) -> None:
        """Close everything, open scans included; what waits is dropped. A second call does nothing. An error is raised
        when everything is closed: closing flushes, and what stays open could not be opened again."""
        self._ending.wait()
        self._close()

    def close_aside(self) -> bool:
        """:meth:`close`, while others go on; to be asked again until it is True."""
        return bool(self._attempt(lambda: self._ending.is_done(self._close)))

    def _close(self) -> None:
        stores = list(self._stores.values())
        for store in stores:  # before somebody else who flushes them is waited for
            store.flush_at_once()
        if not self._is_closed:
            flush_at_once(self._positions)
        with self.closing:
            closing = [store.close for store in stores]
            if not self._is_closed:
                self._is_closed = True
                closing += [partial(self.place.close, self._positions), partial(self.place.close, self._database)]
                closing.append(self.place.check_closed)
            errors = []
            for close in closing:
                try:
                    close()
                except Exception as error:
                    errors.append(error)
            if errors:
                raise errors[0]

    def checkpoint(self, folder: str) -> tuple[dict[TopicPartition, int], dict[str, str]] | None:
        """Make a copy of the committed state in a new folder of the same file system, mostly of links, and say which
        positions it is at, at least, and in which topics; None when the database is closed. Any thread may;
        :meth:`close` waits for it."""
        with self.closing:
            if self._is_closed:
                return None
            positions, topic_ids = self.positions(), self.topic_ids()
            self._flush_stores()  # the next line would, with the interpreter's lock
            self._attempt(lambda: rocksdict.Checkpoint(self._database).create_checkpoint(folder))
            return positions, topic_ids

    # -- for RocksBytes ----------------------------------------------------------------------------------------

    def handle(self, name: str) -> Any:
        """What batches know a column family by."""
        return self._database.get_column_family_handle(name)

    def family(self, name: str) -> Any:
        """A handle of one column family (creating it if need be)."""
        try:
            return self._database.get_column_family(name)
        except Exception:  # rocksdict has no question "does it exist"
            return self._database.create_column_family(name, self._options)

    def empty_family(self, name: str) -> Any:
        """Drop a column family whose handles are closed and give a handle of a new, empty one."""
        self._database.drop_column_family(name)
        return self.family(name)
