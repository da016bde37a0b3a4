"""Temporary folders that do not stay when their process is killed: the next one that needs a folder removes them.

Whoever has a folder holds a lock on it, which the kernel drops with the process. So a folder without a lock belongs to
nobody any more.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

__all__ = ["TemporaryFolder"]

_PREFIX: Final = "streams-py-history-"


class TemporaryFolder:
    """A new folder in ``parent`` (default: the system's for temporary files)."""

    def __init__(self, parent: str | None = None) -> None:
        made = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}", dir=parent))
        self._lock = _locked(made)  # before it has a name that others look for
        self.path = made.rename(made.with_name(made.name.removeprefix(".")))
        _remove_abandoned(self.path.parent)

    def remove(self) -> None:
        """Remove it with all that is in it. A second call does nothing."""
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
    """The descriptor that holds the lock; None when another process has it, or the file system knows no locks."""
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    if os.fstat(lock).st_uid != os.geteuid():  # another user's, which root could delete
        os.close(lock)
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    return lock
