"""Calls into librdkafka that must not hold their caller for longer than they were asked to.

librdkafka looks at the time-out of some transactional calls only when an answer comes: after connections were lost,
``send_offsets_to_transaction`` may not return for minutes (librdkafka issue 5456). Nothing can interrupt such a call,
so it is made on another thread, and its caller stops waiting.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable

__all__ = ["BoundedCalls"]


_Calls = queue.SimpleQueue[Callable[[], object] | None]


class BoundedCalls:
    """One call at a time, on a daemon thread named ``name`` that starts with the first. One thread uses it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: _Calls | None = None

    def run(self, call: Callable[[], object], within_s: float, *, when_late: Callable[[], object]) -> bool:
        """Make a call; raises what it raises. False when it has not returned within ``within_s``. It may do so later,
        with any outcome; ``when_late`` is then called on the other thread, and its errors are dropped."""
        calls = self._calls
        if calls is None:
            calls = self._calls = queue.SimpleQueue()
            threading.Thread(target=_serve, args=(calls,), name=self._name, daemon=True).start()
        outcomes: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        calls.put(lambda: outcomes.put(_outcome(call)))
        try:
            failure = outcomes.get(timeout=within_s)
        except queue.Empty:
            calls.put(when_late)
            self.close()
            return False
        if failure is not None:
            raise failure
        return True

    def close(self) -> None:
        """Let the thread end when it has nothing left to do."""
        if self._calls is not None:
            self._calls.put(None)
            self._calls = None


def _serve(calls: _Calls) -> None:
    while (call := calls.get()) is not None:
        with contextlib.suppress(Exception):
            call()


def _outcome(call: Callable[[], object]) -> BaseException | None:
    try:
        call()
    except BaseException as failure:
        return failure
    return None
