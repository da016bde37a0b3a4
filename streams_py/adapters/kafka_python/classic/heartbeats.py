"""Heartbeats that are more frequent for a short time after each rebalance.

A member learns of the next rebalance with its next heartbeat, 3 s later by default, and the whole group waits for its
last member. A rebalance that moves tasks is followed by another one immediately: the former owner gives its partitions
up in the first one, and the new owner gets them in the second one. So the members that are not involved would keep the
moved partitions waiting.
"""

from __future__ import annotations

import time
from typing import Final

from kafka.coordinator.heartbeat import Heartbeat

SOON_MS: Final = 200
"""Interval of heartbeats after a rebalance, in ms, if ``heartbeat.interval.ms`` is not shorter."""
AFTER_REBALANCE_S: Final = 5.0
"""Time after a rebalance during which another one is likely, in seconds."""
AFTER_DEATH_S: Final = 15.0
"""Time after the end of another process during which its members are removed, or it returns, in seconds."""


class Heartbeats(Heartbeat):  # type: ignore[misc]  # kafka-python has no type information
    """kafka-python's schedule of heartbeats, with a shorter interval for some time after :meth:`expect_rebalance`."""

    _soon_until = -float("inf")

    def expect_rebalance(self, for_s: float = AFTER_REBALANCE_S) -> None:
        """Send heartbeats at the shorter interval from now on, for ``for_s`` seconds."""
        self._soon_until = max(self._soon_until, time.monotonic() + for_s)

    def time_to_next_heartbeat(self) -> float:
        """Return the time until the next heartbeat is due, in seconds."""
        left_s: float = super().time_to_next_heartbeat()
        now = time.monotonic()
        if now >= self._soon_until:
            return left_s
        sent_at: float = max(self.last_send, self.last_reset)
        return min(left_s, max(0.0, SOON_MS / 1_000 - (now - sent_at)))
