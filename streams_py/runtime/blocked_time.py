"""How long a stream thread has waited for Kafka: Kafka Streams' ``StreamThreadTotalBlockedTime``.

Java adds up what its clients count of themselves. Here the thread notes it around the calls that wait: for records, for
acknowledgements, for a commit, and in the producer for room in its queue, for what is known of a topic, and for
transactions. Committed offsets are asked for without waiting, and changelogs are read by another thread.
"""

from __future__ import annotations

from types import TracebackType

from streams_py.ports import Clock

__all__ = ["BlockedTime"]


class BlockedTime:
    """Entered while the thread waits, within one another or not. One thread enters, any thread reads."""

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
