"""The system's clock (port ``Clock`` of the runtime)."""

from __future__ import annotations

import time


class SystemClock:
    """Wall clock, monotonic clock and sleep of this machine."""

    def now_ms(self) -> int:
        """Return milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Return milliseconds of a clock that never goes backwards."""
        return time.monotonic_ns() // 1_000_000

    def sleep_ms(self, duration_ms: int) -> None:
        """Block the calling thread."""
        time.sleep(duration_ms / 1000)
