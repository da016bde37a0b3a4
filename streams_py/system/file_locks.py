"""A lock between processes, on a file that is there for nothing else: the kernel's, which drops it with the process,
however that ends. The file says who has it, to those who have to wait.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import socket
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from streams_py.errors import ConfigError
from streams_py.system.forks import when_forked
from streams_py.system.private_files import open_file

__all__ = ["LOCK_FILE", "FileLock", "LockHolder", "alone"]

LOCK_FILE: Final = ".lock"
"""In a folder that is locked as a whole."""

_TEXT_MAX: Final = 512
_TEXT: Final = re.compile(r"(\d{1,10}) ([\w.-]+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class LockHolder:
    """Who has a lock; ``pid`` None when the file does not say it (yet)."""

    pid: int | None = None
    host: str = ""

    @property
    def is_here(self) -> bool:
        """Whether it is this very process."""
        return self.pid == os.getpid() and self.host == socket.gethostname()

    def __str__(self) -> str:
        if self.pid is None:
            return "another process"
        return f"process {self.pid}" + ("" if self.host == socket.gethostname() else f" on {self.host}")


class FileLock:
    """Made by :meth:`take`. Ends with :meth:`release`, or when nobody refers to it any more."""

    def __init__(self, path: Path, file: int) -> None:
        self._path = path
        self._close = weakref.finalize(self, os.close, file)
        when_forked(self, FileLock._leave)

    @classmethod
    def take(cls, path: Path) -> FileLock | LockHolder:
        """The lock on a file, which is made, or who has it. OSError when the file cannot be made."""
        while True:
            file = open_file(str(path), os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = _holder_in(file)
                os.close(file)
                return holder
            except OSError:
                return cls(path, file)  # this file system knows no locks
            if _is_at(path, file):
                _write_holder(file)
                return cls(path, file)
            os.close(file)  # its owner has removed it since it was opened

    def _leave(self) -> None:
        """Close the copy of a forked child: the lock stays with the parent, and ends with it."""
        if self._close.alive:
            self._close()

    def release(self) -> None:
        """End the lock, and remove its file. A second call does nothing."""
        if self._close.alive:
            with contextlib.suppress(OSError):
                self._path.unlink()  # while it is locked: whoever has opened it by now sees that it is gone
            self._close()


@contextlib.contextmanager
def alone(lock: FileLock | LockHolder | None, doing: str, *, option: str | None = None) -> Iterator[None]:
    """Release it in the end; None: there is none to be had. ConfigError, which names ``option``, when somebody else has
    it, who is ``doing`` something."""
    if isinstance(lock, LockHolder):
        said = "" if option is None else f"{option}: "
        raise ConfigError(f"{said}{lock} {doing}; end it, or wait until it ends", key=option)
    try:
        yield
    finally:
        if lock is not None:
            lock.release()


def _write_holder(file: int) -> None:
    with contextlib.suppress(OSError):  # the disk is full: then nobody learns who has it
        os.ftruncate(file, 0)
        os.write(file, f"{os.getpid()} {socket.gethostname()}".encode())


def _holder_in(file: int) -> LockHolder:
    with contextlib.suppress(OSError):
        found = _TEXT.fullmatch(os.pread(file, _TEXT_MAX, 0).decode(errors="replace"))
        if found is not None:
            return LockHolder(int(found[1]), found[2])
    return LockHolder()


def _is_at(place: Path, file: int) -> bool:
    try:
        return os.path.samestat(os.stat(place), os.fstat(file))
    except FileNotFoundError:
        return False
