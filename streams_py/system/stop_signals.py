"""SIGINT (Ctrl-C) and SIGTERM as a request for an orderly close, while the main thread waits for a client."""

from __future__ import annotations

import contextlib
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_DEFAULTS: Final = (signal.default_int_handler, signal.SIG_DFL)
_SIGNAL_CHECK_S: Final = 0.5


@contextlib.contextmanager
def stop_signals(
    *, replace_handlers: bool = True, on_first: Callable[[], None] = lambda: None
) -> Iterator[threading.Event]:
    """Yield an event that the first SIGINT or SIGTERM sets. The signal then calls ``on_first`` and has no other effect.

    A second signal kills the process immediately: the operating system's default action works even if user code hangs
    and holds the interpreter.

    With ``replace_handlers=False``, signals that the application handles itself keep their handlers. Python delivers
    signals on the main thread only: on other threads nothing is installed and the event is never set.
    """
    asked = threading.Event()
    before: dict[signal.Signals, Any] = {}

    def ask(*_: object) -> None:
        asked.set()
        for number in before:
            signal.signal(number, signal.SIG_DFL)
        on_first()

    if threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            if replace_handlers or signal.getsignal(number) in _DEFAULTS:
                before[number] = signal.signal(number, ask)
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def wait_or_stop(asked: threading.Event, ended: Callable[[float], bool], timeout: float | None) -> bool:
    """Wait until ``ended(timeout in seconds)`` is true, ``asked`` is set, or ``timeout`` seconds have elapsed.

    Returns:
        Whether ``ended`` became true.
    """
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    while not asked.is_set():
        # A signal does not wake a thread that waits for a condition.
        left = deadline - time.monotonic()
        if ended(max(0.0, min(left, _SIGNAL_CHECK_S))):
            return True
        if left <= 0:
            break
    return False
