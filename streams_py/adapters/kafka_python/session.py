"""Determine by the local clock whether the group may have removed this member.

A group removes a member whose heartbeats have been missing for ``session.timeout.ms``. The member learns that only from
the response to its next request. But it can tell earlier that this *may* have happened: the last answered request was
sent longer ago than the session timeout. So a process that was frozen (SIGSTOP, a paused virtual machine) can tell when
it first reads the clock, before any response. The time of *sending* counts, because a response may have waited in the
socket while the process was frozen.

While a broker has a JoinGroup or SyncGroup of a member, the member stays in the group without heartbeats. But the
member cannot tell whether the broker has the request: the broker may have failed, been frozen or lost it. So meanwhile
the member sends heartbeats over another connection (:mod:`.classic.group_requests`).
"""

from __future__ import annotations

import time
from collections.abc import Callable


class Session:
    """The session of one member."""

    def __init__(self, timeout_ms: int, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._timeout_s = timeout_ms / 1000
        self._clock_s = clock_s
        self._confirmed_at_s = -float("inf")

    @property
    def check_interval_ms(self) -> int:
        """Interval for checking the session, or for heartbeats while a request waits, in ms."""
        return max(1, round(self._timeout_s * 1000 / 5))

    def confirm(self, sent_at_s: float) -> None:
        """Note that the broker has answered, as to a member, a request that was sent at ``sent_at_s``."""
        self._confirmed_at_s = max(self._confirmed_at_s, sent_at_s)

    def has_expired(self) -> bool:
        """Whether the group may have removed the member."""
        return self._clock_s() - self._confirmed_at_s > self._timeout_s
