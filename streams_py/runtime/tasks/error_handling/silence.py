"""A broker that does not answer: how long one task goes on trying the same record."""

from __future__ import annotations

import logging

from streams_protocol.types import TaskId
from streams_py.errors import BrokerUnavailableError, TaskCorruptedError, TimeoutExceededError
from streams_py.ports import Clock
from streams_py.runtime.tasks.task_settings import TaskSettings

__all__ = ["Silence"]

_log = logging.getLogger(__name__)


class Silence:
    """Counts the tries of one task, and since when it cannot go on."""

    def __init__(self, task: TaskId, settings: TaskSettings, clock: Clock) -> None:
        self._task = task
        self._settings = settings
        self._clock = clock
        self._since_ms: int | None = None
        self._tries = 0

    def over(self) -> None:
        """The task went on."""
        self._since_ms = None

    def note(self, error: BrokerUnavailableError) -> None:
        """Once more in vain. TimeoutExceededError after ``task.timeout.ms`` of that; TaskCorruptedError at once under
        exactly-once, where a record may be half processed, in a transaction."""
        if self._settings.exactly_once:
            raise TaskCorruptedError(f"task {self._task}: {error}", {self._task: ()}) from error
        now_ms = self._clock.monotonic_ms()
        if self._since_ms is None:
            self._since_ms, self._tries = now_ms, 0
        self._tries = tries = self._tries + 1
        silent_ms = now_ms - self._since_ms
        if silent_ms >= self._settings.task_timeout_ms:
            raise TimeoutExceededError(
                f"task {self._task} could not go on for {silent_ms} ms "
                f"(task.timeout.ms is {self._settings.task_timeout_ms}): {error}",
                task_id=self._task,
            ) from error
        if tries & (tries - 1) == 0:  # ever fewer: there may be many tries per second
            _log.warning("task %s: %s; trying again", self._task, error)
