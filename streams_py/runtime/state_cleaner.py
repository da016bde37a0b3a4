"""Deletes local state that nobody has needed for ``state.cleanup.delay.ms`` (Kafka Streams' cleaner thread), and at the
start what is too old to be gone on with.

The former only while the client is RUNNING, and has been for that long: during a rebalance, and after an outage that
cost the tasks, directories are without an owner whose tasks are on their way back. Restoring them would take far longer
than the disk space is worth.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Sequence

from streams_protocol.types import TaskId
from streams_py.ports import Clock
from streams_py.state.checkpoint import DATABASE_DIRECTORY
from streams_py.state.directory import StateDirectory
from streams_py.state.task_files import FORMAT_MARKER

__all__ = ["StateCleaner", "delete_outdated"]

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


def delete_outdated(directory: StateDirectory, max_age_ms: int, now_ms: int) -> None:
    """Before anything is used: delete state that has not changed for ``max_age_ms`` (negative: none), because its
    changelogs may not tell any more what was deleted since (``state.cleanup.dir.max.age.ms``). StateError when it
    cannot be deleted."""
    if max_age_ms < 0:
        return

    def is_outdated(path: str) -> bool:
        unchanged_ms = now_ms - int(_changed_s(path) * 1000)
        if unchanged_ms > max_age_ms:
            _log.info("deleting %s, unchanged for %d ms (state.cleanup.dir.max.age.ms)", path, unchanged_ms)
        return unchanged_ms > max_age_ms

    for task_id in directory.stored_tasks():
        if is_outdated(directory.task_path(task_id)):
            directory.wipe_task(task_id)
    if os.path.exists(os.path.join(directory.global_path, FORMAT_MARKER)) and is_outdated(directory.global_path):
        directory.wipe_global()


def _changed_s(path: str) -> float:
    """When a directory was changed, or a file of the database in it: a process that is killed leaves nothing newer."""
    times = [os.stat(path).st_mtime]
    with contextlib.suppress(FileNotFoundError), os.scandir(os.path.join(path, DATABASE_DIRECTORY)) as files:
        times += (file.stat().st_mtime for file in files)
    return max(times)
