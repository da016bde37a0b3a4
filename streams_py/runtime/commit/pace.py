"""When a stream thread commits, and how many records its tasks may process until then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from streams_py.ports import Clock
from streams_py.runtime.commit.committer import WAITS, Committer
from streams_py.runtime.commit.repartition_purge import RepartitionPurge
from streams_py.runtime.group.transport import GroupTransport
from streams_py.runtime.tasks.active_task import ActiveTask
from streams_py.runtime.tasks.latency import Latency
from streams_py.runtime.tasks.task_table import TaskTable
from streams_py.state.caching.cache import RecordCache

_BACKOFF_MS: Final = 100
"""Pause after a failed commit, in ms. Each attempt flushes the caches and the producer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceSettings:
    """Limits of the time, the memory and the flush between two commits of a stream thread."""

    commit_interval_ms: int
    rebalance_commit_interval_ms: int
    """Commit interval for transactions during a rebalance, in ms: a tenth of ``transaction.timeout.ms``, but not less
    than ``commit.interval.ms``. So the broker does not abort them, and a short rebalance has few commits or none."""
    uncommitted_max_bytes: int
    """Maximum bytes that the stores of this thread hold for the next commit. Above it a commit is made early."""
    flush_max_ms: int
    """Maximum expected duration of flushing the record caches, in ms. Above it a commit is made early. A fraction of
    ``transaction.timeout.ms`` and of ``max.poll.interval.ms``, because the actual duration is not known."""


class CommitPace:
    """Decides when the tasks of one stream thread are committed. For that thread only.

    Args:
        latency: Receives the durations of commits.
    """

    def __init__(
        self,
        committer: Committer,
        table: TaskTable,
        transport: GroupTransport,
        cache: RecordCache,
        purge: RepartitionPurge,
        clock: Clock,
        latency: Latency,
        settings: PaceSettings,
    ) -> None:
        self._committer = committer
        self._table = table
        self._transport = transport
        self._cache = cache
        self._purge = purge
        self._clock = clock
        self._latency = latency
        self._settings = settings
        self._next_try_ms = 0
        self._first_to_work = 0  # index of the first task when tasks take turns
        self.last_commit_ms = clock.monotonic_ms()
        """Monotonic time of the last commit that was due, in ms."""

    # -- until the next commit -------------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """Whether processing must wait for a commit, because the stores hold too many uncommitted bytes."""
        return self._uncommitted_bytes() > 2 * self._settings.uncommitted_max_bytes

    def shares(self, tasks: Sequence[ActiveTask], n: int) -> tuple[Sequence[ActiveTask], int]:
        """Return which tasks may process how many records now, ``n`` each at most.

        The tasks take turns if not every task may process a record.
        """
        room, count = self._flush_room(), len(tasks)
        if not room and not any(task.commit_needed for task in tasks):
            room = 1  # entries from the initialisation are flushed with the first record
        if room >= n * count:
            return tasks, n
        if room >= count:
            return tasks, room // count
        first = self._first_to_work % count
        self._first_to_work = first + room
        return [*tasks[first:], *tasks[:first]][:room], 1

    def _uncommitted_bytes(self) -> int:
        return sum(task.stores.uncommitted_bytes for task in self._table.running())

    def _flush_room(self) -> int:
        """Return how many more records may add entries to the caches, so that flushing them does not take too long.

        0 means that a commit must flush the caches first.
        """
        return self._cache.room(self._settings.flush_max_ms)

    # -- the commit ------------------------------------------------------------------------------------------

    def commit_if_due(self) -> int:
        """Commit if the interval has elapsed, a task has requested it, or the stores or caches hold too much.

        Returns:
            The number of committed tasks. It is 0 without a commit: none was due, or it failed or waits, and a later
            call tries again. It is -1 while a rebalance delays the commit.

        Raises:
            StreamsError: As :meth:`Committer.commit`.
        """
        in_rebalance = self._transport.rebalancing
        if in_rebalance and not self._transport.is_member():
            return -1
        now = self._clock.monotonic_ms()
        running = self._table.running()
        settings = self._settings
        must_flush = self._uncommitted_bytes() > settings.uncommitted_max_bytes or not self._flush_room()
        if in_rebalance and not self._committer.is_transactional:
            if must_flush and now >= self._next_try_ms and not self._committer.make_room(running):
                self._next_try_ms = self._clock.monotonic_ms() + _BACKOFF_MS
            return -1
        interval_ms = settings.rebalance_commit_interval_ms if in_rebalance else settings.commit_interval_ms
        due = must_flush or now - self.last_commit_ms > interval_ms
        if in_rebalance and not due:
            return -1
        if now < self._next_try_ms:
            return 0
        if not (due or any(task.commit_requested for task in running)):
            drained = [task for task in running if task.calls.are_drained]
            if not drained:
                return 0
            if not self._committer.is_transactional:
                running = drained
        committed = self._committer.commit(running, in_rebalance=in_rebalance)
        if committed < 0 and committed != WAITS:
            self._next_try_ms = self._clock.monotonic_ms() + _BACKOFF_MS
        if committed > 0:
            self._latency.add(self._clock.monotonic_ms() - now)
        if due and committed >= 0:
            self.last_commit_ms = self._clock.monotonic_ms()
        if committed > 0 or (due and committed == 0):  # a requested commit may be the only one for a long time
            self._purge.purge_if_due(self._table.running())
        return max(committed, 0)
