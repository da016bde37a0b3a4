"""Silence where garbage is sent on purpose: what the library logs about it would be noise."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["quiet_logs"]


@contextmanager
def quiet_logs() -> Iterator[None]:
    """Nothing of this library is logged inside."""
    log = logging.getLogger("streams_py")
    before = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(before)
