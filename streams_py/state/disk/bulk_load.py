"""Restores records into a task's database, with a faster mode for many records.

A bulk restore of many records differs from other writes in two ways:

* It bypasses the write-ahead log, which would be half of the disk writes. Column families are flushed together, so a
  crash still leaves a committed state with its positions, but an older one.
* The database is reopened for loading, until :meth:`BulkLoad.end_loading` or the next commit. Such a database takes
  entries in a tenth of the time, but reads are slow. So this does not happen if the keys arrive in order, which is fast
  without it, or if the database is read meanwhile: each read would have to sort the memtable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import rocksdict

from streams_protocol.types import TopicPartition
from streams_py.state.disk.database import TaskDatabase

_LOGGED_RECORDS: Final = 20_000
"""Number of records of a bulk restore that still use the write-ahead log. For fewer, a final flush would cost more."""
_LOOK_BYTES: Final = 256 << 10
"""Bytes loaded between two checks for disk back-pressure."""


class BulkLoad:
    """Restores records into an open database. Except for :attr:`is_behind`, for the thread that owns the database."""

    def __init__(self, database: TaskDatabase) -> None:
        self.database = database
        self._mode = database.mode
        self._may_load = True
        """Whether the database may be reopened for loading. It may not if it was read while it was open for loading."""
        self._loaded_records = 0
        """Number of records restored in bulk since the last :meth:`end_loading`."""

    def restore(self, load: Callable[[], object], positions: Mapping[TopicPartition, int], *, in_bulk: int = 0) -> None:
        """Commit the records that ``load`` writes, and the positions that the stores reach with them.

        Writes through ``write_batch`` go directly into the batch, because no reader needs them before the commit. After
        an error none of them remain.

        Args:
            load: Writes the records to the stores.
            positions: Changelog positions that the stores reach with these records.
            in_bulk: Number of records, if they need not be on disk before :meth:`TaskDatabase.flush_in_background` has
                returned True; 0 otherwise.
        """
        mode = self._mode
        self._loaded_records += in_bulk
        unlogged = bool(in_bulk) and self._loaded_records > _LOGGED_RECORDS
        if unlogged:
            self._choose_loading()
        mode.is_read = False
        batch = mode.batch = rocksdict.WriteBatch(raw_mode=True)
        try:
            load()
        finally:
            mode.batch = None
        if unlogged:
            mode.loaded_bytes += batch.size_in_bytes()
        self.database.write(batch, positions, logged=not unlogged)

    def take_in(self, store: str, files: Iterable[str], positions: Mapping[TopicPartition, int]) -> None:
        """Ingest sorted files into a store, on top of its content, and then commit the positions reached with them.

        After a crash in between, the store has more records than its position says. That is harmless: the same records
        are applied again.
        """
        self.restore(lambda: None, {})
        self.database.flush()
        self.database.store(store).take_in(files)
        self._mode.loaded_bytes += _LOOK_BYTES
        self.restore(lambda: None, positions)

    def _choose_loading(self) -> None:
        mode = self._mode
        if not mode.merges_late:  # the first records of this restore, or since a commit
            self._may_load = True
        if mode.is_loading and mode.is_read:
            self._may_load = False
            self.database.reopen(loading=False)
        elif not mode.is_loading and self._may_load and mode.is_shuffled and not mode.is_read:
            self.database.reopen(loading=True)
        if not mode.merges_late:
            self.database.merge(late=True)

    @property
    def is_behind(self) -> bool:
        """Whether restoring has to pause until the disk has caught up. Thread-safe.

        Counts records that bypass the write-ahead log, and ingested files.
        """
        if self._mode.loaded_bytes < _LOOK_BYTES:
            return False
        if not self.database.has_failed and any(store.is_behind for store in self.database.stores()):
            return True
        self._mode.loaded_bytes = 0
        return False

    def end_loading(self) -> None:
        """Make sure that the database is open for reading and writing, not for loading.

        Records restored in bulk after this call count as a new restore.
        """
        self._loaded_records = 0
        self.database.leave_loading()
