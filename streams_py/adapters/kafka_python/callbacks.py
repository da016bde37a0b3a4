"""Pass calls from kafka-python's network thread to a member's polling thread.

The group protocol runs as coroutines on the client's network thread. That thread sends the heartbeats, so it must never
block. But a revocation waits until records are flushed, and a leader's assignment creates topics. So the network thread
puts such a call into this inbox and awaits its result. The polling thread, which has no other work, makes the call. It
can be woken while it waits for calls.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from kafka.future import Future

T = TypeVar("T")

_ALIVE_S = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    function: Callable[..., object]
    arguments: tuple[object, ...]
    answer: Any  # kafka-python's Future; it has no type information


class CallbackInbox:
    """Queue of calls for the polling thread. ``on_network_thread`` schedules a function on the network thread."""

    def __init__(self, on_network_thread: Callable[[Callable[[], object]], object]) -> None:
        self._on_network_thread = on_network_thread
        self._items: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._closed = False

    async def call(self, function: Callable[..., T], *arguments: object) -> T:
        """Run a function on the polling thread; await its result or exception. For the network thread."""
        answer = Future()
        self._items.put(_Call(function, arguments, answer))
        result: T = await answer
        return result

    def wake(self) -> None:
        """Wake the polling thread. For any thread."""
        self._items.put(None)

    def close(self) -> None:
        """Make no further calls, and wake the polling thread. For any thread."""
        self._closed = True
        self.wake()

    def serve(self, timeout_s: float) -> None:
        """Make calls until woken or until ``timeout_s`` has elapsed. For the polling thread."""
        limit = time.monotonic() + timeout_s
        while not self._closed and (left := limit - time.monotonic()) > 0:
            try:
                item = self._items.get(timeout=left)
            except queue.Empty:
                return
            if item is None:
                return
            self._make(item)

    def serve_until(self, done: Any, check_alive: Callable[[], None] = lambda: None) -> bool:
        """Make calls until the kafka-python future ``done`` is done; False if closed before. For the polling thread.

        ``check_alive`` is called every second without a call, and may raise: if the network thread has died, the future
        never completes.
        """
        done.add_both(lambda _: self.wake())
        while not done.is_done and not self._closed:
            try:
                item = self._items.get(timeout=_ALIVE_S)
            except queue.Empty:
                check_alive()
                continue
            if item is not None and not self._closed:
                self._make(item)
        return bool(done.is_done)

    def _make(self, call: _Call) -> None:
        # A future's callbacks resume a coroutine, so it must be completed on the network thread.
        try:
            value = call.function(*call.arguments)
        except BaseException as error:
            problem = error
            self._on_network_thread(lambda: call.answer.failure(problem))
        else:
            self._on_network_thread(lambda: call.answer.success(value))
