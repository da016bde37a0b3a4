"""How the global thread waits: for brokers, for the disk and for services that a record needs, until it is stopped."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TypeVar

from streams_py.errors import BrokerUnavailableError, LockError, TimeoutExceededError
from streams_py.ports import Clock
from streams_py.runtime.restore.settings import RestoreSettings
from streams_py.system.outages import level_of_waiting

T = TypeVar("T")

_log = logging.getLogger("streams_py")


class Waiting:
    """Waits of the global thread. They end when ``stopping`` is set.

    Args:
        name: Name of the thread, for messages.
    """

    def __init__(self, name: str, stopping: threading.Event, clock: Clock, settings: RestoreSettings) -> None:
        self._name = name
        self._stopping = stopping
        self._clock = clock
        self._settings = settings

    def is_stopping(self) -> bool:
        """Whether the thread must stop."""
        return self._stopping.is_set()

    def pause(self) -> None:
        """Wait for ``retry.backoff.ms``."""
        self._clock.sleep_ms(self._settings.retry_backoff_ms)

    def until(self, is_done: Callable[[], bool], *, poll_ms: int) -> None:
        """Wait until ``is_done()``, which is called every ``poll_ms``. Returns early if the thread must stop."""
        while not is_done() and not self.is_stopping():
            self._clock.sleep_ms(poll_ms)

    def retried(self, step: Callable[[], T]) -> T:
        """Retry a request to the cluster for as long as a task may wait for an answer (``task.timeout.ms``)."""
        timeout_ms = self._settings.task_timeout_ms
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        while True:
            try:
                return step()
            except (BrokerUnavailableError, LockError) as error:
                if self.is_stopping():
                    raise
                if self._clock.monotonic_ms() >= deadline_ms:
                    raise TimeoutExceededError(
                        f"{self._name}: restoring the global stores has failed for {timeout_ms} ms "
                        f"(task.timeout.ms): {error}"
                    ) from error
                _log.log(level_of_waiting(), "%s: %s; retrying", self._name, error)
                self.pause()
