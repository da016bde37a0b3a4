"""The stream threads of one client: adding, removing and replacing them, and what a failed thread means to the client.

The stream threads call back from their own threads. The lock of the client's state guards the list of threads. The
thread that ends last closes the shared resources and makes the state of the client final.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

from streams_protocol.types import TaskId
from streams_py.errors import StreamsError
from streams_py.runtime.client.state import ClientState
from streams_py.runtime.client.uncaught import StreamThreadExceptionResponse, UncaughtHandler, response_to
from streams_py.runtime.group.transport import Leave
from streams_py.runtime.thread.states import State, ThreadState, is_running

if TYPE_CHECKING:
    from streams_py.leader.explanations import ToldExplanation
    from streams_py.runtime.restore.progress import RestoreProgress
    from streams_py.runtime.thread.stream_thread import StreamThread
    from streams_py.runtime.wiring.global_thread import ClientGlobalThread
    from streams_py.runtime.wiring.shared import SharedResources
    from streams_py.runtime.wiring.stream_threads import StreamThreadFactory

_log = logging.getLogger("streams_py")


class StreamThreads:
    """The stream threads of one client.

    Attributes:
        failed: Number of stream threads that have failed.
        error: The error that stopped the client; None without one.
        is_draining: Whether other instances are taking over the tasks, so that this instance gets no tasks.

    Args:
        factory: Creates the threads.
        global_thread: Stopped when the last stream thread has stopped.
        shared: Closed after that.
        state: State of the client. Its lock guards this object.
        uncaught: The user's handler of a failed thread; None closes the client.
    """

    def __init__(
        self,
        factory: StreamThreadFactory,
        global_thread: ClientGlobalThread,
        shared: SharedResources,
        state: ClientState,
        uncaught: UncaughtHandler | None,
    ) -> None:
        self.failed = 0
        self.error: Exception | None = None
        self.is_draining = False
        self._factory = factory
        self._global_thread = global_thread
        self._shared = shared
        self._state = state
        self._lock = state.lock
        self._uncaught = uncaught
        self._threads: dict[int, StreamThread] = {}
        self._is_paused = False
        self._stops_application = False
        self._is_finishing = False

    def current(self) -> list[StreamThread]:
        """Return the threads. Needs no lock."""
        return list(self._threads.values())  # the mapping is replaced, never changed

    @property
    def is_in_callback(self) -> bool:
        """Whether the caller is a callback of this client, where waiting for its close would block forever."""
        everywhere = self._global_thread.thread
        is_own = any(thread.is_current for thread in self.current())
        return self._state.is_in_listener or is_own or (everywhere is not None and everywhere.is_current)

    # -- what they report ------------------------------------------------------------------------------------

    def explanations(self, task: TaskId) -> list[ToldExplanation]:
        """Return the task's explanation in each assignment that one of the threads computed, newest first."""
        found = [explanation for thread in self.current() for explanation in thread.explanations(task)]
        return sorted(found, key=lambda explanation: -explanation.assigned_at_ms)

    def restore_progress(self) -> RestoreProgress:
        """Return the progress of restoring the threads' active tasks and the global stores."""
        from streams_py.runtime.restore.progress import RestoreProgress

        progress = RestoreProgress()
        for thread in self.current():
            if (updater := thread.updater) is not None and thread.state is not ThreadState.DEAD:
                progress += updater.progress()
        global_thread = self._global_thread.thread
        return progress if global_thread is None else progress + global_thread.restoring.progress()

    # -- changing them ---------------------------------------------------------------------------------------

    def create(self, count: int) -> list[StreamThread]:
        """Return this many new threads, not started yet. The caller holds the lock of the state."""
        return [self._new(index) for index in range(1, count + 1)]

    def add(self) -> str | None:
        """Start one more thread. Return its name, or None if the client is not RUNNING or REBALANCING."""
        with self._lock:
            if not self._state.now.is_running_or_rebalancing:
                return None
            self._forget_dead()
            index = next(number for number in range(1, len(self._threads) + 2) if number not in self._threads)
            thread = self._new(index)
        thread.start()
        return thread.name

    def remove(self, timeout: float | None) -> str | None:
        """Stop one thread, if possible not the calling one. Return its name; None without a running thread.

        Raises:
            StreamsError: The thread did not stop within ``timeout`` seconds.
        """
        with self._state.changing():
            alive = [
                t for t in self._threads.values() if t.state not in (ThreadState.PENDING_SHUTDOWN, ThreadState.DEAD)
            ]
            alive.sort(key=lambda thread: thread.is_current)
            if not alive or not self._state.now.is_running_or_rebalancing:
                return None
            thread = alive[0]
            thread.shut_down(Leave.FOR_GOOD, timeout_ms=_millis(timeout))
        if not thread.is_current and not thread.wait(timeout):
            raise StreamsError(f"{thread.name} did not stop within {timeout} s; its removal continues")
        with self._lock:
            self._forget_dead()
            self._share_cache()
        return thread.name

    def pause(self, paused: bool) -> None:
        """Stop or continue processing, punctuating and restoring, on these threads and on later ones."""
        with self._lock:
            self._is_paused = paused
            for thread in self._threads.values():
                thread.pause(paused)

    def drain(self) -> None:
        """Request the group to take over the tasks of these threads and of later ones."""
        with self._lock:
            self.is_draining = True
            for thread in self._threads.values():
                thread.drain()

    def shut_down(self, leave: Leave = Leave.STAY, *, timeout: float | None = None) -> None:
        """Request all threads to stop. The last one completes the shutdown."""
        for thread in self._threads.values():
            thread.shut_down(leave, timeout_ms=_millis(timeout))

    def fail(self, error: Exception) -> None:
        """Stop the client because of this error, unless it is stopping already. It will end in ERROR."""
        with self._state.changing():
            if self._state.now.is_running_or_rebalancing:
                self.error = error
                self._state.go(State.PENDING_ERROR)
                self.shut_down()
        self.finish_if_ended()

    def stop_with_application(self) -> None:
        """Handle the leader's request to all members to shut down."""
        self.fail(self.error or StreamsError("a member of the application asked all members to shut down"))

    def finish_if_ended(self) -> None:
        """Once all threads are dead, close the shared resources and change to the final state.

        Closing may take a while. It happens without the lock, so that callers with a timeout don't wait for it.
        """
        with self._lock:
            if self._state.now not in (State.PENDING_SHUTDOWN, State.PENDING_ERROR) or self._is_finishing:
                return
            if any(thread.state is not ThreadState.DEAD for thread in self._threads.values()):
                return
            self._is_finishing = True
        try:
            with contextlib.ExitStack() as closing:
                closing.callback(self._shared.close)
                closing.callback(self._global_thread.close)  # added last, so called first
        except Exception:
            _log.exception("closing the clients failed")
        with self._state.changing():
            self._state.go(State.NOT_RUNNING if self._state.now is State.PENDING_SHUTDOWN else State.ERROR)

    def _new(self, index: int) -> StreamThread:
        thread = self._factory.new_thread(index, self)
        thread.pause(self._is_paused)
        if self.is_draining:
            thread.drain()
        self._threads = {**self._threads, index: thread}
        self._share_cache()
        return thread

    def _share_cache(self) -> None:
        self._factory.share_cache(sum(t.state is not ThreadState.DEAD for t in self._threads.values()))

    def _forget_dead(self) -> None:
        known = self._threads.items()  # a thread that will be replaced keeps its number
        self._threads = {i: thread for i, thread in known if thread.state is not ThreadState.DEAD or thread.replace}

    # -- called by the threads (ThreadOwner) -----------------------------------------------------------------

    def thread_changed(self, thread: StreamThread, new: ThreadState) -> None:
        """Change the state of the client if the new state of a thread requires it."""
        with self._state.changing():
            states = [t.state for t in self._threads.values()]
            if self._state.now is State.RUNNING and new in (
                ThreadState.PARTITIONS_REVOKED,
                ThreadState.PARTITIONS_ASSIGNED,
            ):
                self._state.go(State.REBALANCING)
            elif self._state.now is State.REBALANCING and is_running(states):
                self._state.go(State.RUNNING)  # also if the last thread that was not running has stopped

    def thread_failed(self, thread: StreamThread, error: Exception) -> None:
        """Call the uncaught exception handler, and do what it answers."""
        answer = response_to(error, self._uncaught)
        with self._state.changing():
            self.failed += 1
            if not self._state.now.is_running_or_rebalancing:
                return
            if self._stops_application:  # the thread that should have sent the request failed, too
                answer = StreamThreadExceptionResponse.SHUTDOWN_CLIENT
            match answer:
                case StreamThreadExceptionResponse.SHUTDOWN_CLIENT:
                    self.fail(error)
                case StreamThreadExceptionResponse.REPLACE_THREAD if thread.state is ThreadState.PENDING_SHUTDOWN:
                    _log.warning("%s failed while it was being removed; not replaced: %s", thread.name, error)
                case StreamThreadExceptionResponse.REPLACE_THREAD:
                    _log.warning("%s failed; replacing it: %s", thread.name, error)
                    thread.replace = True
                case StreamThreadExceptionResponse.SHUTDOWN_APPLICATION:
                    # A replacement sends the request to the leader, which sends it to all members.
                    _log.error("%s failed; shutting down every client of the application: %s", thread.name, error)
                    self.error = error
                    self._stops_application = thread.replace = True
                    for other in self._threads.values():
                        other.request_application_shutdown()

    def thread_ended(self, thread: StreamThread) -> None:
        """Start the replacement of a thread that has failed. Close the client after its last thread."""
        with self._lock:
            replacement = None
            if thread.replace and self._state.now.is_running_or_rebalancing:
                replacement = self._new(thread.index)
                if self._stops_application:
                    replacement.request_application_shutdown()
            elif self._state.now.is_running_or_rebalancing:  # it was removed; perhaps the remover no longer waits
                self._forget_dead()
                self._share_cache()
        if replacement is not None:
            try:
                replacement.start()
            except RuntimeError as error:
                _log.exception("%s: starting its replacement failed; shutting down this client", thread.name)
                self.fail(error)
        self.finish_if_ended()


def _millis(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)
