"""Draining: other instances take over the tasks of an instance that stops permanently, while it continues to work.

:mod:`streams_py.assignment.assignors.draining` has the assignment. This module has the client's side: whether waiting
helps, how long it may take, and the wait itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from streams_py.runtime.thread.states import ThreadState

if TYPE_CHECKING:
    from streams_py.ports import Clock
    from streams_py.runtime.client.state import ClientState
    from streams_py.runtime.client.stream_threads import StreamThreads

_log = logging.getLogger("streams_py")

_POLL_MS: Final = 20
_PART: Final = 3
_USUAL_S: Final = 60.0


class HandOver:
    """Lets other instances take over the tasks of one client.

    Attributes:
        is_leaving: Whether the client will leave the group because its close has begun a hand-over.

    Args:
        name: Returns the client's name for log lines.
    """

    def __init__(self, name: Callable[[], str], threads: StreamThreads, state: ClientState, clock: Clock) -> None:
        self.is_leaving = False
        self._name = name
        self._threads = threads
        self._state = state
        self._clock = clock

    def drain(self, timeout: float | None) -> bool:
        """Let other instances take over the tasks. Waits ``timeout`` seconds; None waits without limit.

        Returns:
            Whether the other instances have all tasks now.
        """
        return self._drain(timeout, lambda: self._is_working)

    def before_leaving(self, timeout: float | None) -> None:
        """Let other instances take over the tasks with state, if that helps any task.

        The wait takes at most a third of the time limit of the client's close, or 20 s without a time limit. It
        may take all of this time if the group leader is a Java client, which ignores the request.

        Args:
            timeout: Time limit of the client's close, in seconds; None: no limit.
        """
        with self._state.lock:
            is_pointless = self._threads.is_in_callback or self._threads.is_draining or not self._is_working
            if is_pointless or not self._would_help():
                return
            self.is_leaving = True
        part = (_USUAL_S if timeout is None else timeout) / _PART
        self._drain(part, lambda: self._is_working and self._have_successors())

    def _drain(self, timeout: float | None, should_wait: Callable[[], bool]) -> bool:
        with self._state.lock:
            if not self._is_working:
                return False
            self._threads.drain()
        _log.info("%s: draining: waiting for other instances to take over its tasks", self._name())
        if self._threads.is_in_callback:
            return self._is_drained()
        return self._wait(timeout, should_wait)

    def _wait(self, timeout: float | None, should_wait: Callable[[], bool]) -> bool:
        """Wait until all threads are drained.

        Returns:
            False, after a warning with the remaining tasks, if ``should_wait`` turns false first, or after ``timeout``
            seconds (None: no limit).
        """
        began_ms = self._clock.monotonic_ms()
        while not self._is_drained():
            spent_ms = self._clock.monotonic_ms() - began_ms
            if not should_wait() or (timeout is not None and spent_ms > 1000 * timeout):
                left = sorted(task.id for thread in self._threads.current() for task in thread.tasks if task.is_active)
                names = ", ".join(map(str, left)) or "no active tasks"
                _log.warning("%s: not drained after %.1f s: still has %s", self._name(), spent_ms / 1000, names)
                return False
            self._clock.sleep_ms(_POLL_MS)
        _log.info("%s: drained", self._name())
        return True

    @property
    def _is_working(self) -> bool:
        return self._state.now.is_running_or_rebalancing

    def _is_drained(self) -> bool:
        return all(thread.is_drained for thread in self._threads.current())

    def _would_help(self) -> bool:
        """Whether waiting for a hand-over shortens the downtime of any task.

        It does if the threads process tasks with state and another instance may take them over. A task without state
        pauses for a rebalance either way, and a task that restores is not processed yet.
        """
        return any(thread.processes_state for thread in self._threads.current()) and self._have_successors()

    def _have_successors(self) -> bool:
        """Whether other processes may take tasks over.

        False if one of the threads knows that the group has no other process that stays.
        """
        threads = self._threads.current()
        return all(thread.drain_gains for thread in threads if thread.state is not ThreadState.DEAD)
