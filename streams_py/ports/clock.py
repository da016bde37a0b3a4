"""What time it is."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Clock"]


class Clock(Protocol):
    """Time in ms: ``now_ms`` since the epoch, ``monotonic_ms`` never goes back. The runtime reads no other clock."""

    def now_ms(self) -> int: ...
    def monotonic_ms(self) -> int: ...
    def sleep_ms(self, duration_ms: int) -> None: ...
