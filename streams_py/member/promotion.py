"""When a member asks for a rebalance because what it warms up has caught up.

The leader moves a task to a client once that client's copy is within ``acceptable.recovery.lag``, but it only knows
what the last subscriptions said, and Kafka Streams looks again after ``probing.rebalance.interval.ms``: with two
warm-ups at a time that is twelve tasks an hour. Here the member that warms up says so itself: when all of its standbys
and warm-ups (an assignment does not tell them apart) are within the lag, and the leader does not know it of one of
them, the member joins again. To any leader, Kafka Streams' too, that is a member that rejoins.

It cannot become a loop. A task is news only until the next subscription reports it; a request that moves nothing
doubles the pause before the next one, up to ten minutes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from streams_protocol.types import TaskId
from streams_py.member.events import Progress

__all__ = ["Promotion"]

_RUNNING: Final = -2  # what a subscription says of a running active
_PAUSE_MS, _PAUSE_MAX_MS = 1_000, 600_000
_PATIENCE_MS: Final = 60_000
"""So long those that have caught up wait for the others."""


class Promotion:
    """What the leader knows of a member's standbys and warm-ups, and what it should hear."""

    def __init__(self, acceptable_lag: int) -> None:
        self._acceptable_lag = acceptable_lag
        self._standbys: frozenset[TaskId] = frozenset()
        self._progress: Mapping[TaskId, Progress] = {}
        self._reported: Mapping[TaskId, int] = {}
        self._known: set[TaskId] = set()  # the leader counts them as caught up
        self._judged: set[TaskId] = set()  # whether it does is decided
        self._asked: frozenset[TaskId] = frozenset()
        self._news_since_ms: int | None = None
        self._pause_ms = _PAUSE_MS
        self._not_before_ms = 0

    def subscribed(self, sums: Mapping[TaskId, int]) -> None:
        """The leader is told these offset sums."""
        self._reported = sums
        self._known = {task for task in sums if sums[task] == _RUNNING or self._is_warm(task)}
        self._judged = set(self._known)

    def assigned(self, standbys: Collection[TaskId]) -> None:
        """These are the standbys and warm-ups now."""
        self._standbys = frozenset(standbys)
        if self._asked - self._standbys:
            self._pause_ms = _PAUSE_MS
        self._asked &= self._standbys
        self._news_since_ms = None

    def reason(self, now_ms: int, progress: Mapping[TaskId, Progress]) -> str | None:
        """Why to rejoin now; None: do not. ``progress`` has the tasks of which it is known."""
        self._progress = progress
        for task in progress.keys() - self._judged:  # what the leader made of the last report
            self._judged.add(task)
            if progress[task].end - max(0, self._reported.get(task, 0)) <= self._acceptable_lag:
                self._known.add(task)
        warm = frozenset(filter(self._is_warm, self._standbys))
        news = warm - self._known
        if not news:
            self._news_since_ms = None
            return None
        if self._news_since_ms is None:
            self._news_since_ms = now_ms
        if now_ms < self._not_before_ms:
            return None
        if warm != self._standbys and now_ms - self._news_since_ms < _PATIENCE_MS:
            return None
        self._ask(now_ms, news)
        names = ", ".join(map(str, sorted(news)))
        return f"follow-up rebalance: caught up with the changelogs of {names}"

    def _ask(self, now_ms: int, news: frozenset[TaskId]) -> None:
        if now_ms > self._not_before_ms + _PAUSE_MAX_MS:  # the last request is long ago
            self._pause_ms = _PAUSE_MS
        self._not_before_ms = now_ms + self._pause_ms
        self._pause_ms = min(2 * self._pause_ms, _PAUSE_MAX_MS)
        self._asked |= news
        self._known |= news

    def _is_warm(self, task: TaskId) -> bool:
        at = self._progress.get(task)
        return at is not None and at.end - at.position <= self._acceptable_lag
