"""Clocks that only a test moves."""

from __future__ import annotations


class FakeClock:
    """A clock that only the test moves; sleeping also moves it."""

    def __init__(self, now_ms: int = 1_000_000) -> None:
        self.now = now_ms

    def now_ms(self) -> int:
        return self.now

    def monotonic_ms(self) -> int:
        return self.now

    def sleep_ms(self, duration_ms: int) -> None:
        self.now += duration_ms


class FakeTime:
    """Stands for the module ``time`` in a module under test: a clock in seconds that only the test moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s
