"""Early rebalance requests of a member whose standbys and warm-ups have caught up.

The leader moves a task to a client once the client's copy is within ``acceptable.recovery.lag``. It only knows the lags
of the last subscriptions. Kafka Streams checks again after ``probing.rebalance.interval.ms``, so with two warm-ups at a
time it moves twelve tasks per hour. Here the member that warms up a task reports it: the member rejoins when all of its
standbys and warm-ups are within the lag (an assignment does not distinguish the two) and the leader does not know this
yet for at least one of them. Any leader, including Kafka Streams', treats this as an ordinary rejoin.

The requests cannot form a loop. A task is news only until the next subscription reports it. A request after which no
task moves doubles the pause before the next one, up to ten minutes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from streams_protocol.types import TaskId
from streams_py.member.tasks import Progress

_RUNNING: Final = -2  # offset sum that a subscription reports for a running active task
_PAUSE_MS, _PAUSE_MAX_MS = 1_000, 600_000
_PATIENCE_MS: Final = 60_000
"""Maximum time that tasks that have caught up wait for the other tasks, in ms."""


class Promotion:
    """What the leader knows about a member's standbys and warm-ups, and what is news to it."""

    def __init__(self, acceptable_lag: int) -> None:
        self._acceptable_lag = acceptable_lag
        self._standbys: frozenset[TaskId] = frozenset()
        self._progress: Mapping[TaskId, Progress] = {}
        self._reported: Mapping[TaskId, int] = {}
        self._known: set[TaskId] = set()  # tasks that the leader counts as caught up
        self._judged: set[TaskId] = set()  # tasks for which this was determined, either way
        self._asked: frozenset[TaskId] = frozenset()
        self._news_since_ms: int | None = None
        self._pause_ms = _PAUSE_MS
        self._not_before_ms = 0

    def subscribed(self, sums: Mapping[TaskId, int]) -> None:
        """Note the offset sums that the member's subscription reports to the leader."""
        self._reported = sums
        self._known = {task for task in sums if sums[task] == _RUNNING or self._is_warm(task)}
        self._judged = set(self._known)

    def assigned(self, standbys: Collection[TaskId]) -> None:
        """Replace the member's standbys and warm-ups."""
        self._standbys = frozenset(standbys)
        if self._asked - self._standbys:
            self._pause_ms = _PAUSE_MS
        self._asked &= self._standbys
        self._news_since_ms = None

    def reason(self, now_ms: int, progress: Mapping[TaskId, Progress]) -> str | None:
        """Return a reason to rejoin now, or None.

        ``progress`` contains only tasks whose progress is known.
        """
        self._progress = progress
        for task in progress.keys() - self._judged:  # how the leader read the last report
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
        if now_ms > self._not_before_ms + _PAUSE_MAX_MS:  # the last request was long ago
            self._pause_ms = _PAUSE_MS
        self._not_before_ms = now_ms + self._pause_ms
        self._pause_ms = min(2 * self._pause_ms, _PAUSE_MAX_MS)
        self._asked |= news
        self._known |= news

    def _is_warm(self, task: TaskId) -> bool:
        at = self._progress.get(task)
        return at is not None and at.end - at.position <= self._acceptable_lag
