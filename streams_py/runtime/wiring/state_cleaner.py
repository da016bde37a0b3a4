"""Deletes local state that no task has used for ``state.cleanup.delay.ms`` (Kafka Streams' cleaner thread), and at
start state that is too old to be used.

The cleaner works only if the client has been RUNNING for at least that long. During a rebalance, and after an outage
that cost the instance its tasks, directories have no owner although their tasks will return. Restoring those tasks
would cost far more than the disk space.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Sequence

from streams_protocol.types import TaskId
from streams_py.ports import Clock
from streams_py.state.directory.checkpoint import DATABASE_DIRECTORY
from streams_py.state.directory.state_directory import StateDirectory
from streams_py.state.directory.task_files import FORMAT_MARKER

_log = logging.getLogger("streams_py")


class RunningTime:
    """How long a client has been RUNNING without a break."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_ms: int | None = None

    def note(self, *, runs: bool) -> None:
        """Note that the client has just become RUNNING, or is in another state."""
        self._since_ms = self._clock.monotonic_ms() if runs else None

    @property
    def so_far_ms(self) -> int | None:
        """Time since the client became RUNNING; None while it is in another state."""
        since_ms = self._since_ms
        return None if since_ms is None else self._clock.monotonic_ms() - since_ms


class StateCleaner:
    """A background thread that cleans the state directory every ``delay_ms``.

    Args:
        running: How long the client has been RUNNING.
    """

    def __init__(self, directory: StateDirectory, clock: Clock, delay_ms: int, running: RunningTime) -> None:
        self._directory = directory
        self._clock = clock
        self._delay_ms = delay_ms
        self._running = running
        self._stop = threading.Event()
        if directory.is_persistent and delay_ms > 0:
            threading.Thread(target=self._run, name="state-cleaner", daemon=True).start()

    def stop(self) -> None:
        """Stop cleaning."""
        self._stop.set()

    def clean(self) -> Sequence[TaskId]:
        """Delete state that may be deleted now. Return the tasks that it belonged to."""
        running_ms = self._running.so_far_ms
        if running_ms is None or running_ms < self._delay_ms:
            return ()
        return self._directory.delete_unused(now_ms=self._clock.now_ms(), delay_ms=self._delay_ms)

    def _run(self) -> None:
        while not self._stop.wait(self._delay_ms / 1000):
            try:
                self.clean()
            except Exception:
                _log.exception("cleaning the state directory failed; retrying later")


def delete_outdated(directory: StateDirectory, max_age_ms: int, now_ms: int) -> None:
    """Delete state that has not changed for ``max_age_ms`` (negative: keep it). Call this before the state is used.

    Compaction may already have removed tombstones that such old state has missed (``state.cleanup.dir.max.age.ms``).

    Raises:
        StateError: The state cannot be deleted.
    """
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
    """Return the last change of a directory or of its database files: a killed process updates nothing else."""
    times = [os.stat(path).st_mtime]
    with contextlib.suppress(FileNotFoundError), os.scandir(os.path.join(path, DATABASE_DIRECTORY)) as files:
        times += (file.stat().st_mtime for file in files)
    return max(times)
