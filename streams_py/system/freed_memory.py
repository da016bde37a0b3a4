"""Return freed memory to the operating system.

RocksDB and librdkafka allocate and free memory on many threads. glibc keeps freed memory in per-thread arenas. After
many task moves and backlogs a process held three times the memory that it used, which looked like a leak.
``malloc_trim`` returns whole free pages within a few milliseconds. Allocators that return memory automatically
(jemalloc, musl, macOS) lack the function; there this module does nothing.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Final

_INTERVAL_S: Final = 60.0


def allocator_trim() -> Callable[[int], object] | None:
    """Return ``malloc_trim`` of the C library; None if the library lacks it."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):  # TypeError: Windows has no library without a name
        return None
    trim.argtypes, trim.restype = (ctypes.c_size_t,), ctypes.c_int
    return trim


class FreedMemory:
    """A background thread that returns freed memory every minute until :meth:`stop`."""

    def __init__(self, trim: Callable[[int], object] | None = None, *, interval_s: float = _INTERVAL_S) -> None:
        self._trim = trim or allocator_trim()
        self._interval_s = interval_s
        self._stop = threading.Event()
        if self._trim is not None:
            threading.Thread(target=self._run, name="freed-memory", args=(self._trim,), daemon=True).start()

    def stop(self) -> None:
        """Stop the thread."""
        self._stop.set()

    def _run(self, trim: Callable[[int], object]) -> None:
        while not self._stop.wait(self._interval_s):
            trim(0)
