"""A running download or upload, and whether it still makes progress."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable
from typing import Final

from streams_py.errors import SnapshotError

_ASKED_EACH_MS: Final = 2_000
"""Longest interval between two calls of ``is_silent`` that counts as silence, in ms.

The caller calls it more often than this. A longer interval means that the process was frozen, so it says nothing about
the object store.
"""


class Transfer:
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
        self._moved: Callable[[], int] = int
        self._seen: tuple[str, int] = ("", 0)
        self._silent_ms = 0
        self._asked_ms = now_ms

    def begin(self, what: str, moved: Callable[[], int] = int) -> None:
        """Start the next step.

        Args:
            what: Description of the step.
            moved: Returns a number that grows while the step makes progress.

        Raises:
            SnapshotError: The transfer was given up.
        """
        self.what, self._moved = what, moved
        if self.given_up:
            raise SnapshotError("the transfer was given up")

    def is_silent(self, now_ms: int) -> bool:
        """Whether the transfer has made no progress for too long. To be called regularly."""
        seen = (self.what, self._moved())
        waited_ms = min(max(now_ms - self._asked_ms, 0), _ASKED_EACH_MS)
        self._silent_ms = self._silent_ms + waited_ms if seen == self._seen else 0
        self._seen, self._asked_ms = seen, now_ms
        return self._silent_ms >= self._silence_max_ms


class Download(Transfer):
    """A download of the newest usable snapshot into :attr:`folder`."""

    result: str | None = None
    """The folder with the complete snapshot, ready to be moved into place; or None."""
    ended_ms = 0
    """Wall-clock time at which the download ended, in ms."""

    def begin_file(self, what: str, path: str) -> None:
        """Start a step whose progress is the growing size of a local file."""
        self.begin(what, lambda: _size(path))


class Upload(Transfer):
    """An upload of the copy in :attr:`folder`."""

    is_made = False
    """Whether a new snapshot was created."""
    parts = 0
    """Number of uploaded parts that the store's client has reported."""

    def begin_file(self, what: str) -> None:
        """Start a step whose progress is the number of uploaded parts."""
        self.begin(what, lambda: self.parts)

    def note_part(self) -> None:
        """Count an uploaded part of the file."""
        self.parts += 1


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:  # the file does not exist yet
        return 0
