"""Threads for what blocks: reads of stores, and serdes of the application, which may ask a registry.

There are only so many. A call that has not begun when its time is over is dropped; one that has begun is left behind,
and keeps its thread until it ends. So requests never wait for longer than they may, whatever hangs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from streams_py.query.errors import OwnerTimeoutError

__all__ = ["Workers"]

T = TypeVar("T")


class Workers:
    """At most ``most`` calls at once; close it."""

    def __init__(self, most: int) -> None:
        self._pool = ThreadPoolExecutor(most, thread_name_prefix="query-reader")

    async def run(self, call: Callable[[], T], what: str, deadline_s: float) -> T:
        """The call's result. OwnerTimeoutError, which says ``what`` took too long, when ``deadline_s`` (of
        ``time.monotonic``) is over."""
        try:
            async with asyncio.timeout(max(0.0, deadline_s - time.monotonic())):
                return await asyncio.get_running_loop().run_in_executor(self._pool, call)
        except TimeoutError:
            raise OwnerTimeoutError(f"{what} took too long") from None

    def close(self) -> None:
        """Begin no call any more; waits for none."""
        self._pool.shutdown(wait=False, cancel_futures=True)
