"""What time it is."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """The only clock that the runtime reads. Times are in ms.

    ``now_ms`` is the time since the epoch. ``monotonic_ms`` never decreases.
    """

    def now_ms(self) -> int: ...
    def monotonic_ms(self) -> int: ...
    def sleep_ms(self, duration_ms: int) -> None: ...
