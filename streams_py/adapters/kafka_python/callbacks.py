"""The bridge from kafka-python's network thread to a member's polling thread.

The group protocol runs as coroutines on the client's network thread. That thread must never wait: it sends the
heartbeats. But revoking waits for records to be flushed, and a leader's assignment creates topics. So the network
thread puts such a call into this inbox and awaits its result, and the polling thread, whose only work it is, makes
the call. While it waits for work, the polling thread can be woken.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from kafka.future import Future

__all__ = ["CallbackInbox"]

T = TypeVar("T")

_ALIVE_S = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    function: Callable[..., object]
    arguments: tuple[object, ...]
    answer: Any  # kafka-python's Future; it has no type information


class CallbackInbox:
    """Calls to be made on the polling thread. ``on_network_thread`` runs a function on the network thread, soon."""

    def __init__(self, on_network_thread: Callable[[Callable[[], object]], object]) -> None:
        self._on_network_thread = on_network_thread
        self._items: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._closed = False

    async def call(self, function: Callable[..., T], *arguments: object) -> T:
        """Awaited on the network thread: the function's result, or its exception, from the polling thread."""
        answer = Future()
        self._items.put(_Call(function, arguments, answer))
        result: T = await answer
        return result

    def wake(self) -> None:
        """From any thread: let the polling thread look around now."""
        self._items.put(None)

    def close(self) -> None:
        """From any thread: make no further call; the polling thread stops waiting."""
        self._closed = True
        self.wake()

    def serve(self, timeout_s: float) -> None:
        """On the polling thread: make calls until woken, or until ``timeout_s`` seconds are over."""
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
        """On the polling thread: make calls until the (kafka-python) future ``done`` is done; False if closed before.

        ``check_alive`` is asked now and then, and may raise: a network thread that died completes nothing.
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
