"""Work on a database that may take long, on a thread of its own: flushing what it holds in memory, and closing it."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["Aside"]


class Aside:
    """One kind of work, of which nobody has to wait for the end: other tasks go on, and a process ends also when it
    hangs in a disk. For one thread."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    @property
    def is_under_way(self) -> bool:
        """Begun, and nobody has been told of its end."""
        return self._thread is not None

    def is_done(self, work: Callable[[], None]) -> bool:
        """Begin the work, unless it is under way. To be asked again until it is True, which raises what went wrong."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, args=(work,), name=self._name, daemon=True)
            self._thread.start()
        if self._thread.is_alive():
            return False
        self.wait()
        return True

    def wait(self) -> None:
        """Wait for what is under way, if anything is; raises what went wrong."""
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
