"""Retries of one task when a broker or a schema registry does not answer: how often, and for how long.

Under exactly-once, a half-processed record is in a transaction together with records of the thread's other tasks. So
all of them go back to the last commit. A registry may be down for long, so the task pauses between two such attempts;
in the pause the other tasks make progress and commit. A record that could not be decoded has had no effect yet: its
task just waits.
"""

from __future__ import annotations

import logging

from streams_protocol.types import TaskId
from streams_py.errors import BrokerUnavailableError, RegistryUnavailableError, TaskCorruptedError, TimeoutExceededError
from streams_py.ports import Clock
from streams_py.runtime.tasks.settings.task_settings import TaskSettings
from streams_py.system.outages import level_of_waiting

_log = logging.getLogger(__name__)

_PAUSE_MS = 500
_PAUSE_MAX_MS = 5_000


class Retries:
    """Counts the attempts of one task, and the time since it last made progress."""

    def __init__(self, task: TaskId, settings: TaskSettings, clock: Clock) -> None:
        self._task = task
        self._settings = settings
        self._clock = clock
        self._since_ms: int | None = None
        self._tries = 0
        self._half_done = False
        self._pause_until_ms: int | None = None

    def reset(self) -> None:
        """Forget the failures: the task starts again."""
        self._since_ms = self._pause_until_ms = None

    def note_progress(self) -> None:
        """Note that the task did something. Under exactly-once only a commit proves progress."""
        if self._since_ms is not None and not self._settings.exactly_once:
            self.reset()

    def note_commit(self, *, took_records: bool, touched: bool) -> None:
        """Note a commit.

        Args:
            took_records: Whether the task has processed records.
            touched: Whether it has called punctuators. That says nothing about a record that waits to be decoded.
        """
        if self._settings.exactly_once and (took_records or (touched and self._half_done)):
            self.reset()

    def is_paused(self) -> bool:
        """Whether it is too early for the next attempt."""
        until_ms = self._pause_until_ms
        if until_ms is None:
            return False
        if self._clock.monotonic_ms() < until_ms:
            return True
        self._pause_until_ms = None
        return False

    def record_failure(
        self, error: BrokerUnavailableError, *, half_done: bool = True, doing: str = "made no progress"
    ) -> None:
        """Note a failed attempt. Returns if the task may try again later.

        Args:
            half_done: Whether the record may have had an effect.
            doing: Verb phrase for the message.

        Raises:
            TimeoutExceededError: The attempts have failed for ``task.timeout.ms``.
            TaskCorruptedError: Under exactly-once, if the record may be half done or the broker does not answer.
        """
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
        if tries & (tries - 1) == 0:  # log with growing intervals: there may be many attempts per second
            _log.log(self._level(error), "task %s %s: %s; retrying", self._task, doing, error)

    def record_start_failure(self, error: BrokerUnavailableError | TaskCorruptedError) -> None:
        """Note that processors failed to initialise. Raises as :meth:`record_failure`.

        The processors may have written records. Under exactly-once these are part of the transaction, so this task's
        stores start over with it.
        """
        if isinstance(error, TaskCorruptedError):
            raise TaskCorruptedError(str(error), {**error.tasks, self._task: ()}) from error
        self.record_failure(error, doing="could not initialise its processors")

    def _level(self, error: BrokerUnavailableError) -> int:
        # The outage of a cluster is reported for all tasks; the one of a registry is not.
        return logging.WARNING if isinstance(error, RegistryUnavailableError) else level_of_waiting()

    def _corrupted(self, error: BrokerUnavailableError, doing: str) -> TaskCorruptedError:
        return TaskCorruptedError(f"task {self._task} {doing}: {error}", {self._task: ()})
