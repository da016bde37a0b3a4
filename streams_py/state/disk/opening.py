"""Opening a database, and whether it is still where it was opened.

Whoever deletes the directory of a running process takes nothing from it at first: its files stay open, and what is read
and written goes to them. But nothing of that is there after a restart; the next flush fails; and when another process
has made a database in the same place meanwhile, it would go into that one's files. So each commit looks first.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from time import sleep
from typing import Any, Final

import rocksdict

from streams_py.errors import StateError
from streams_py.system.private_files import FOLDER_MODE, close_to_others, make_folder

__all__ = ["Place", "open_database", "prepare_folder"]

_HELD_HERE: Final = "lock hold by current process"
"""So RocksDB says that it is still open in this process."""
_OPEN_TRIES: Final = 50
_OPEN_PAUSE_S: Final = 0.01
_IDENTITY: Final = "IDENTITY"
"""RocksDB's file with what no two databases have in common."""
_IDENTITY_BYTES_MAX: Final = 100


def prepare_folder(path: str) -> None:
    """Create the folder of a database, or check that it belongs to this user, and close its files to other users.
    OSError when that is not possible."""
    os.makedirs(os.path.dirname(path), mode=FOLDER_MODE, exist_ok=True)
    make_folder(path)
    close_to_others(path)


def open_database(path: str, options: Any, families: Mapping[str, Any]) -> Any:
    """Open it with these column families."""
    for tries_left in reversed(range(_OPEN_TRIES)):
        try:
            return rocksdict.Rdict(path, options, dict(families))
        except Exception as error:
            if _HELD_HERE not in str(error) or not tries_left:
                raise
        sleep(_OPEN_PAUSE_S)  # a query is within a step of a scan, and lets go of the files after it
    raise AssertionError("the last try raises")


class Place:
    """Where a database is that has just been opened."""

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
        """The database is not there any more."""
        return self._identity is not None and self._now() != self._identity

    @property
    def is_taken(self) -> bool:
        """Another one is there."""
        return self._identity is not None and self._now() not in (self._identity, None)

    def _now(self) -> bytes | None:
        try:
            return self._read()
        except OSError:  # a limit of open files, say: that tells nothing
            return self._identity

    def check(self) -> None:
        """StateError when the database is not there any more, with what is gone."""
        if self.is_gone:
            raise StateError(self._what_is_gone())

    def close(self, handle: Any) -> None:
        """Close a handle of the database, which flushes. In a place that another one has taken it is left open for
        ever: files of both have the same names. What was lost is told by :meth:`check_closed`."""
        if self.is_taken:
            self._lost = True
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(handle))  # also when Python ends
            return
        try:
            handle.close()
        except Exception:
            if not self.is_gone:
                raise
            self._lost = True

    def check_closed(self) -> None:
        """Once, when something was lost in :meth:`close`: StateError."""
        if self._lost:
            self._lost = False
            raise StateError(self._what_is_gone())

    def _what_is_gone(self) -> str:
        if self.is_taken:
            return (
                f"the state store files in {self._path} were deleted while they were in use, and others are there now: "
                f"another process uses this state.dir; {_REMEDY}"
            )
        gone = self._path
        while not os.path.exists(parent := os.path.dirname(gone)):
            gone = parent
        return f"{gone} was deleted while state stores in it were in use; {_REMEDY}"


_REMEDY: Final = (
    "what was committed is safe in the changelog topics, and is restored from them when this thread is replaced or the "
    "application started again"
)
