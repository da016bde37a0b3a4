"""A download or an upload that is under way, and whether anything still moves."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable
from typing import Final

from streams_py.errors import SnapshotError

__all__ = ["Download", "Transfer", "Upload"]

_ASKED_EACH_MS: Final = 2_000
"""Whoever waits asks at least so often, unless its process is frozen: that is no silence of the store."""


class Transfer:
    """The thread that does it cannot be ended while it waits for the store, and perhaps goes on one day: so it has a
    folder of its own (``kind-...`` in that of the task), and asks in :meth:`begin` whether it is still wanted."""

    def __init__(self, task_folder: str, kind: str, now_ms: int, *, silence_max_ms: int) -> None:
        self.folder = os.path.join(task_folder, f"{kind}-{uuid.uuid4().hex[:8]}")
        self.done = threading.Event()
        self.given_up = False
        self.what = ""
        """What is under way."""
        self._silence_max_ms = silence_max_ms
        self._moved: Callable[[], int] = int
        self._seen: tuple[str, int] = ("", 0)
        self._silent_ms = 0
        self._asked_ms = now_ms

    def begin(self, what: str, moved: Callable[[], int] = int) -> None:
        """What comes next, and something that grows meanwhile. SnapshotError when nobody waits for it."""
        self.what, self._moved = what, moved
        if self.given_up:
            raise SnapshotError("nobody waits for it any more")

    def is_silent(self, now_ms: int) -> bool:
        """Whether nothing has moved for too long. Asked again and again."""
        seen = (self.what, self._moved())
        waited_ms = min(max(now_ms - self._asked_ms, 0), _ASKED_EACH_MS)
        self._silent_ms = self._silent_ms + waited_ms if seen == self._seen else 0
        self._seen, self._asked_ms = seen, now_ms
        return self._silent_ms >= self._silence_max_ms


class Download(Transfer):
    """Of the newest snapshot that can be used, into :attr:`folder`."""

    result: str | None = None
    """What came, ready to be moved into place."""
    ended_ms = 0

    def begin_file(self, what: str, path: str) -> None:
        """:meth:`begin` with a local file that grows."""
        self.begin(what, lambda: _size(path))


class Upload(Transfer):
    """Of a copy in :attr:`folder`."""

    is_made = False
    """There is a new snapshot."""
    parts = 0
    """That the store's client has told to have gone."""

    def begin_file(self, what: str) -> None:
        """:meth:`begin` with a file that goes in parts."""
        self.begin(what, lambda: self.parts)

    def note_part(self) -> None:
        """Something of the file has gone."""
        self.parts += 1


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:  # not begun
        return 0
