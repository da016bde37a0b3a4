"""Damaged store files under a running task: the task starts over and restores its stores from their changelogs.

RocksDB checks a block of a file when it reads the block, so damage can show long after the database was opened: in a
read, in a flush, or in a write after a failed compaction. A query meets damage on another thread. It then gets the
error, and the owner of the task finds it in the stores (:func:`raise_found`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from streams_protocol.types import TaskId
from streams_py.errors import StateError, TaskCorruptedError
from streams_py.runtime.tasks.task import Task

_TIMES_MAX: Final = 3
"""Restorations of a task after damage, per thread. After these the error ends the thread: the disk is failing."""


def raise_found(tasks: Iterable[Task]) -> None:
    """Raise StateError if another thread, such as a query, has met damaged files of one of these tasks."""
    for task in tasks:
        if (damage := task.stores.damage) is not None:
            raise damage


class DamagedFiles:
    """Counts the damage that the tasks of one thread have had."""

    def __init__(self) -> None:
        self._times = Counter[TaskId]()

    def in_stores(self, tasks: Iterable[Task], error: Exception) -> TaskCorruptedError | None:
        """Return the error to raise instead of ``error``, if it reports damaged files of one of these tasks.

        The stores of this task are marked as damaged, so closing them moves their files aside.
        """
        if not isinstance(error, StateError):
            return None
        for task in tasks:
            if self._times[task.id] < _TIMES_MAX and task.stores.note_damage(error):
                self._times[task.id] += 1
                corrupted = TaskCorruptedError(f"task {task.id}: {error}", {task.id: ()})
                corrupted.__cause__ = error
                return corrupted
        return None
