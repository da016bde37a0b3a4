"""Temporary folders. If a process is killed, the next process that needs such a folder removes its folders.

A process holds a lock on its folder, and the kernel releases the lock when the process ends. So a folder without a lock
is abandoned.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

_PREFIX: Final = "streams-py-history-"


class TemporaryFolder:
    """A new temporary folder in ``parent`` (default: the system's folder for temporary files)."""

    def __init__(self, parent: str | None = None) -> None:
        made = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}", dir=parent))
        self._lock = _locked(made)  # before it gets a name for which other processes search
        self.path = made.rename(made.with_name(made.name.removeprefix(".")))
        _remove_abandoned(self.path.parent)

    def remove(self) -> None:
        """Remove the folder and its contents. A second call does nothing."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _remove_abandoned(parent: Path) -> None:
    for found in parent.glob(f"{_PREFIX}*"):
        lock = _locked(found)
        if lock is not None:
            shutil.rmtree(found, ignore_errors=True)
            os.close(lock)


def _locked(folder: Path) -> int | None:
    """Lock a folder and return the descriptor that holds the lock.

    None when another process has the lock, the folder belongs to another user, or the file system has no locks.
    """
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    if os.fstat(lock).st_uid != os.geteuid():  # root could delete the folder of another user
        os.close(lock)
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    return lock
