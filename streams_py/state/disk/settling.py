"""A database that brings to the disk what it holds in memory, on a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["Settling"]


class Settling(threading.Thread):
    """Others are restored meanwhile; and nobody waits for it when it hangs in a disk."""

    def __init__(self, settle: Callable[[], None]) -> None:
        super().__init__(name="state-flush", daemon=True)
        self._settle = settle
        self._error: Exception | None = None

    def run(self) -> None:
        try:
            self._settle()
        except Exception as error:
            self._error = error

    def outcome(self) -> None:
        """After its end: raises what has failed."""
        if self._error is not None:
            raise self._error
