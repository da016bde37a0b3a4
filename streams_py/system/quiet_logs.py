"""Suppress the library's log output where it is expected, and reported in another way or irrelevant."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_logs(part: str = "streams_py", *, below: int = logging.CRITICAL + 1) -> Iterator[None]:
    """Suppress this library's log output inside a ``with`` block.

    Args:
        part: The logger of the part to suppress.
        below: The level below which nothing is logged. Default: nothing is logged at all.
    """
    log = logging.getLogger(part)
    before = log.level
    log.setLevel(below)
    try:
        yield
    finally:
        log.setLevel(before)
