"""Says what a close waits for, as long as it waits: a program that hangs in the user's own code must not look dead."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Collection
from types import FrameType
from typing import Final, Protocol

__all__ = ["place_of", "wait_aloud"]

_log = logging.getLogger("streams_py")

_FIRST_WORD_S: Final = 2.0
_STEP_S: Final = 0.25
_LONGEST_SILENCE_S: Final = 60.0
_OURS: Final = __name__.partition(".")[0]


class ClosingThread(Protocol):
    """What is asked of a thread that a close waits for."""

    @property
    def name(self) -> str: ...
    @property
    def ident(self) -> int | None: ...


def wait_aloud(ended: Callable[[float], bool], waits_for: Callable[[], Collection[ClosingThread]]) -> None:
    """Wait until ``ended(seconds to wait)`` is true; after two seconds, and then ever less often, log which threads
    have not ended, and where they are."""
    began = time.monotonic()
    silence_s = _FIRST_WORD_S
    next_word = began + silence_s
    while not ended(_STEP_S):
        now = time.monotonic()
        if now < next_word:
            continue
        silence_s = min(2 * silence_s, _LONGEST_SILENCE_S)
        next_word = now + silence_s
        held_up = "; ".join(f"{thread.name} is {place_of(thread.ident)}" for thread in waits_for()) or "the clients"
        _log.warning(
            "closing for %.0f s, waiting for: %s. A second signal (Ctrl-C, SIGTERM) ends the process at once",
            now - began,
            held_up,
        )


def place_of(ident: int | None) -> str:
    """Where a thread is: in the user's code, if it was called from ours, else in ours."""
    frame = None if ident is None else sys._current_frames().get(ident)
    if frame is None:
        return "about to end"
    inner: FrameType | None = frame
    while inner is not None:
        if not _is_ours(inner) and inner.f_code.co_filename != threading.__file__:
            return f"in {_words(inner)}, which is not code of {_OURS}"
        if _is_ours(inner):
            break
        inner = inner.f_back
    return f"in {_words(inner or frame)}"


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == _OURS


def _words(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno} ({frame.f_code.co_name})"
