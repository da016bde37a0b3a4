"""How long the group is sure to count this process as a member, by its own clock.

A group drops a member whose heartbeats stay away for ``session.timeout.ms``. The member hears of it with its next
request only, but may know earlier that it *can* have happened: when the last request that was answered was sent longer
ago than a session. So a process that was frozen (SIGSTOP, a paused virtual machine) knows it with its first look at the
clock, before any answer from the network. What counts is when a request was *sent*: its answer may have waited in the
socket as long as the process was frozen.

A JoinGroup or SyncGroup that is with the broker keeps its member alive without heartbeats. Whether it is there nobody
knows: a broker may have died, been frozen or lost it. So while it waits the group is asked, by heartbeats over another
connection (:mod:`.group_requests`).
"""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Session"]


class Session:
    """The session of one member."""

    def __init__(self, timeout_ms: int, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._timeout_s = timeout_ms / 1000
        self._clock_s = clock_s
        self._confirmed_at_s = -float("inf")

    @property
    def look_interval_ms(self) -> int:
        """How often to look whether it is over, or to ask the group."""
        return max(1, round(self._timeout_s * 1000 / 5))

    def confirm(self, sent_at_s: float) -> None:
        """The broker has answered, as to a member, a request that was sent then."""
        self._confirmed_at_s = max(self._confirmed_at_s, sent_at_s)

    def is_over(self) -> bool:
        """True when the group may have dropped the member."""
        return self._clock_s() - self._confirmed_at_s > self._timeout_s
