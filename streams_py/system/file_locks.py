"""Locks between processes, on files that serve no other purpose.

The kernel releases a lock when its process ends for any reason. The file contains the holder of the lock, for messages
to users who have to wait.
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

LOCK_FILE: Final = ".lock"
"""Name of the lock file in a folder that is locked as a whole."""

_TEXT_MAX: Final = 512
_TEXT: Final = re.compile(r"(\d{1,10}) ([\w.-]+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class LockHolder:
    """The process that holds a lock. ``pid`` is None if the file does not contain it (yet)."""

    pid: int | None = None
    host: str = ""

    @property
    def is_here(self) -> bool:
        """Whether the holder is the current process."""
        return self.pid == os.getpid() and self.host == socket.gethostname()

    def __str__(self) -> str:
        if self.pid is None:
            return "another process"
        return f"process {self.pid}" + ("" if self.host == socket.gethostname() else f" on {self.host}")


class FileLock:
    """A held lock, created by :meth:`take`. Released by :meth:`release`, or when the object is garbage-collected."""

    def __init__(self, path: Path, file: int) -> None:
        self._path = path
        self._close = weakref.finalize(self, os.close, file)
        when_forked(self, FileLock._leave)

    @classmethod
    def take(cls, path: Path) -> FileLock | LockHolder:
        """Lock a file, which is created if necessary.

        Returns:
            The lock, or the holder if another process holds the lock.

        Raises:
            OSError: The file cannot be created.
        """
        while True:
            file = open_file(str(path), os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = _holder_in(file)
                os.close(file)
                return holder
            except OSError:
                return cls(path, file)  # this file system does not support locks
            if _is_at(path, file):
                _write_holder(file)
                return cls(path, file)
            os.close(file)  # the previous holder has removed the file since it was opened

    def _leave(self) -> None:
        """Close the file in a forked child, so that the lock is only held by the parent."""
        if self._close.alive:
            self._close()

    def release(self) -> None:
        """Release the lock, and remove its file. A second call does nothing."""
        if self._close.alive:
            with contextlib.suppress(OSError):
                self._path.unlink()  # while locked, so that a process that has just opened it sees the removal
            self._close()


@contextlib.contextmanager
def alone(lock: FileLock | LockHolder | None, doing: str, *, option: str | None = None) -> Iterator[None]:
    """Run a block under a lock, and release the lock at the end.

    Args:
        lock: The result of :meth:`FileLock.take`. None: the block runs without a lock.
        doing: What a process that holds the lock is doing, for the message.
        option: The option that the message names.

    Raises:
        ConfigError: Another process holds the lock.
    """
    if isinstance(lock, LockHolder):
        said = "" if option is None else f"{option}: "
        raise ConfigError(f"{said}{lock} {doing}; stop it, or wait until it has finished", key=option)
    try:
        yield
    finally:
        if lock is not None:
            lock.release()


def _write_holder(file: int) -> None:
    with contextlib.suppress(OSError):  # for example, the disk is full: then messages cannot name the holder
        os.ftruncate(file, 0)
        os.write(file, f"{os.getpid()} {socket.gethostname()}".encode())


def _holder_in(file: int) -> LockHolder:
    with contextlib.suppress(OSError):
        found = _TEXT.fullmatch(os.pread(file, _TEXT_MAX, 0).decode(errors="replace"))
        if found is not None:
            return LockHolder(int(found[1]), found[2])
    return LockHolder()


def _is_at(path: Path, file: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(file))
    except FileNotFoundError:
        return False
