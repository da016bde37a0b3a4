"""Virtual time: a queue of planned actions.

A simulation runs in one thread. Each action has a time in milliseconds, and the seed determines the order. Nothing
waits in real time: an hour of virtual time takes as many steps as it has actions.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

START_MS: Final = 1_700_000_000_000
"""Start time of the simulation, in ms since the epoch."""


class Timeline:
    """Planned actions, ordered by time, and by the order of planning if the time is equal."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self.now_ms = now_ms
        self.steps = 0
        self._number = 0
        self._queue: list[tuple[int, int, Callable[..., None], tuple[object, ...]]] = []

    def after(self, delay_ms: int, action: Callable[..., None], *args: object) -> None:
        """Plan an action ``delay_ms`` from now."""
        self._number += 1
        heappush(self._queue, (self.now_ms + max(0, delay_ms), self._number, action, args))

    @property
    def next_ms(self) -> int | None:
        """Time of the next action; None if no action is planned."""
        return self._queue[0][0] if self._queue else None

    def step(self) -> bool:
        """Run the next action; return False if no action is planned."""
        if not self._queue:
            return False
        at_ms, _, action, args = heappop(self._queue)
        self.now_ms = at_ms
        self.steps += 1
        action(*args)
        return True
