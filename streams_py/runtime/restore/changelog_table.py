"""The tasks that a state updater holds, with their changelogs, and when to request facts about the changelogs.

A task is *held* until it is restored, fails or is removed. Restored and failed tasks stay here until they are drained.

This module has no thread and no lock, and asks no broker: the caller synchronizes its calls. Methods that remove a task
return the task's changelogs, because listeners have to hear of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from streams_protocol.types import TaskId, TopicPartition
from streams_py.runtime.restore.changelog import ChangelogInWork
from streams_py.runtime.restore.ends import ChangelogRequest
from streams_py.runtime.restore.restoring_stores import RestoringStores

_IDENTITY_MS: Final = 300_000
"""Interval between checks that the topic ids are unchanged, in ms. Otherwise a recreated topic that has grown past our
position would be read from that position."""


class ChangelogTable:
    """Restoring active tasks and standby tasks of one stream thread.

    Attributes:
        tasks: The held tasks.
        changelogs: Their changelogs.
        restored: Active tasks that are up to date.
        failed: Tasks that could not be updated, with the errors.
    """

    def __init__(self) -> None:
        self.tasks: dict[TaskId, RestoringStores] = {}
        self.changelogs: dict[TopicPartition, ChangelogInWork] = {}
        self.restored: list[RestoringStores] = []
        self.failed: list[tuple[RestoringStores, Exception]] = []

    # -- tasks --------------------------------------------------------------------------------------------------------

    def add(self, task: RestoringStores) -> None:
        """Hold a task. Nothing is known about its changelogs yet."""
        self.tasks[task.id] = task
        for partition in task.changelog_partitions:
            self.changelogs[partition] = ChangelogInWork(partition, task)

    def holds(self, task: RestoringStores) -> bool:
        """Whether this very task is held. It may have been removed, and another of its id added, meanwhile."""
        return self.tasks.get(task.id) is task

    def forget(self, task: RestoringStores) -> list[ChangelogInWork]:
        """Hold a task no longer. Return its changelogs."""
        self.tasks.pop(task.id, None)
        held = (self.changelogs.pop(partition, None) for partition in task.changelog_partitions)
        return [changelog for changelog in held if changelog is not None]

    def take_ended(self, task_id: TaskId) -> RestoringStores | None:
        """Remove and return a restored or failed task; None if the id is unknown."""
        for task in self.restored:
            if task.id == task_id:
                self.restored.remove(task)
                return task
        for entry in self.failed:
            if entry[0].id == task_id:
                self.failed.remove(entry)
                return entry[0]
        return None

    def all_tasks(self) -> list[RestoringStores]:
        """Return the held, restored and failed tasks."""
        return [*self.tasks.values(), *self.restored, *(task for task, _ in self.failed)]

    def active_tasks(self) -> list[RestoringStores]:
        """Return the held active tasks."""
        return [task for task in self.tasks.values() if task.is_active]

    def standby_changelogs(self) -> list[ChangelogInWork]:
        """Return the changelogs of the held standby tasks."""
        return [changelog for changelog in self.changelogs.values() if not changelog.task.is_active]

    # -- progress -----------------------------------------------------------------------------------------------------

    def restoring(self) -> set[TopicPartition]:
        """Return the changelogs of active tasks that are not completely read, without source topics."""
        reading = (c for c in self.changelogs.values() if c.task.is_active and not c.is_done)
        return {c.partition for c in reading if c.partition not in c.task.source_changelogs}

    def remaining_records(self) -> Mapping[TaskId, int]:
        """Return the number of records that each held task still has to replay, if known; 0 for standby tasks."""
        remaining = Counter[TaskId]()
        for changelog in self.changelogs.values():
            remaining[changelog.task.id] += changelog.remaining_records
        return remaining

    def complete(self) -> list[RestoringStores]:
        """Return the held active tasks whose changelogs are all completely read."""
        return [task for task in self.active_tasks() if self._all(task, lambda changelog: changelog.is_done)]

    def has_ended(self, task: RestoringStores) -> bool:
        """Whether this very task is held, and the end of each of its changelogs was announced."""
        return self.holds(task) and self._all(task, lambda changelog: changelog.ended)

    def _all(self, task: RestoringStores, fits: Callable[[ChangelogInWork], bool]) -> bool:
        changelogs = [self.changelogs.get(partition) for partition in task.changelog_partitions]
        return all(changelog is not None and fits(changelog) for changelog in changelogs)

    def newly_ended(self, complete: Iterable[RestoringStores]) -> list[ChangelogInWork]:
        """Mark the changelogs of complete tasks as ended. Return the newly marked ones."""
        changelogs = [self.changelogs[partition] for task in complete for partition in task.changelog_partitions]
        ended = [changelog for changelog in changelogs if not changelog.ended]
        for changelog in ended:
            changelog.ended = True
        return ended

    def tasks_of(
        self, partitions: AbstractSet[TopicPartition]
    ) -> list[tuple[RestoringStores, AbstractSet[TopicPartition]]]:
        """Return the held tasks that have some of these changelogs, each with its part of them."""
        tasks = ((task, partitions & task.changelog_partitions) for task in self.tasks.values())
        return [(task, changelogs) for task, changelogs in tasks if changelogs]

    # -- reading ------------------------------------------------------------------------------------------------------

    def begin(self) -> list[ChangelogInWork]:
        """Determine the start positions of changelogs about which everything is known. Return these changelogs."""
        ready = [c for c in self.changelogs.values() if c.position is None and not c.is_unknown]
        for changelog in ready:
            changelog.begin()
        return ready

    def register(self) -> dict[TopicPartition, int | None]:
        """Choose the changelogs to read now: of restoring active tasks, or of standby tasks if no active task restores.

        Return the assignment of the consumer: the offset to start from, or None for what the consumer already reads.
        """
        restoring = any(c.task.is_active and not c.is_done for c in self.changelogs.values())
        assignment: dict[TopicPartition, int | None] = {}
        for changelog in self.changelogs.values():
            if changelog.is_unknown:
                continue  # just added; the next round requests what is missing
            if changelog.is_read or (restoring and not changelog.task.is_active):
                changelog.registered = False
                continue
            assignment[changelog.partition] = None if changelog.registered else changelog.position
            changelog.registered = True
        return assignment


class RequestSchedule:
    """Decides what to request. ``interval_ms``: interval between requests of the limits of source changelogs."""

    def __init__(self, now_ms: int, interval_ms: int) -> None:
        self._interval_ms = min(interval_ms, _IDENTITY_MS)
        self._next_limits_ms = 0
        self._next_identity_ms = now_ms + _IDENTITY_MS

    def due(self, changelogs: Collection[ChangelogInWork], now_ms: int) -> ChangelogRequest | None:
        """Return what to request now, or None. The result counts as requested."""
        source = {tp for c in changelogs for tp in c.task.source_changelogs if tp == c.partition}
        unknown = {c.partition for c in changelogs if c.is_unknown}
        limited = source if now_ms >= self._next_limits_ms else source & unknown
        with_end = limited.union(c.partition for c in changelogs if c.needs_end)
        checked = {c.partition for c in changelogs} if now_ms >= self._next_identity_ms else set()
        wanted = with_end | unknown | checked
        if not wanted:
            return None
        self._next_limits_ms = now_ms + self._interval_ms
        if checked:
            self._next_identity_ms = now_ms + _IDENTITY_MS
        lasting = {c.partition for c in changelogs if c.partition in with_end and not c.expires}
        return ChangelogRequest(wanted, with_end, limited, lasting)
