"""A small disk of its own for one instance, which can be full: a file system in memory (tmpfs), where mounting is
allowed.

Full is what is used at that moment: the size is set to it, and back. So nothing has to be written to fill it.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

__all__ = ["DiskError", "SmallDisk"]

_SIZE_BYTES: Final = 1 << 30
_PAGE_BYTES: Final = 4 << 10
_TRIES: Final = 20
_COMMAND_S: Final = 20


class DiskError(RuntimeError):
    """It cannot be mounted, or made full; the message says why."""


class SmallDisk:
    """A file system at ``folder``, which is made. DiskError when this user, or this system, may not mount one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        try:
            _run("mount", "-t", "tmpfs", "-o", f"size={_SIZE_BYTES},mode=0700", "streams-py-torture", str(folder))
        except DiskError:
            folder.rmdir()
            raise

    def fill(self) -> None:
        """From now on there is no space left."""
        for _ in range(_TRIES):  # more may be written between the look and the change
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
        """There is space again."""
        self._resize(_SIZE_BYTES)

    def close(self) -> None:
        """It is gone with everything on it; at once, or when nobody has a file open there any more."""
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
