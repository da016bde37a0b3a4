"""How long something took: a figure for metrics."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["Latency"]


class Latency:
    """Count, average and maximum of how long something took, in ms."""

    __slots__ = ("count", "max_ms", "total_ms")

    def __init__(self) -> None:
        self.count = 0
        self.total_ms = 0
        self.max_ms = 0

    def add(self, duration_ms: int) -> None:
        """Count one that took this long."""
        self.count += 1
        self.total_ms += duration_ms
        self.max_ms = max(self.max_ms, duration_ms)

    def figures(self, name: str) -> Mapping[str, float]:
        """``name``-total, -latency-avg and -latency-max."""
        average = self.total_ms / self.count if self.count else 0.0
        return {f"{name}-total": self.count, f"{name}-latency-avg": average, f"{name}-latency-max": self.max_ms}
