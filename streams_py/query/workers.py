"""Worker threads for blocking calls: reads of stores, and the application's serdes, which may call a registry.

The number of threads is limited. A call that has not started by its deadline is dropped. A call that has started keeps
its thread until it returns, and its caller stops waiting for it. So a request never takes longer than its timeout,
whichever call hangs. The threads are daemon threads, unlike those of a ``ThreadPoolExecutor``, so the process can exit
without waiting for them.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from streams_py.query.errors import OwnerTimeoutError, QueryError, safe_text

T = TypeVar("T")

_Call = tuple[Callable[[], Any], "Future[Any]"]


class Workers:
    """A pool that runs at most ``most`` calls concurrently. Used and closed on one event loop."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._started = 0

    async def run(self, call: Callable[[], T], what: str, deadline_s: float) -> T:
        """Run ``call`` on a worker thread and return its result.

        Args:
            call: The call.
            what: Names the call in the error message.
            deadline_s: Deadline, as ``time.monotonic``.

        Raises:
            OwnerTimeoutError: The deadline has passed.
        """
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
        """Start no further calls. Does not wait for running calls."""
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
                except BaseException as error:  # sys.exit() in a serde would stop the service's event loop
                    answer.set_exception(QueryError(safe_text(error)))
            del item, call, answer  # an idle thread must not keep objects alive
            self._idle.release()
