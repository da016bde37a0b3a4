"""Average, minimum and maximum of recent measurements.

Like Kafka's ``SampledStat`` with its default windows (``metrics.num.samples``, ``metrics.sample.window.ms``), this
module covers the measurements of the last 30 to 60 seconds. It is for metrics whose extremes over the whole lifetime
would say nothing. For example, the latency of records has its maximum when an application starts with a backlog.
"""

from __future__ import annotations

from typing import Final, NamedTuple

_WINDOW_MS: Final = 30_000
_WINDOWS: Final = 2


class Extent(NamedTuple):
    """Average, minimum and maximum of recent values."""

    average: float
    least: float
    most: float


class _Window(NamedTuple):
    began_ms: int
    values: int
    total: float
    least: float
    most: float


class Sampled:
    """Recent measurements. One thread adds, any thread reads.

    All times must come from one clock, in ms. If the clock is set back, earlier values no longer count.
    """

    __slots__ = ("_windows",)

    def __init__(self) -> None:
        self._windows: tuple[_Window, ...] = ()  # newest first; the tuple is replaced, never changed

    def add(self, value: float, now_ms: int) -> None:
        """Add a value measured now."""
        windows = self._windows
        if windows and 0 <= now_ms - windows[0].began_ms < _WINDOW_MS:
            began_ms, count, total, least, most = windows[0]
            newest = _Window(began_ms, count + 1, total + value, min(least, value), max(most, value))
            self._windows = (newest, *windows[1:])
        else:
            self._windows = (_Window(now_ms, 1, value, value, value), *windows[: _WINDOWS - 1])

    def extent(self, now_ms: int) -> Extent | None:
        """Return the extent of the recent values; None without recent values."""
        recent = [w for w in self._windows if 0 <= now_ms - w.began_ms < _WINDOWS * _WINDOW_MS]
        if not recent:
            return None
        average = sum(w.total for w in recent) / sum(w.values for w in recent)
        return Extent(average, min(w.least for w in recent), max(w.most for w in recent))
