"""Slow work on a database (flushing its memtables, closing it) on a background thread."""

from __future__ import annotations

import threading
from collections.abc import Callable


class BackgroundWork:
    """One kind of work that runs on a background thread.

    Other tasks continue meanwhile. The thread is a daemon, so the process can exit even when the disk hangs. All
    methods must be called by one thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether the work has started and its result has not been fetched by :meth:`is_done` or :meth:`wait`."""
        return self._thread is not None

    def is_done(self, work: Callable[[], None]) -> bool:
        """Start the work unless it is already running, and return whether it has finished.

        The caller calls this again until it returns True. If the work failed, the last call raises its error instead.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, args=(work,), name=self._name, daemon=True)
            self._thread.start()
        if self._thread.is_alive():
            return False
        self.wait()
        return True

    def wait(self) -> None:
        """Block until the running work, if any, has finished. Raises the error of the work."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self._error = error
