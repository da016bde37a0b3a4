"""Time that a stream thread has waited for Kafka. Source: Kafka Streams' ``StreamThreadTotalBlockedTime``.

Java adds up the times that its clients measure. Here the thread measures the calls that wait: polls, flushes and
commits, and in the producer a full queue, topic metadata and transactions. Requests for committed offsets don't block
the thread, and another thread reads changelogs.
"""

from __future__ import annotations

from types import TracebackType

from streams_py.ports import Clock


class BlockedTime:
    """Context manager around calls that wait; may be nested. One thread enters it, any thread reads ``total_ms``."""

    __slots__ = ("_began_ms", "_clock", "_depth", "total_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._depth = 0
        self._began_ms = 0
        self.total_ms = 0

    def __enter__(self) -> None:
        if not self._depth:
            self._began_ms = self._clock.monotonic_ms()
        self._depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._depth -= 1
        if not self._depth:
            self.total_ms += self._clock.monotonic_ms() - self._began_ms
