"""Waiting for something to come true, patiently: a busy machine is no failure."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["PATIENCE_S", "until"]

PATIENCE_S = 60.0


def until(condition: Callable[[], object], what: str, *, timeout_s: float = PATIENCE_S) -> None:
    """Poll; AssertionError that says what did not happen."""
    limit = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > limit:
            raise AssertionError(f"not within {timeout_s:.0f} s: {what}")
        time.sleep(0.01)
