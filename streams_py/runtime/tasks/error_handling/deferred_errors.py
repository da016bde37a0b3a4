"""Errors that wait for their turn.

What a stream thread does for its membership (revoking, assigning) must not throw into the client's polling thread, and
must not stop half-way: each step is tried, and what went wrong is raised in the stream thread's own loop, which knows
what to do about it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from streams_protocol.types import TaskId, TopicPartition
from streams_py.errors import TaskCorruptedError, TaskMigratedError

__all__ = ["DeferredErrors", "raise_worst"]


class DeferredErrors:
    """The errors of one stream thread that are yet to be raised. Not thread-safe."""

    def __init__(self) -> None:
        self._errors: list[Exception] = []

    def __bool__(self) -> bool:
        """True while one waits."""
        return bool(self._errors)

    def add(self, error: Exception) -> None:
        """Keep an error for later."""
        self._errors.append(error)

    def attempt(self, step: Callable[[], None]) -> None:
        """Do a step; keep its error for later."""
        try:
            step()
        except Exception as error:
            self.add(error)

    def raise_worst(self) -> None:
        """Raise what was kept, as :func:`raise_worst` does, and forget it."""
        errors, self._errors = self._errors, []
        raise_worst(errors)


def raise_worst(errors: Sequence[Exception]) -> None:
    """Raise the most serious of these: one that ends the thread, else that the member has migrated (then all its tasks
    are lost anyway), else one TaskCorruptedError for all corrupted tasks."""
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
    if errors:  # corrupted ones; when none is named they are all tasks of a transaction
        raise TaskCorruptedError("; ".join(map(str, errors)), corrupted)
