"""Gives freed memory back to the system.

RocksDB and librdkafka take and free memory on many threads, and glibc keeps what was freed for the thread that had it:
after tasks have come and gone and backlogs were read, a process held three times what it used, and it looked like a
leak. ``malloc_trim`` gives whole free pages back, in a few milliseconds. Allocators that do so by themselves (jemalloc,
musl's, macOS's) do not have the function, and nothing happens there.
"""

from __future__ import annotations

import ctypes
import logging
import threading
from collections.abc import Callable
from typing import Final

__all__ = ["FreedMemory", "allocator_trim"]

_log = logging.getLogger("streams_py")

_INTERVAL_S: Final = 60.0


def allocator_trim() -> Callable[[int], object] | None:
    """``malloc_trim`` of this process' C library; None where it has none."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):  # TypeError: Windows has no library without a name
        return None
    trim.argtypes, trim.restype = (ctypes.c_size_t,), ctypes.c_int
    return trim


class FreedMemory:
    """Gives back every minute, on a thread of its own, until :meth:`stop`."""

    def __init__(self, trim: Callable[[int], object] | None = None, *, interval_s: float = _INTERVAL_S) -> None:
        self._trim = trim or allocator_trim()
        self._interval_s = interval_s
        self._stop = threading.Event()
        if self._trim is not None:
            threading.Thread(target=self._run, name="freed-memory", args=(self._trim,), daemon=True).start()

    def stop(self) -> None:
        """No more of it."""
        self._stop.set()

    def _run(self, trim: Callable[[int], object]) -> None:
        while not self._stop.wait(self._interval_s):
            trim(0)
