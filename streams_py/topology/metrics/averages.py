"""Average, least and greatest of what was measured lately.

Kafka's ``SampledStat`` with the windows that it has by default (``metrics.num.samples``, ``metrics.sample.window.ms``):
what has been measured in the last 30 to 60 seconds. For figures of which the extremes of the whole life would say
nothing: the latency of records has its greatest value when an application starts with a backlog.
"""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["Extent", "Sampled"]

_WINDOW_MS: Final = 30_000
_WINDOWS: Final = 2


class Extent(NamedTuple):
    """Of the values of some time."""

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
    """One thread adds, any thread reads. Times are of one clock, in ms; one that is set back begins anew."""

    __slots__ = ("_windows",)

    def __init__(self) -> None:
        self._windows: tuple[_Window, ...] = ()  # the newest first; replaced, never changed

    def add(self, value: float, now_ms: int) -> None:
        """It was measured now."""
        windows = self._windows
        if windows and 0 <= now_ms - windows[0].began_ms < _WINDOW_MS:
            began_ms, count, total, least, most = windows[0]
            newest = _Window(began_ms, count + 1, total + value, min(least, value), max(most, value))
            self._windows = (newest, *windows[1:])
        else:
            self._windows = (_Window(now_ms, 1, value, value, value), *windows[: _WINDOWS - 1])

    def extent(self, now_ms: int) -> Extent | None:
        """None when nothing was measured lately."""
        recent = [w for w in self._windows if 0 <= now_ms - w.began_ms < _WINDOWS * _WINDOW_MS]
        if not recent:
            return None
        average = sum(w.total for w in recent) / sum(w.values for w in recent)
        return Extent(average, min(w.least for w in recent), max(w.most for w in recent))
