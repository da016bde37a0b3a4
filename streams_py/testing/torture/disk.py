"""A small separate disk for one instance, which can be made full: a file system in memory (tmpfs).

Requires the permission to mount. To make the disk full, its size is set to the space in use, so nothing has to be
written.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

_SIZE_BYTES: Final = 1 << 30
_PAGE_BYTES: Final = 4 << 10
_TRIES: Final = 20
_COMMAND_S: Final = 20


class DiskError(RuntimeError):
    """The disk cannot be mounted, or cannot be made full; the message gives the reason."""


class SmallDisk:
    """A file system at ``folder``, which is created. Raises DiskError if the user or the system may not mount it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        try:
            _run("mount", "-t", "tmpfs", "-o", f"size={_SIZE_BYTES},mode=0700", "streams-py-torture", str(folder))
        except DiskError:
            folder.rmdir()
            raise

    def fill(self) -> None:
        """Make the disk full."""
        for _ in range(_TRIES):  # the application may write more between the check and the change
            now = os.statvfs(self.folder)
            used = (now.f_blocks - now.f_bfree) * now.f_frsize
            try:
                self._resize(used + _PAGE_BYTES)
            except DiskError as error:
                why = error
            else:
                return
        raise why

    def clear(self) -> None:
        """Make space available again."""
        self._resize(_SIZE_BYTES)

    def close(self) -> None:
        """Unmount and delete the disk, at the latest when no process has a file open on it."""
        _run("umount", "-l", str(self.folder))

    def _resize(self, size: int) -> None:
        _run("mount", "-o", f"remount,size={size}", str(self.folder))


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DiskError(f"{command[0]}: {error}") from error
    if done.returncode != 0:
        raise DiskError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"{command[0]} failed")
