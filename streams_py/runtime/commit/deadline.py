"""The time limit of a shutdown."""

from __future__ import annotations

from streams_py.ports import Clock


class Deadline:
    """The time by which a stream thread must have stopped. Without :meth:`set` the thread has no limit. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._at_ms: int | None = None

    def set(self, timeout_ms: int) -> None:
        """Let the time limit elapse in ``timeout_ms``."""
        self._at_ms = self._clock.monotonic_ms() + timeout_ms

    @property
    def has_passed(self) -> bool:
        """Whether the time limit has elapsed."""
        return self.left_ms(1) == 0

    def left_ms(self, unbounded_ms: int) -> int:
        """Return the time left in ms; ``unbounded_ms`` without a time limit."""
        at_ms = self._at_ms
        return unbounded_ms if at_ms is None else max(0, at_ms - self._clock.monotonic_ms())
