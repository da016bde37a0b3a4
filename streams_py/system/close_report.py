"""Log what a close waits for, so that a program that hangs in user code does not look dead."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Collection
from types import FrameType
from typing import Final, Protocol

_log = logging.getLogger("streams_py")

_FIRST_LOG_S: Final = 2.0
_STEP_S: Final = 0.25
_LONGEST_INTERVAL_S: Final = 60.0
_OURS: Final = __name__.partition(".")[0]


class ClosingThread(Protocol):
    """The attributes of a thread that a close waits for."""

    @property
    def name(self) -> str: ...
    @property
    def ident(self) -> int | None: ...


def wait_and_log(ended: Callable[[float], bool], waits_for: Callable[[], Collection[ClosingThread]]) -> None:
    """Wait until ``ended(timeout in seconds)`` is true, and log which threads still run and where they are.

    The first log line comes after two seconds. The intervals then grow to a minute.
    """
    began = time.monotonic()
    interval_s = _FIRST_LOG_S
    next_log = began + interval_s
    while not ended(_STEP_S):
        now = time.monotonic()
        if now < next_log:
            continue
        interval_s = min(2 * interval_s, _LONGEST_INTERVAL_S)
        next_log = now + interval_s
        waiting = "; ".join(f"{thread.name} is {place_of(thread.ident)}" for thread in waits_for()) or "the clients"
        _log.warning(
            "closing for %.0f s, waiting for: %s. A second signal (Ctrl-C, SIGTERM) kills the process immediately",
            now - began,
            waiting,
        )


def place_of(ident: int | None) -> str:
    """Describe where a thread runs: in user code if this library called it, else in this library."""
    frame = None if ident is None else sys._current_frames().get(ident)
    if frame is None:
        return "about to stop"
    inner: FrameType | None = frame
    while inner is not None:
        if not _is_ours(inner) and inner.f_code.co_filename != threading.__file__:
            return f"in {_location(inner)}, which is not part of {_OURS}"
        if _is_ours(inner):
            break
        inner = inner.f_back
    return f"in {_location(inner or frame)}"


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == _OURS


def _location(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno} ({frame.f_code.co_name})"
