"""Lags of standby and warm-up tasks, which the state updater measures from its fetches without extra requests.

The consumer's position counts, not the last record. A changelog can end in offsets that no consumer delivers:
transaction markers, and records that were deleted or compacted away. A copy that has read such a changelog to its end
is complete, so the task reports that position to the leader.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from streams_protocol.types import TaskId, TopicPartition
from streams_py.member.tasks import Progress
from streams_py.ports import RecordConsumer
from streams_py.runtime.restore.changelog import ChangelogInWork

OnWarm = Callable[[TaskId, int, int], None]
"""Called with task, lag and ms since the task was added, when its lag first is within ``acceptable.recovery.lag``."""

_INTERVAL_MS: Final = 200


class StandbyLags:
    """Measures on the updater's thread. Any thread may read ``now``."""

    def __init__(self, acceptable_lag: int, on_warm: OnWarm) -> None:
        self.now: Mapping[TaskId, Progress] = {}
        """The last measurement, for tasks whose changelogs are all known. A new mapping each time."""
        self._acceptable_lag = acceptable_lag
        self._on_warm = on_warm
        self._came_ms: dict[TaskId, int] = {}
        self._warm: set[TaskId] = set()
        self._next_ms = 0

    def added(self, task: TaskId, now_ms: int) -> None:
        """Note that the task is a standby or warm-up from now on."""
        self._came_ms[task] = now_ms
        self._warm.discard(task)

    def measure_if_due(self, changelogs: Collection[ChangelogInWork], consumer: RecordConsumer, now_ms: int) -> None:
        """Measure the progress of each standby, and report to each task its consumer's position."""
        if now_ms < self._next_ms:
            return
        self._next_ms = now_ms + _INTERVAL_MS
        found: dict[TaskId, Progress | None] = {}
        for changelog in changelogs:
            if changelog.registered:
                changelog.reach(consumer.position(changelog.partition))
            changelog.note_position()
            if not changelog.task.is_active:
                task = changelog.task.id
                before, here = found.get(task, Progress(0, 0)), _progress(changelog, consumer.lag)
                found[task] = Progress(before[0] + here[0], before[1] + here[1]) if before and here else None
        self.now = {task: progress for task, progress in found.items() if progress is not None}
        self._came_ms = {task: came for task, came in self._came_ms.items() if task in found}
        for task, at in self.now.items():
            if task not in self._warm and at.end - at.position <= self._acceptable_lag:
                self._warm.add(task)
                self._on_warm(task, at.end - at.position, now_ms - self._came_ms.get(task, now_ms))


def _progress(changelog: ChangelogInWork, lag_of: Callable[[TopicPartition], int | None]) -> Progress | None:
    if changelog.position is None:
        return None
    position = max(0, changelog.position)
    if changelog.registered:
        lag = lag_of(changelog.partition)
        return None if lag is None else Progress(position, position + lag)
    # A source topic, read up to the committed offset.
    return Progress(position, position) if changelog.is_done else None
