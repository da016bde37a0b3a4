"""The state of a client: who may change it, who waits for it, and who hears of it.

The lock that guards it guards what the client holds, too. The listener is called without it, so that it may call any
method of the client.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator

from streams_py.errors import IllegalStateError
from streams_py.runtime.states import State, client_may_go

__all__ = ["ClientState", "StateListener"]

_log = logging.getLogger("streams_py")

StateListener = Callable[[State, State], object]


class ClientState:
    """Starts as CREATED. ``on_change(new, old)`` is called at once, under the lock; ``listener`` when the lock is free:
    for every change, in order, and one at a time."""

    def __init__(self, on_change: Callable[[State, State], None], listener: StateListener | None) -> None:
        self.lock = threading.RLock()
        self._changed = threading.Condition(self.lock)
        self._now = State.CREATED
        self._on_change = on_change
        self._listener = listener
        self._depth = 0
        self._pending: deque[tuple[State, State]] = deque()
        self._telling: int | None = None

    @property
    def now(self) -> State:
        """The current state; read without the lock."""
        return self._now

    def go(self, new: State) -> None:
        """Change it, inside :meth:`changing`. IllegalStateError for a change that no client makes."""
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
        """Block until ``wanted(state)``, or until ``timeout_s`` is over; the state then."""
        with self._changed:
            self._changed.wait_for(lambda: wanted(self._now), timeout_s)
            return self._now

    def wait_for_end(self, timeout_s: float | None) -> bool:
        """Block until the state is final and the listener has heard of everything; False when time is over first."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._now.is_final and not self._pending and self._telling is None, timeout_s
            )

    @property
    def is_telling(self) -> bool:
        """True inside the listener, where waiting for the end would never end."""
        return self._telling == threading.get_ident()

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """The lock, for whatever may change the state; the listener hears of it when the lock is free again."""
        with self.lock:
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                is_outermost = self._depth == 0
        if is_outermost:
            self._tell()

    def _tell(self) -> None:
        """Call the listener for what it has not heard of. A change made meanwhile, by the listener itself or by another
        thread, is told by the thread that is telling already."""
        while True:
            with self.lock:
                if self._listener is None or self._telling is not None or not self._pending:
                    return
                change = self._pending.popleft()
                self._telling = threading.get_ident()
            try:
                self._listener(*change)
            except (Exception, SystemExit):  # an exit ends no program here, but a thread that has things to close
                _log.exception("the state listener failed")
            finally:
                with self.lock:
                    self._telling = None
                    self._changed.notify_all()
