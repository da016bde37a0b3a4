"""Calls into librdkafka with a timeout that is enforced from outside.

librdkafka checks the timeout of some transactional calls only when an answer arrives. After lost connections,
``send_offsets_to_transaction`` may take minutes to return (librdkafka issue 5456). Such a call cannot be interrupted,
so it runs on another thread, and the caller stops waiting for it.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable

_Calls = queue.SimpleQueue[Callable[[], object] | None]


class BoundedCalls:
    """Runs one call at a time on a daemon thread called ``name``, which the first call starts. Not thread-safe."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: _Calls | None = None

    def run(self, call: Callable[[], object], within_s: float, *, when_late: Callable[[], object]) -> bool:
        """Run ``call`` on the other thread, wait for it, and raise the exception that it raises.

        Returns:
            False when the call has not returned within ``within_s``. It may still return later, with any outcome. The
            other thread then calls ``when_late`` and drops its exceptions.
        """
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
        """Let the thread finish its remaining calls and exit."""
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
