"""A stream thread as its client sees it: start, pause, shutdown, wait.

Its work starts once it has opened its parts, on the thread itself. The work is
:class:`~streams_py.runtime.thread.loop.StreamLoop`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from streams_protocol.types import TaskId
from streams_py.errors import StreamsError, TaskCorruptedError, TaskMigratedError
from streams_py.ports import Clock
from streams_py.runtime.group.inbox import Inbox
from streams_py.runtime.group.transport import Leave, TaskListener
from streams_py.runtime.restore.updater import StateUpdater
from streams_py.runtime.tasks.task import Task, TaskPhase
from streams_py.runtime.thread.control import ThreadControl
from streams_py.runtime.thread.loop import StreamLoop
from streams_py.runtime.thread.parts import ThreadParts
from streams_py.runtime.thread.states import ThreadState
from streams_py.system.printable import named, text_of

if TYPE_CHECKING:
    from streams_py.leader.explanations import ToldExplanation

_log = logging.getLogger(__name__)

_NOT_TURNING = (ThreadState.CREATED, ThreadState.PENDING_SHUTDOWN, ThreadState.DEAD)


class ThreadOwner(Protocol):
    """The client that a stream thread belongs to, as the thread uses it."""

    def thread_changed(self, thread: StreamThread, new: ThreadState) -> None:
        """Called for every change of state, on the thread that changes it."""

    def thread_failed(self, thread: StreamThread, error: Exception) -> None:
        """Called on the thread when it fails."""

    def thread_ended(self, thread: StreamThread) -> None:
        """Called last on the thread."""

    def stop_with_application(self) -> None:
        """Stop the client, because the leader has requested all members to stop. Called on the thread."""


class StreamThread:
    """One stream thread.

    Args:
        open_loop: Creates the loop; called first on the thread.
        owner: The client.
    """

    def __init__(
        self,
        name: str,
        index: int,
        *,
        clock: Clock,
        open_loop: Callable[[StreamThread], StreamLoop],
        owner: ThreadOwner,
    ) -> None:
        self.name = name
        self.index = index
        self.inbox: Inbox[TaskListener] = Inbox()
        self.control = ThreadControl(clock, lambda state: owner.thread_changed(self, state))
        self.loop: StreamLoop | None = None
        """The thread's loop; None before it has started."""
        self._parts: ThreadParts | None = None
        self.failed = False
        self.replace = False
        """Set by the client if a new thread will replace this one."""
        self.last_error: Exception | None = None
        """The last error that did not stop the thread, such as a failed task assignor."""
        self.reported_errors = 0
        self.started_ms = clock.now_ms()
        self._open_loop = open_loop
        self.owner = owner
        """The client that the thread belongs to."""
        self._stop_application = False
        self._drains = False
        self._pausing = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    # -- called from other threads -------------------------------------------------------------------------

    @property
    def state(self) -> ThreadState:
        """The state of the thread."""
        return self.control.state

    @property
    def tasks(self) -> list[Task]:
        """All tasks of the thread in all stages; empty before it has started."""
        return [] if self._parts is None else self._parts.table.all()

    @property
    def shown_tasks(self) -> tuple[Task, ...]:
        """All tasks, read without a lock. The tuple is replaced whenever a task is added or removed."""
        return () if self._parts is None else self._parts.table.shown

    @property
    def created_tasks(self) -> int:
        """Number of tasks that the thread has created since its start."""
        return 0 if self._parts is None else self._parts.table.created_tasks

    @property
    def closed_tasks(self) -> int:
        """Number of tasks that the thread has closed since its start."""
        return 0 if self._parts is None else self._parts.table.closed_tasks

    @property
    def updater(self) -> StateUpdater | None:
        """The thread's state updater, which restores its tasks; None before the thread has started."""
        return None if self._parts is None else self._parts.updater

    def identity(self) -> tuple[int, str]:
        """Return generation and member id of the thread's member; (-1, "") without membership."""
        return (-1, "") if self._parts is None else self._parts.transport.identity()

    def explanations(self, task: TaskId) -> Sequence[ToldExplanation]:
        """Return the task's explanation in each assignment that this thread computed as leader, newest first."""
        return () if self._parts is None else self._parts.transport.explain(task)

    def start(self) -> None:
        """Start the loop, unless the thread was already shut down. RuntimeError if no more threads can start."""
        if self.control.go(ThreadState.STARTING) is ThreadState.CREATED:
            try:
                self._thread.start()
            except RuntimeError:
                self.control.go(ThreadState.PENDING_SHUTDOWN)
                self.control.go(ThreadState.DEAD)  # the client's close waits for this state
                raise

    def shut_down(self, leave: Leave = Leave.STAY, *, timeout_ms: int | None = None) -> None:
        """Request the thread to stop, without waiting. ``timeout_ms`` limits how long it may wait for the broker."""
        self.control.shut_down(leave, timeout_ms=timeout_ms)
        if self.control.go(ThreadState.PENDING_SHUTDOWN) is ThreadState.CREATED:
            self.control.go(ThreadState.DEAD)  # it never ran, and never will

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until the thread has stopped; False if ``timeout_s`` seconds elapsed first."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    @property
    def ident(self) -> int | None:
        """Python's identifier of the thread; None before it was started."""
        return self._thread.ident

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on this thread or on its state updater's thread.

        Waiting for this thread to stop would block forever there.
        """
        if threading.current_thread() is self._thread:
            return True
        return self._parts is not None and self._parts.updater.is_current

    def request_application_shutdown(self) -> None:
        """Request all members to shut down, through the leader, with the next subscription."""
        self._stop_application = True
        if self._parts is not None:
            self._parts.transport.request_shutdown()

    def drain(self) -> None:
        """Request the group to take over its tasks."""
        self._drains = True
        if self._parts is not None:
            self._parts.transport.request_drain()

    @property
    def is_drained(self) -> bool:
        """Whether it has no active task and the group knows that it must not get any."""
        if self.state is ThreadState.DEAD:
            return True
        return self._parts is not None and self._parts.transport.is_drained

    @property
    def drain_gains(self) -> bool:
        """Whether other processes could take over its tasks while it continues to work."""
        return self._parts is None or self._parts.transport.drain_gains

    @property
    def processes_state(self) -> bool:
        """Whether one of the tasks that it processes has state."""
        return any(
            task.is_active and task.state is TaskPhase.RUNNING and task.stores.changelog_partitions
            for task in self.shown_tasks
        )

    @property
    def is_stuck(self) -> bool:
        """Whether the loop has been busy with one record or one call for longer than ``max.poll.interval.ms``."""
        return self.state not in _NOT_TURNING and self.loop is not None and self.loop.is_stuck()

    def report(self, error: Exception) -> None:
        """Note an error that does not stop the thread."""
        self.reported_errors += 1
        self.last_error = error

    def pause(self, paused: bool) -> None:
        """Stop or continue processing, punctuating and restoring. The membership stays alive."""
        with self._pausing:
            self.control.paused = paused
            if self._parts is not None:
                self._parts.updater.pause(paused)

    # -- on this thread ------------------------------------------------------------------------------------

    def _run(self) -> None:
        clean = False
        try:
            if not self.control.is_shutting_down:
                loop = self._open()
                loop.run()
                loop.await_rebalance()
                clean = True
        except BaseException as error:
            self._fail(error)
        self._close(clean=clean)

    def _open(self) -> StreamLoop:
        loop = self._open_loop(self)
        parts = loop.parts
        with self._pausing:
            self.loop, self._parts = loop, parts
            parts.updater.pause(self.control.paused)
        if self._drains:
            parts.transport.request_drain()
        if self._stop_application:
            parts.transport.request_shutdown()
        return loop

    def _fail(self, error: BaseException) -> None:
        if self.control.is_shutting_down and isinstance(error, TaskMigratedError | TaskCorruptedError):
            _log.warning("%s: stopping without a commit: %s", self.name, error)
            return
        self.failed = True
        self.control.leave_at_least(Leave.LEAVE)  # so that its tasks move immediately
        cause = error if isinstance(error, Exception) else RuntimeError(named(error))
        _log.error("%s failed: %s", self.name, text_of(cause), exc_info=_origin(cause))
        try:
            self.owner.thread_failed(self, cause)
        except (Exception, SystemExit):
            _log.exception("the uncaught-exception handler itself failed")

    def _close(self, *, clean: bool) -> None:
        self.control.go(ThreadState.PENDING_SHUTDOWN)
        try:
            if self.loop is not None:
                self.loop.close(clean=clean)
        except BaseException:  # the client waits for this thread to stop
            _log.exception("%s: failed to close cleanly", self.name)
        self.control.go(ThreadState.DEAD)
        self.owner.thread_ended(self)


def _origin(error: Exception) -> BaseException:
    """Return the error whose traceback is logged: the user code's own error, if there is one.

    The text of the library's error names task, node and record. The frames in between are the same for all errors.
    """
    return error.__cause__ if isinstance(error, StreamsError) and error.__cause__ is not None else error
