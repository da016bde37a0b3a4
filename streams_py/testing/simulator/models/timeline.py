"""Virtual time: what happens next, and when.

Everything in a simulation happens in one thread, at an instant in milliseconds, in an order that the seed decides.
Nothing waits: an hour of a group's life is as many steps as there are things that happen in it.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

__all__ = ["START_MS", "Timeline"]

START_MS: Final = 1_700_000_000_000
"""Where every simulated wall clock starts, in ms since the epoch."""


class Timeline:
    """Actions in order of time; those of one instant in the order in which they were planned."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self.now_ms = now_ms
        self.steps = 0
        self._number = 0
        self._queue: list[tuple[int, int, Callable[..., None], tuple[object, ...]]] = []

    def after(self, delay_ms: int, action: Callable[..., None], *args: object) -> None:
        """Do this ``delay_ms`` from now."""
        self._number += 1
        heappush(self._queue, (self.now_ms + max(0, delay_ms), self._number, action, args))

    @property
    def next_ms(self) -> int | None:
        """When the next thing happens; None when nothing ever will."""
        return self._queue[0][0] if self._queue else None

    def step(self) -> bool:
        """Let the next thing happen; False when there is none."""
        if not self._queue:
            return False
        at_ms, _, action, args = heappop(self._queue)
        self.now_ms = at_ms
        self.steps += 1
        action(*args)
        return True
