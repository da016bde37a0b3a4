"""Errors that are raised later.

A rebalance runs in callbacks of the client library. Errors must not propagate into the library, and must not stop the
rebalance half-way. So each step is tried, and its error is raised in the stream thread's own loop, which handles it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from streams_protocol.types import TaskId, TopicPartition
from streams_py.errors import TaskCorruptedError, TaskMigratedError


class DeferredErrors:
    """Errors of one stream thread that are raised later. Not thread-safe."""

    def __init__(self) -> None:
        self._errors: list[Exception] = []

    def __bool__(self) -> bool:
        """Whether there is an error."""
        return bool(self._errors)

    def add(self, error: Exception) -> None:
        """Keep an error for later."""
        self._errors.append(error)

    def attempt(self, step: Callable[[], None]) -> None:
        """Run a step and keep its error for later."""
        try:
            step()
        except Exception as error:
            self.add(error)

    def raise_worst(self) -> None:
        """Raise the most serious error, as :func:`raise_worst` does, and forget all errors."""
        errors, self._errors = self._errors, []
        raise_worst(errors)


def raise_worst(errors: Sequence[Exception]) -> None:
    """Raise the most serious of these errors.

    That is an error that stops the thread; else a TaskMigratedError (all tasks are lost then anyway); else one
    TaskCorruptedError for all corrupted tasks.
    """
    corrupted: dict[TaskId, Collection[TopicPartition]] = {}
    migrated: TaskMigratedError | None = None
    for error in errors:
        if isinstance(error, TaskCorruptedError):
            for task_id, changelogs in error.tasks.items():
                corrupted[task_id] = {*corrupted.get(task_id, ()), *changelogs}
        elif isinstance(error, TaskMigratedError):
            migrated = migrated or error
        else:
            raise error
    if migrated is not None:
        raise migrated
    if errors:  # TaskCorruptedError; if they name no task, all tasks of the transaction are corrupted
        raise TaskCorruptedError("; ".join(map(str, errors)), corrupted)
