"""A job's thread: starting, pausing, stopping in time or being abandoned."""

from __future__ import annotations

import logging
import threading
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TypeAlias

from streams_py.connect.api import SinkTask, SourceTask
from streams_py.connect.stores.configs import TargetState
from streams_py.connect.stores.statuses import Job, JobState
from streams_py.system.printable import Lines, text_of

__all__ = ["JobThread", "StatusReport"]

_log = logging.getLogger("streams_py.connect")

StatusReport: TypeAlias = Callable[[Job, JobState, "str | None"], None]
"""(job, state, trace)"""


class JobThread(ABC):
    """One run of a job. A failure ends it; what remains is to stop it.

    Threads cannot be killed: one that does not stop in time is :meth:`abandon`-ed. It then writes no statuses and no
    offsets any more, and its clients are closed.
    """

    def __init__(self, job: Job, target: TargetState, report: StatusReport) -> None:
        self.job = job
        self._report = report
        self._target = target
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._ended = threading.Event()
        self._abandoned = False
        self._reporting = threading.Lock()
        self.failed = False
        self._thread = threading.Thread(target=self._main, name=f"connect-{job}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def set_target(self, target: TargetState) -> None:
        """Pause, stop or go on. Any thread."""
        with self._changed:
            self._target = target
            self._changed.notify_all()

    def signal_stop(self) -> None:
        """Begin to stop. Any thread; may wait for the plug-in."""
        with self._changed:
            self._stopping.set()
            self._changed.notify_all()
        try:
            self.interrupt()
        except Exception:
            _log.exception("%s: its stop() has failed", self.job)

    def wait_stopped(self, timeout_s: float) -> bool:
        """False when it still runs after ``timeout_s``."""
        return self._ended.wait(timeout_s)

    def abandon(self) -> None:
        """It did not stop in time."""
        with self._reporting:
            self._abandoned = True
        _log.warning("%s does not stop and is left to itself; its thread goes on until its own code returns", self.job)
        threading.Thread(target=self._close_quietly, name=f"connect-{self.job}-close", daemon=True).start()

    @property
    def is_alive(self) -> bool:
        return not self._ended.is_set()

    def report(self, state: JobState, trace: str | None = None) -> None:
        """Tell the worker how it is, unless abandoned."""
        with self._reporting:
            if not self._abandoned:
                self._report(self.job, state, trace)

    def _main(self) -> None:
        try:
            try:
                self.run()
            finally:
                self.close()
        except Exception as error:
            self.failed = True
            trace = self.scrubbed(traceback.format_exc())
            _log.error("%s has failed: %s\n%s", self.job, self.scrubbed(text_of(error)), Lines(trace))
            self.report(JobState.FAILED, trace)
            # A failed job stays where it is, until it is stopped.
            self._stopping.wait()
        finally:
            self.report(JobState.UNASSIGNED)
            self._ended.set()

    def start_task(self, task: SourceTask | SinkTask, props: Mapping[str, str]) -> None:
        """Start a plug-in's task. One that fails is stopped, too, so that it can free what it already has."""
        try:
            task.start(props)
        except BaseException:
            try:
                task.stop()
            except Exception as error:  # it may not know what start did not come to
                _log.debug("%s: stop() after a start that failed: %r", self.job, error)
            raise

    def _close_quietly(self) -> None:
        try:
            self.close()
        except Exception as error:
            _log.warning("closing the clients of %s: %s", self.job, text_of(error))

    @abstractmethod
    def scrubbed(self, text: str) -> str:
        """A text without the secrets of the job's configuration."""

    @abstractmethod
    def run(self) -> None:
        """The job; returns soon after :meth:`signal_stop`. What it raises fails the job."""

    def interrupt(self) -> None:  # noqa: B027  # most wait on their own events
        """Make the plug-in return soon."""

    @abstractmethod
    def close(self) -> None:
        """Close the clients. May be called twice, and by two threads."""
