"""The asyncio event loop for coroutines of users: one thread per client, started at its first use.

All stream threads share one loop. An HTTP session belongs to the loop that it was created in, so all tasks of a process
can share it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from streams_py.system.close_report import place_of

_log = logging.getLogger(__name__)

_CLOSE_S = 5.0
_CHECK_INTERVAL_S = 1.0
_BLOCKED_S = 5.0
"""Time after which a loop that has not run a callback is reported as blocked, in s."""


class EventLoop:
    """A thread that runs an event loop. All methods are thread-safe."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closing = False
        self._posted_s: float | None = None
        self._next_check_s = self._next_warning_s = 0.0

    def post(self, call: Callable[..., object], *args: Any) -> None:
        """Schedule a call on the loop's thread. Does nothing after :meth:`close`."""
        with self._lock:
            if self._closing:
                return
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._run, args=(self._loop,), name=self._name, daemon=True)
                self._thread.start()
            self._loop.call_soon_threadsafe(call, *args)

    def check(self) -> None:
        """Check that the loop still runs callbacks, on behalf of a thread that waits for a result from it.

        A coroutine that blocks the loop silently stops everything on it, timeouts included. The warning names the
        blocking line; the intervals between warnings grow.
        """
        now_s = time.monotonic()
        with self._lock:
            if self._loop is None or self._closing:
                return
            if self._posted_s is None:
                if now_s >= self._next_check_s:
                    self._posted_s, self._next_warning_s = now_s, now_s + _BLOCKED_S
                    self._loop.call_soon_threadsafe(self._callback_ran)
                return
            if now_s < self._next_warning_s:
                return
            blocked_s = now_s - self._posted_s
            self._next_warning_s = now_s + blocked_s
        _log.warning(
            "%s: a coroutine has blocked the event loop for %.0f s: it is %s. No other coroutine can run, and commits "
            "wait for their results: `await` the call, or run it on a thread (asyncio.to_thread)",
            self._name,
            blocked_s,
            place_of(None if self._thread is None else self._thread.ident),
        )

    def _callback_ran(self) -> None:
        with self._lock:
            self._posted_s = None
            self._next_check_s = time.monotonic() + _CHECK_INTERVAL_S

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        while True:
            try:
                loop.run_forever()
                if self._closing:
                    break
                _log.warning(
                    "%s: a coroutine stopped the event loop, which all coroutines share; restarted", self._name
                )
            except BaseException as error:  # e.g. SystemExit: it leaves run_forever and has failed its own call
                _log.warning("%s: a coroutine raised %s; event loop restarted", self._name, type(error).__name__)
        try:
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()

    def close(self, timeout_s: float = _CLOSE_S) -> None:
        """Cancel the running coroutines and stop the thread.

        A thread that a coroutine blocks is abandoned with a warning. It does not keep the process alive.
        """
        with self._lock:
            self._closing = True
            loop, thread = self._loop, self._thread
        if loop is None or thread is None or not thread.is_alive():
            return
        asyncio.run_coroutine_threadsafe(_cancel_all(), loop).add_done_callback(
            lambda _: loop.call_soon_threadsafe(loop.stop)
        )
        thread.join(timeout_s)
        if thread.is_alive():
            _log.warning(
                "%s did not stop within %g s: a coroutine blocks it (time.sleep, a lock, a synchronous client) or "
                "ignores its cancellation",
                self._name,
                timeout_s,
            )


class Background:
    """The client's event loop, and the event that wakes one stream thread when one of its calls has finished."""

    __slots__ = ("_wakes_up", "loop", "wakeup")

    def __init__(self, loop: EventLoop) -> None:
        self.loop = loop
        self.wakeup = threading.Event()
        self._wakes_up = False

    def wake_up_soon(self) -> None:
        """Wake the stream thread once the loop has run its ready callbacks; call on the loop's thread only.

        Both threads share the interpreter lock. If each answer woke the stream thread, it would delay the next calls.
        """
        if not self._wakes_up:
            self._wakes_up = True
            asyncio.get_running_loop().call_soon(self._wake_up)

    def _wake_up(self) -> None:
        self._wakes_up = False
        self.wakeup.set()

    def wait(self, timeout_ms: int) -> None:
        """Wait until a call has finished since the last wait, or until the timeout."""
        if self.wakeup.wait(timeout_ms / 1000):
            self.wakeup.clear()
        else:
            self.loop.check()


async def _cancel_all() -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
