"""Deletes local state that nobody has needed for ``state.cleanup.delay.ms`` (Kafka Streams' cleaner thread).

Only while the client is RUNNING, and has been for that long: during a rebalance, and after an outage that cost the
tasks, directories are without an owner whose tasks are on their way back. Restoring them would take far longer than
the disk space is worth.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from streams_protocol.types import TaskId
from streams_py.ports import Clock
from streams_py.state.directory import StateDirectory

__all__ = ["StateCleaner"]

_log = logging.getLogger("streams_py")


class StateCleaner:
    """Cleans every ``delay_ms`` on a thread of its own. ``running_since_ms``: since when, by the monotonic clock, the
    client has been RUNNING without a break; None when it is not."""

    def __init__(
        self, directory: StateDirectory, clock: Clock, delay_ms: int, running_since_ms: Callable[[], int | None]
    ) -> None:
        self._directory = directory
        self._clock = clock
        self._delay_ms = delay_ms
        self._running_since_ms = running_since_ms
        self._stop = threading.Event()
        if directory.is_persistent and delay_ms > 0:
            threading.Thread(target=self._run, name="state-cleaner", daemon=True).start()

    def stop(self) -> None:
        """No more cleaning."""
        self._stop.set()

    def clean(self) -> Sequence[TaskId]:
        """Delete what may be deleted now; the tasks concerned."""
        since_ms = self._running_since_ms()
        if since_ms is None or self._clock.monotonic_ms() - since_ms < self._delay_ms:
            return ()
        return self._directory.delete_unused(now_ms=self._clock.now_ms(), delay_ms=self._delay_ms)

    def _run(self) -> None:
        while not self._stop.wait(self._delay_ms / 1000):
            try:
                self.clean()
            except Exception:
                _log.exception("cleaning the state directory failed; trying again later")
