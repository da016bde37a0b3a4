"""Deletes the processed records of repartition topics from the broker."""

from __future__ import annotations

from collections.abc import Sequence

from streams_py.ports import Admin, Clock
from streams_py.runtime.tasks.active_task import ActiveTask


class RepartitionPurge:
    """The deletions of one stream thread. For that thread only.

    Args:
        topics: The repartition topics, which only this application reads.
    """

    def __init__(self, admin: Admin, topics: frozenset[str], clock: Clock, *, interval_ms: int) -> None:
        self._admin = admin
        self._topics = topics
        self._clock = clock
        self._interval_ms = interval_ms
        self._last_ms = clock.monotonic_ms()

    def purge_if_due(self, tasks: Sequence[ActiveTask]) -> None:
        """Delete the records below the committed offsets of these tasks, unless the interval has not elapsed."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._last_ms <= self._interval_ms:
            return
        self._last_ms = now_ms
        offsets = {
            partition: offset
            for task in tasks
            for partition, offset in task.positions.committed.items()
            if partition.topic in self._topics
        }
        if offsets:
            self._admin.delete_records(offsets)
