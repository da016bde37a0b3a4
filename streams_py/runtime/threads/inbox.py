"""Requests to a stream thread from other threads.

Tasks belong to their stream thread; nobody else may touch them. The membership thread therefore hands its callbacks
over: it posts an action and waits until the stream thread, between two batches of records, has carried it out. When
the stream thread ends, waiting callers are released instead of being left to wait for ever.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from streams_py.errors import IllegalStateError, TimeoutExceededError

__all__ = ["Inbox", "InboxClosedError"]

T = TypeVar("T")
Owner = TypeVar("Owner")


class InboxClosedError(IllegalStateError):
    """The stream thread has ended; the action was not carried out."""


class _Request(Generic[Owner, T]):
    __slots__ = ("_taken", "action", "done", "error", "result")

    def __init__(self, action: Callable[[Owner], T]) -> None:
        self.action = action
        self.done = threading.Event()
        self.result: T | None = None
        self.error: BaseException | None = None
        self._taken = threading.Lock()

    def take(self) -> bool:
        """True for the first who asks: the owner, to carry it out, or the caller, to withdraw it."""
        return self._taken.acquire(blocking=False)

    def carry_out(self, owner: Owner) -> None:
        if not self.take():
            return
        try:
            self.result = self.action(owner)
        except BaseException as error:  # handed to the caller, whoever that is
            self.error = error
        self.done.set()


class Inbox(Generic[Owner]):
    """Actions for one thread, carried out in the order posted, on what that thread serves them with."""

    def __init__(self) -> None:
        self._requests: queue.SimpleQueue[_Request[Owner, Any]] = queue.SimpleQueue()
        self._closed = False
        self._lock = threading.Lock()

    def call(self, action: Callable[[Owner], T], *, timeout_ms: int) -> T:
        """Have the owner carry ``action`` out; its result, or its error raised here.

        Raises InboxClosedError when the owner has ended, TimeoutExceededError when it did not get to it in time; what
        it had not begun by then is withdrawn, so that it cannot happen later, when nobody expects it.
        """
        request: _Request[Owner, T] = _Request(action)
        with self._lock:
            if self._closed:
                raise InboxClosedError("the stream thread has ended")
            self._requests.put(request)
        if not request.done.wait(timeout_ms / 1000) and (request.take() or not request.done.is_set()):
            raise TimeoutExceededError(
                f"the stream thread did not answer within {timeout_ms} ms; is user code blocking it?"
            )
        if request.error is not None:
            raise request.error
        return request.result  # type: ignore[return-value]  # set by carry_out, may be None if T allows it

    def serve(self, owner: Owner) -> int:
        """Carry out everything that waits, on ``owner``; how many there were. Called by the owning thread only."""
        served = 0
        while not self._requests.empty():
            self._requests.get().carry_out(owner)
            served += 1
        return served

    def close(self) -> None:
        """Refuse everything from now on and release those who wait."""
        with self._lock:
            self._closed = True
        while not self._requests.empty():
            request = self._requests.get()
            request.error = InboxClosedError("the stream thread has ended")
            request.done.set()
