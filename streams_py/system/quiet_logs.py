"""Silence for a while, where what the library would log is expected, and said otherwise or not worth saying."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["quiet_logs"]


@contextmanager
def quiet_logs(part: str = "streams_py", *, below: int = logging.CRITICAL + 1) -> Iterator[None]:
    """This library, or the ``part`` of it with that logger, logs nothing below a level inside; by default, nothing."""
    log = logging.getLogger(part)
    before = log.level
    log.setLevel(below)
    try:
        yield
    finally:
        log.setLevel(before)
