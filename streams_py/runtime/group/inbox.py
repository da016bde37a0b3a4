"""Requests to a stream thread from other threads.

Tasks belong to their stream thread; no other thread may use them. So the membership thread posts its callbacks as
actions and waits until the stream thread has run them between two batches of records. When the stream thread stops, it
releases the waiting callers. Actions that have no result are posted without waiting.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from streams_py.errors import IllegalStateError, TimeoutExceededError

T = TypeVar("T")
Owner = TypeVar("Owner")


class InboxClosedError(IllegalStateError):
    """The stream thread has stopped; the action was not run."""


class _Request(Generic[Owner, T]):
    __slots__ = ("_claimed", "action", "done", "error", "result")

    def __init__(self, action: Callable[[Owner], T]) -> None:
        self.action = action
        self.done = threading.Event()
        self.result: T | None = None
        self.error: BaseException | None = None
        self._claimed = threading.Lock()

    def claim(self) -> bool:
        """Claim the request: True for the first caller. The owner claims it to run it, the caller to withdraw it."""
        return self._claimed.acquire(blocking=False)

    def run(self, owner: Owner) -> None:
        if not self.claim():
            return
        try:
            self.result = self.action(owner)
        except BaseException as error:  # raised at the caller
            self.error = error
        self.done.set()


class Inbox(Generic[Owner]):
    """Actions for one thread, run in the order of posting on the ``owner`` that the thread passes."""

    def __init__(self) -> None:
        self._requests: queue.SimpleQueue[_Request[Owner, Any]] = queue.SimpleQueue()
        self._closed = False
        self._lock = threading.Lock()

    def call(self, action: Callable[[Owner], T], *, timeout_ms: int) -> T:
        """Have the owner run ``action``. Return its result, or raise its error here.

        Raises:
            InboxClosedError: The owner has stopped.
            TimeoutExceededError: The owner did not finish the action in time. If the action has not started, it is
                withdrawn and never runs. If it has started, it continues, and its result or error is discarded.
        """
        request: _Request[Owner, T] = _Request(action)
        with self._lock:
            if self._closed:
                raise InboxClosedError("the stream thread has stopped")
            self._requests.put(request)
        if not request.done.wait(timeout_ms / 1000) and (request.claim() or not request.done.is_set()):
            raise TimeoutExceededError(
                f"the stream thread did not answer within {timeout_ms} ms; is user code blocking it?"
            )
        if request.error is not None:
            raise request.error
        return request.result  # type: ignore[return-value]  # set by run, may be None if T allows it

    def post(self, action: Callable[[Owner], object]) -> None:
        """Have the owner run ``action`` without waiting for it. Does nothing if the owner has stopped.

        The action must handle its errors.
        """
        with self._lock:
            if not self._closed:
                self._requests.put(_Request(action))

    def serve(self, owner: Owner) -> int:
        """Run all waiting actions on ``owner`` and return their number. Called by the owning thread only."""
        served = 0
        while not self._requests.empty():
            self._requests.get().run(owner)
            served += 1
        return served

    def close(self) -> None:
        """Reject new actions and release the waiting callers."""
        with self._lock:
            self._closed = True
        while not self._requests.empty():
            request = self._requests.get()
            request.error = InboxClosedError("the stream thread has stopped")
            request.done.set()
