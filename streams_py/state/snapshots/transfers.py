"""A running download or upload, and whether it still makes progress."""

from __future__ import annotations

import os
import threading
import uuid
from abc import ABC, abstractmethod
from typing import Final

from streams_py.errors import SnapshotError

_ASKED_EACH_MS: Final = 2_000
"""Longest interval between two calls of ``is_silent`` that counts as silence, in ms.

The caller calls it more often than this. A longer interval means that the process was frozen, so it says nothing about
the object store.
"""
PROGRESS_BYTES: Final = 256 << 10
"""Bytes that must arrive for a download to make progress.

An object store that sends a byte now and then would make a task wait forever.
"""


class Transfer(ABC):
    """A transfer that runs on its own thread.

    A thread that waits for the object store cannot be stopped, and may continue at any time. So each transfer uses a
    separate folder (``kind-...`` in the task's directory), and :meth:`begin` stops it when it has been given up.
    """

    def __init__(self, task_folder: str, kind: str, now_ms: int, *, silence_max_ms: int) -> None:
        self.folder = os.path.join(task_folder, f"{kind}-{uuid.uuid4().hex[:8]}")
        self.done = threading.Event()
        self.given_up = False
        self.what = ""
        """Description of the current step."""
        self._silence_max_ms = silence_max_ms
        self._silent_ms = 0
        self._asked_ms = now_ms

    def begin(self, what: str) -> None:
        """Start the next step.

        Args:
            what: Description of the step.

        Raises:
            SnapshotError: The transfer was given up.
        """
        self.what = what
        if self.given_up:
            raise SnapshotError("the transfer was given up")

    def is_silent(self, now_ms: int) -> bool:
        """Whether the transfer has made no progress for too long. To be called regularly."""
        waited_ms = min(max(now_ms - self._asked_ms, 0), _ASKED_EACH_MS)
        self._silent_ms = 0 if self._has_moved() else self._silent_ms + waited_ms
        self._asked_ms = now_ms
        return self._silent_ms >= self._silence_max_ms

    @abstractmethod
    def _has_moved(self) -> bool:
        """Whether the transfer has made progress since this method last returned true."""


class Download(Transfer):
    """A download of the newest usable snapshot into :attr:`folder`."""

    result: str | None = None
    """The folder with the complete snapshot, ready to be moved into place; or None."""
    ended_ms = 0
    """Wall-clock time at which the download ended, in ms."""
    waits_for_cluster = False
    """Whether the current step waits for the cluster, which may take any time."""
    _file: tuple[int, str] = (0, "")
    """The size of the complete files in bytes, and the path of the current file."""
    _counted = 0

    def begin_file(self, what: str, path: str) -> None:
        """Start the download of a file to a path."""
        self._file = self._size(), path
        self.begin(what)

    def _has_moved(self) -> bool:
        """Whether enough bytes of files have arrived.

        A new step alone is not progress, because the object store decides how many steps there are.
        """
        size = self._size()
        if self.waits_for_cluster or size >= self._counted + PROGRESS_BYTES:
            self._counted = size
            return True
        return False

    def _size(self) -> int:
        before, path = self._file
        try:
            return before + os.path.getsize(path)
        except OSError:  # the file does not exist yet
            return before


class Upload(Transfer):
    """An upload of the copy in :attr:`folder`."""

    is_made = False
    """Whether a new snapshot was created."""
    parts = 0
    """Number of uploaded parts that the store's client has reported."""
    _seen = ("", 0)

    def note_part(self) -> None:
        """Count an uploaded part of the file."""
        self.parts += 1

    def _has_moved(self) -> bool:
        seen = self.what, self.parts
        if seen == self._seen:
            return False
        self._seen = seen
        return True
