"""A broker or schema registry that does not answer: how long one task goes on trying the same record.

Under exactly-once a record that was half processed is in a transaction, and so are the other records of the thread's
tasks: all of them go back to the last commit. A registry that is away can be so for long, so between two such tries
lies a pause, in which the thread's other tasks go on and commit. A record that could not even be decoded has done
nothing yet, and just waits.
"""

from __future__ import annotations

import logging

from streams_protocol.types import TaskId
from streams_py.errors import BrokerUnavailableError, RegistryUnavailableError, TaskCorruptedError, TimeoutExceededError
from streams_py.ports import Clock
from streams_py.runtime.tasks.task_settings import TaskSettings

__all__ = ["Silence"]

_log = logging.getLogger(__name__)

_PAUSE_MS = 500
_PAUSE_MAX_MS = 5_000


class Silence:
    """Counts the tries of one task, and since when it cannot go on."""

    def __init__(self, task: TaskId, settings: TaskSettings, clock: Clock) -> None:
        self._task = task
        self._settings = settings
        self._clock = clock
        self._since_ms: int | None = None
        self._tries = 0
        self._half_done = False
        self._pause_until_ms: int | None = None

    def over(self) -> None:
        """The task begins anew."""
        self._since_ms = self._pause_until_ms = None

    def went_on(self) -> None:
        """The task did something; under exactly-once that may be for nothing until it is committed."""
        if not self._settings.exactly_once:
            self.over()

    def committed(self, *, took_records: bool, touched: bool) -> None:
        """What the task did is committed. ``touched``: it called punctuators, which says nothing about a record that
        waits to be decoded."""
        if self._settings.exactly_once and (took_records or (touched and self._half_done)):
            self.over()

    def is_pause(self) -> bool:
        """True while it is too early to try again."""
        until_ms = self._pause_until_ms
        if until_ms is None:
            return False
        if self._clock.monotonic_ms() < until_ms:
            return True
        self._pause_until_ms = None
        return False

    def note(self, error: BrokerUnavailableError, *, half_done: bool = True, doing: str = "could not go on") -> None:
        """Once more in vain. TimeoutExceededError after ``task.timeout.ms`` of that; TaskCorruptedError at once under
        exactly-once if the record may be ``half_done``."""
        exactly_once = self._settings.exactly_once
        if exactly_once and not isinstance(error, RegistryUnavailableError):
            raise self._corrupted(error, doing) from error
        self._half_done = half_done
        now_ms = self._clock.monotonic_ms()
        if self._since_ms is None:
            self._since_ms, self._tries = now_ms, 0
        self._tries = tries = self._tries + 1
        silent_ms = now_ms - self._since_ms
        if silent_ms >= self._settings.task_timeout_ms:
            raise TimeoutExceededError(
                f"task {self._task} {doing} for {silent_ms} ms "
                f"(task.timeout.ms is {self._settings.task_timeout_ms}): {error}",
                task_id=self._task,
            ) from error
        if exactly_once and half_done:
            self._pause_until_ms = now_ms + min(_PAUSE_MS << min(tries - 1, 10), _PAUSE_MAX_MS)
            raise self._corrupted(error, doing) from error
        if tries & (tries - 1) == 0:  # ever fewer: there may be many tries per second
            _log.warning("task %s %s: %s; trying again", self._task, doing, error)

    def note_start(self, error: BrokerUnavailableError | TaskCorruptedError) -> None:
        """Processors could not begin, and may have written something: raises as :meth:`note`. Under exactly-once that
        goes with the transaction, so this task's stores start over with it, too."""
        if isinstance(error, TaskCorruptedError):
            raise TaskCorruptedError(str(error), {**error.tasks, self._task: ()}) from error
        self.note(error, doing="could not initialise its processors")

    def _corrupted(self, error: BrokerUnavailableError, doing: str) -> TaskCorruptedError:
        return TaskCorruptedError(f"task {self._task} {doing}: {error}", {self._task: ()})
