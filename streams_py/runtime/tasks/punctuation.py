"""Scheduled callbacks of one task on one clock (Kafka Streams' ``PunctuationQueue``).

A schedule due at ``d`` fires once when the clock shows ``t >= d`` and is next due at ``d + interval``. If that has
passed too, the missed firings are skipped, not made up for: the next one is the first multiple after ``t``. Callbacks
get ``t``, the time of the clock, not the time they were due.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from streams_py.errors import BrokerUnavailableError

__all__ = ["PunctuationQueue", "Schedule"]


class Schedule:
    """One scheduled callback. ``cancel`` may be called at any time, also from inside the callback."""

    __slots__ = ("_sequence", "callback", "cancelled", "due_ms", "interval_ms")

    def __init__(self, due_ms: int, interval_ms: int, callback: Callable[[int], None], sequence: int) -> None:
        self.due_ms = due_ms
        self.interval_ms = interval_ms
        self.callback = callback
        self.cancelled = False
        self._sequence = sequence

    def cancel(self) -> None:
        """Never call back again."""
        self.cancelled = True

    def __lt__(self, other: Schedule) -> bool:
        return (self.due_ms, self._sequence) < (other.due_ms, other._sequence)


class PunctuationQueue:
    """The schedules of one clock, earliest first; equal times in the order they were scheduled."""

    __slots__ = ("_heap", "_sequence")

    def __init__(self) -> None:
        self._heap: list[Schedule] = []
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._heap)

    def schedule(self, first_due_ms: int, interval_ms: int, callback: Callable[[int], None]) -> Schedule:
        """Call back at ``first_due_ms`` and every ``interval_ms`` after; ValueError below 1 ms."""
        if interval_ms < 1:
            raise ValueError(f"a punctuation interval is at least 1 ms, not {interval_ms}")
        self._sequence += 1
        schedule = Schedule(first_due_ms, interval_ms, callback, self._sequence)
        heapq.heappush(self._heap, schedule)
        return schedule

    def is_due(self, now_ms: int) -> bool:
        """True when :meth:`fire` would call somebody back, or only drop what was cancelled."""
        return bool(self._heap) and self._heap[0].due_ms <= now_ms

    def fire(self, now_ms: int) -> int:
        """Call back everything that is due at ``now_ms``, each schedule once; how many were called. What a broker
        without answer stopped (BrokerUnavailableError) stays due."""
        heap = self._heap
        fired = 0
        while heap and heap[0].due_ms <= now_ms:
            schedule = heapq.heappop(heap)
            if schedule.cancelled:
                continue
            # Scheduled again before the call: a callback that raises, or cancels, finds the queue in order.
            due_ms = schedule.due_ms
            missed = (now_ms - due_ms) // schedule.interval_ms
            schedule.due_ms += (missed + 1) * schedule.interval_ms
            heapq.heappush(heap, schedule)
            try:
                schedule.callback(now_ms)
            except BrokerUnavailableError:
                schedule.due_ms = due_ms
                heapq.heapify(heap)
                raise
            fired += 1
        return fired

    def clear(self) -> None:
        """Forget all schedules."""
        self._heap.clear()
