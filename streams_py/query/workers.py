"""Threads for what blocks: reads of stores, and serdes of the application, which may ask a registry.

There are only so many. A call that has not begun when its time is over is dropped; one that has begun is left behind,
and keeps its thread until it ends. So requests never wait for longer than they may, whatever hangs; and since these are
daemon threads, neither does the end of the process, as it would for those of a ``ThreadPoolExecutor``.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from streams_py.query.errors import OwnerTimeoutError, QueryError, told

__all__ = ["Workers"]

T = TypeVar("T")

_Call = tuple[Callable[[], Any], "Future[Any]"]


class Workers:
    """At most ``most`` calls at once; used on one event loop, which closes it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._started = 0

    async def run(self, call: Callable[[], T], what: str, deadline_s: float) -> T:
        """The call's result. OwnerTimeoutError, which says ``what`` took too long, when ``deadline_s`` (of
        ``time.monotonic``) is over."""
        answer: Future[T] = Future()
        self._calls.put((call, answer))
        if self._started < self._most and not self._idle.acquire(blocking=False):
            self._started += 1
            threading.Thread(target=self._work, name=f"query-reader-{self._started}", daemon=True).start()
        try:
            async with asyncio.timeout(max(0.0, deadline_s - time.monotonic())):
                return await asyncio.wrap_future(answer)
        except TimeoutError:
            raise OwnerTimeoutError(f"{what} took too long") from None

    def close(self) -> None:
        """Begin no call any more; waits for none."""
        for _ in range(self._started):
            self._calls.put(None)

    def _work(self) -> None:
        while (item := self._calls.get()) is not None:
            call, answer = item
            if answer.set_running_or_notify_cancel():
                try:
                    answer.set_result(call())
                except Exception as error:
                    answer.set_exception(error)
                except BaseException as error:  # sys.exit() in a serde: on the event loop it would end the service
                    answer.set_exception(QueryError(told(error)))
            del item, call, answer  # an idle thread holds nothing
            self._idle.release()
