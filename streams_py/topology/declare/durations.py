"""Durations: milliseconds as an int, or a ``timedelta``, for all parameters."""

from __future__ import annotations

from datetime import timedelta
from typing import Final, TypeAlias

from streams_py.errors import TopologyError

Duration: TypeAlias = int | timedelta
"""Milliseconds, or a ``timedelta``."""

_MILLISECOND: Final = timedelta(milliseconds=1)
_MAX_MS: Final = 2**63 - 1


def duration_ms(duration: Duration, what: str, *, least_ms: int = 0) -> int:
    """Return the duration in whole ms, rounded down.

    Raises:
        TopologyError: names ``what`` if the duration is shorter than ``least_ms`` or not a duration.
    """
    given: object = duration
    if isinstance(given, timedelta):
        ms = given // _MILLISECOND
    elif isinstance(given, int) and not isinstance(given, bool):
        ms = given
    else:
        raise TopologyError(f"{what} must be milliseconds (int) or a timedelta, not {duration!r}")
    if not least_ms <= ms <= _MAX_MS:
        raise TopologyError(f"{what} is {ms} ms; it must be at least {least_ms} ms")
    return ms
