"""Errors that wait for their turn.

What a stream thread does for its membership (revoking, assigning) must not throw into the client's polling thread, and
must not stop half-way: each step is tried, and what went wrong is raised in the stream thread's own loop, which knows
what to do about it.
"""

from __future__ import annotations

from collections.abc import Callable

from streams_py.errors import TaskCorrupted, TaskMigrated

__all__ = ["DeferredErrors"]


class DeferredErrors:
    """The errors of one stream thread that are yet to be raised. Not thread-safe."""

    def __init__(self) -> None:
        self._errors: list[Exception] = []

    def add(self, error: Exception) -> None:
        """Keep an error for later."""
        self._errors.append(error)

    def attempt(self, step: Callable[[], None]) -> None:
        """Do a step; keep its error for later."""
        try:
            step()
        except Exception as error:
            self.add(error)

    def raise_first(self) -> None:
        """Raise the most serious error, if there are any, and forget the others: those that only cost tasks come
        after those that end the thread."""
        if self._errors:
            errors, self._errors = self._errors, []
            errors.sort(key=lambda error: isinstance(error, TaskMigrated | TaskCorrupted))
            raise errors[0]
