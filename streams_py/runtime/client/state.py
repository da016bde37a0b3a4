"""The state of a client: transitions, waiting for a state, and calls of the state listener.

The lock that guards the state also guards the client's other fields. The listener is called without the lock, so it
may call any method of the client.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator

from streams_py.errors import IllegalStateError
from streams_py.runtime.thread.states import State, client_may_go

_log = logging.getLogger("streams_py")

StateListener = Callable[[State, State], object]


class ClientState:
    """State of a client; CREATED at first.

    Args:
        on_change: Called as ``on_change(new, old)`` during the change, under the lock.
        listener: Called as ``listener(new, old)`` once the lock is free: for every change, in order, one at a time.
    """

    def __init__(self, on_change: Callable[[State, State], None], listener: StateListener | None) -> None:
        self.lock = threading.RLock()
        self._changed = threading.Condition(self.lock)
        self._now = State.CREATED
        self._on_change = on_change
        self._listener = listener
        self._depth = 0
        self._pending: deque[tuple[State, State]] = deque()
        self._listener_thread: int | None = None

    @property
    def now(self) -> State:
        """The current state; read without the lock."""
        return self._now

    def go(self, new: State) -> None:
        """Change the state, inside :meth:`changing`. Raises IllegalStateError for an invalid transition."""
        old = self._now
        if new is old:
            return
        if not client_may_go(old, new):
            raise IllegalStateError(f"a client cannot go from {old.value} to {new.value}")
        self._now = new
        self._on_change(new, old)
        self._changed.notify_all()
        if self._listener is not None:
            self._pending.append((new, old))

    def wait_until(self, wanted: Callable[[State], bool], timeout_s: float | None) -> State:
        """Block until ``wanted(state)`` or until ``timeout_s`` has elapsed. Return the state at that time."""
        with self._changed:
            self._changed.wait_for(lambda: wanted(self._now), timeout_s)
            return self._now

    def wait_for_end(self, timeout_s: float | None) -> bool:
        """Block until the state is final and the listener was called for all changes; False on timeout."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._now.is_final and not self._pending and self._listener_thread is None, timeout_s
            )

    @property
    def is_in_listener(self) -> bool:
        """Whether the state listener runs on this thread. It must not wait for the client to close: that never ends."""
        return self._listener_thread == threading.get_ident()

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """Hold the lock around code that may change the state; the listener is called after its release."""
        with self.lock:
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                is_outermost = self._depth == 0
        if is_outermost:
            self._call_listener()

    def _call_listener(self) -> None:
        """Call the listener for the pending changes.

        If a thread is already calling the listener, that thread also handles changes that the listener itself or other
        threads make meanwhile.
        """
        while True:
            with self.lock:
                if self._listener is None or self._listener_thread is not None or not self._pending:
                    return
                change = self._pending.popleft()
                self._listener_thread = threading.get_ident()
            try:
                self._listener(*change)
            except (Exception, SystemExit):  # SystemExit would stop this thread, not the program
                _log.exception("the state listener failed")
            finally:
                with self.lock:
                    self._listener_thread = None
                    self._changed.notify_all()
