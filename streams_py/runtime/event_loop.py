"""The asyncio event loop on which users' coroutines run: one thread for each client, started when it is first needed.

One loop for all stream threads, so that an HTTP session, which belongs to the loop it was made in, can be shared by
all tasks of a process.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from streams_py.runtime.closing import place_of

__all__ = ["Background", "EventLoop"]

_log = logging.getLogger(__name__)

_CLOSE_S = 5.0
_LOOKS_EVERY_S = 1.0
_BLOCKED_S = 5.0
"""A loop that has not turned for so long is blocked."""


class EventLoop:
    """A thread that runs an event loop. All methods may be called from any thread."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closing = False
        self._asked_s: float | None = None
        self._next_look_s = self._next_word_s = 0.0

    def post(self, call: Callable[..., object], *args: Any) -> None:
        """Call back on the loop's thread, soon. Nothing happens any more after :meth:`close`."""
        with self._lock:
            if self._closing:
                return
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._run, args=(self._loop,), name=self._name, daemon=True)
                self._thread.start()
            self._loop.call_soon_threadsafe(call, *args)

    def look(self) -> None:
        """Whether the loop still turns, for a thread that waits for it: a coroutine that blocks it stops everything in
        silence, time-outs included. Says where that is, ever less often."""
        now_s = time.monotonic()
        with self._lock:
            if self._loop is None or self._closing:
                return
            if self._asked_s is None:
                if now_s >= self._next_look_s:
                    self._asked_s, self._next_word_s = now_s, now_s + _BLOCKED_S
                    self._loop.call_soon_threadsafe(self._turned)
                return
            if now_s < self._next_word_s:
                return
            blocked_s = now_s - self._asked_s
            self._next_word_s = now_s + blocked_s
        _log.warning(
            "%s: a coroutine has blocked the event loop for %.0f s: it is %s. Nothing else goes on there, and no "
            "commit passes what waits: `await` it, or let it run on a thread (asyncio.to_thread)",
            self._name,
            blocked_s,
            place_of(None if self._thread is None else self._thread.ident),
        )

    def _turned(self) -> None:
        with self._lock:
            self._asked_s = None
            self._next_look_s = time.monotonic() + _LOOKS_EVERY_S

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        while True:
            try:
                loop.run_forever()
                if self._closing:
                    break
                _log.warning("%s: a coroutine stopped the event loop, which all others need; going on", self._name)
            except BaseException as error:  # SystemExit and the like leave run_forever; their call has ended with them
                _log.warning("%s: a coroutine raised %s; going on", self._name, type(error).__name__)
        try:
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()

    def close(self, timeout_s: float = _CLOSE_S) -> None:
        """Cancel what still runs and end the thread. One that does not end, because a coroutine blocks it, is left
        behind with a warning; it does not keep the process alive."""
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
                "%s did not end within %g s: a coroutine blocks it (time.sleep, a lock, a synchronous client) or does "
                "not let itself be cancelled",
                self._name,
                timeout_s,
            )


class Background:
    """What the tasks of one stream thread need for calls that run elsewhere: the client's loop, and the event that
    wakes this thread when one of them has ended."""

    __slots__ = ("_wakes_up", "loop", "wakeup")

    def __init__(self, loop: EventLoop) -> None:
        self.loop = loop
        self.wakeup = threading.Event()
        self._wakes_up = False

    def wake_up_soon(self) -> None:
        """End the wait when the loop has nothing more urgent to do; for the loop's thread. The two threads share one
        interpreter: woken up for each answer, the stream thread would take it away from the calls that come next."""
        if not self._wakes_up:
            self._wakes_up = True
            asyncio.get_running_loop().call_soon(self._wake_up)

    def _wake_up(self) -> None:
        self._wakes_up = False
        self.wakeup.set()

    def wait(self, timeout_ms: int) -> None:
        """Until some call has ended since the last wait, or the time is over."""
        if self.wakeup.wait(timeout_ms / 1000):
            self.wakeup.clear()
        else:
            self.loop.look()


async def _cancel_all() -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
