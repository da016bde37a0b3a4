"""Count, average and maximum of durations, for metrics."""

from __future__ import annotations

from collections.abc import Mapping


class Latency:
    """Count, average and maximum of durations in ms. One thread adds, any thread reads."""

    __slots__ = ("count", "max_ms", "total_ms")

    def __init__(self) -> None:
        self.count = 0
        self.total_ms = 0
        self.max_ms = 0.0

    def add(self, duration_ms: int, count: int = 1) -> None:
        """Add ``count`` events that took ``duration_ms`` together."""
        if count:
            self.count += count
            self.total_ms += duration_ms
            average_ms = duration_ms / count
            if average_ms > self.max_ms:
                self.max_ms = average_ms

    @property
    def average_ms(self) -> float:
        """Average duration of one event; 0 without events."""
        return self.total_ms / self.count if self.count else 0.0

    def metrics(self, name: str, seconds: float) -> Mapping[str, float]:
        """Return ``name``-total, -rate, -latency-avg, -latency-max and -ratio (of the time since thread start)."""
        return {
            f"{name}-total": self.count,
            f"{name}-rate": self.count / seconds,
            f"{name}-latency-avg": self.average_ms,
            f"{name}-latency-max": self.max_ms,
            f"{name}-ratio": self.total_ms / 1000 / seconds,
        }
