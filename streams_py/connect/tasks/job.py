"""A job's thread: start, pause, and stop within a time limit."""

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

_log = logging.getLogger("streams_py.connect")

StatusReport: TypeAlias = Callable[[Job, JobState, "str | None"], None]
"""Called with (job, state, trace)."""


class JobThread(ABC):
    """One run of a job. A failed job does nothing more, but must still be stopped.

    Threads cannot be killed. A thread that does not stop in time is abandoned (:meth:`abandon`): it writes no statuses
    and offsets anymore, and its clients are closed.
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
        """Pause, stop or resume the job. Any thread."""
        with self._changed:
            self._target = target
            self._changed.notify_all()

    def signal_stop(self) -> None:
        """Request a stop. Any thread. May wait for the plug-in."""
        with self._changed:
            self._stopping.set()
            self._changed.notify_all()
        try:
            self.interrupt()
        except Exception:
            _log.exception("%s: stop() failed", self.job)

    def wait_stopped(self, timeout_s: float) -> bool:
        """Wait for the thread. Returns False if it still runs after ``timeout_s``."""
        return self._ended.wait(timeout_s)

    def abandon(self) -> None:
        """Give up on a thread that did not stop in time."""
        with self._reporting:
            self._abandoned = True
        _log.warning(
            "%s did not stop in time; abandoning its thread, which continues until its own code returns", self.job
        )
        threading.Thread(target=self._close_quietly, name=f"connect-{self.job}-close", daemon=True).start()

    @property
    def is_alive(self) -> bool:
        return not self._ended.is_set()

    def report(self, state: JobState, trace: str | None = None) -> None:
        """Report the state to the worker, unless abandoned."""
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
            _log.error("%s failed: %s\n%s", self.job, self.scrubbed(text_of(error)), Lines(trace))
            self.report(JobState.FAILED, trace)
            # A failed job stays assigned until it is stopped.
            self._stopping.wait()
        finally:
            self.report(JobState.UNASSIGNED)
            self._ended.set()

    def start_task(self, task: SourceTask | SinkTask, props: Mapping[str, str]) -> None:
        """Start a plug-in's task. If that fails, stop the task, so that it can free its resources."""
        try:
            task.start(props)
        except BaseException:
            try:
                task.stop()
            except Exception as error:  # stop() may rely on something that start() did not create
                _log.debug("%s: stop() after a failed start: %r", self.job, error)
            raise

    def _close_quietly(self) -> None:
        try:
            self.close()
        except Exception as error:
            _log.warning("closing the clients of %s failed: %s", self.job, text_of(error))

    @abstractmethod
    def scrubbed(self, text: str) -> str:
        """Return a text without the secrets of the job's configuration."""

    @abstractmethod
    def run(self) -> None:
        """Run the job. Returns soon after :meth:`signal_stop`. An exception fails the job."""

    def interrupt(self) -> None:  # noqa: B027  # most jobs wait on their own events
        """Make the plug-in return soon."""

    @abstractmethod
    def close(self) -> None:
        """Close the clients. May be called twice, and by two threads at the same time."""
