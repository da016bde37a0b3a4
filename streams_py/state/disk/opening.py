"""Open a database, and check that its files still exist at the path where it was opened.

When somebody deletes the state directory of a running process, the process notices nothing at first: its files stay
open, and reads and writes still work. But the data is lost after a restart, and the next flush fails. If another
process has created a database at the same path in the meantime, the flush would even write into that database's files.
So every commit first checks that the path still holds the database that was opened.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from contextlib import suppress
from time import sleep
from typing import Any, Final

import rocksdict

from streams_py.errors import StateError
from streams_py.state.disk.options import LEVEL_0_FILES_MAX
from streams_py.system.private_files import FOLDER_MODE, close_to_others, make_folder

_HELD_HERE: Final = "lock hold by current process"
"""Part of RocksDB's error message when the database is still open in this process."""
_OPEN_TRIES: Final = 50
_OPEN_PAUSE_S: Final = 0.01
_STALLS: Final = dict.fromkeys(("level0_slowdown_writes_trigger", "level0_stop_writes_trigger"), str(1 << 30))
"""RocksDB options that stop it from delaying writers, however many level-0 files wait for compaction."""
_IDENTITY: Final = "IDENTITY"
"""The file in which RocksDB stores the unique id of a database."""
_IDENTITY_BYTES_MAX: Final = 100


def prepare_folder(path: str) -> None:
    """Create the folder of a database, or check its owner, and revoke other users' access to its files.

    Raises:
        OSError: The folder cannot be created, or its files cannot be protected.
    """
    os.makedirs(os.path.dirname(path), mode=FOLDER_MODE, exist_ok=True)
    make_folder(path)
    close_to_others(path)


def open_database(path: str, options: Any, families: Mapping[str, Any]) -> Any:
    """Open the database at ``path`` with these column families (name -> options)."""
    for tries_left in reversed(range(_OPEN_TRIES)):
        try:
            return rocksdict.Rdict(path, options, dict(families))
        except Exception as error:
            if _HELD_HERE not in str(error) or not tries_left:
                raise
        sleep(_OPEN_PAUSE_S)  # a query in another thread is in the middle of a scan, and closes the files after it
    raise AssertionError("unreachable: the last attempt raises")


def flush_at_once(family: Any) -> None:
    """Let flushes of a column family run without delay, until it is opened again. To be called before closing.

    RocksDB delays a flush as long as it would delay writers, that is until level-0 files have been compacted. Closing
    flushes, but it writes nothing afterwards and cancels running compactions, so it need not wait for them.
    """
    with suppress(Exception):  # a closed handle raises several kinds of errors; a full disk is reported by the flush
        if int(family.property_value("rocksdb.num-files-at-level0")) >= LEVEL_0_FILES_MAX:
            family.set_options(_STALLS)


class Location:
    """The path of an open database, and the id that the database had there when it was opened."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._identity: bytes | None = None
        self._identity = self._now()
        self._lost = False

    def _read(self) -> bytes | None:
        try:
            with open(os.path.join(self._path, _IDENTITY), "rb") as file:
                return file.read(_IDENTITY_BYTES_MAX)
        except (FileNotFoundError, NotADirectoryError):
            return None

    @property
    def is_gone(self) -> bool:
        """Whether the database no longer exists at its path: deleted, or replaced by another database."""
        return self._identity is not None and self._now() != self._identity

    @property
    def is_taken(self) -> bool:
        """Whether another database exists at the path."""
        return self._identity is not None and self._now() not in (self._identity, None)

    def _now(self) -> bytes | None:
        try:
            return self._read()
        except OSError:  # for example too many open files: this does not mean that the database is gone
            return self._identity

    def check(self) -> None:
        """Check that the database still exists at its path.

        Raises:
            StateError: The database was deleted or replaced. The message names the topmost deleted directory.
        """
        if self.is_gone:
            raise StateError(self._what_is_gone())

    def close(self, handle: Any) -> None:
        """Close a handle of the database, which flushes its data.

        If another database now exists at the path, the handle stays open for the life of the process: a flush would
        write to file names that belong to the other database. :meth:`check_closed` reports data that was lost.
        """
        if self.is_taken:
            self._lost = True
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(handle))  # so that even interpreter shutdown does not close it
            return
        try:
            handle.close()
        except Exception:
            if not self.is_gone:
                raise
            self._lost = True

    def check_closed(self) -> None:
        """Report data that :meth:`close` could not flush.

        Raises:
            StateError: Data was lost since the last call of this method.
        """
        if self._lost:
            self._lost = False
            raise StateError(self._what_is_gone())

    def _what_is_gone(self) -> str:
        if self.is_taken:
            return (
                f"the state store files in {self._path} were deleted while they were in use, and another database is "
                f"there now: another process uses this state.dir; {_REMEDY}"
            )
        gone = self._path
        while not os.path.exists(parent := os.path.dirname(gone)):
            gone = parent
        return f"{gone} was deleted while state stores in it were in use; {_REMEDY}"


_REMEDY: Final = (
    "committed data is safe in the changelog topics, and is restored from them when this thread is replaced or the "
    "application is restarted"
)
