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

    __slots__ = ("callback", "cancelled", "due_ms", "interval_ms")

    def __init__(self, due_ms: int, interval_ms: int, callback: Callable[[int], None]) -> None:
        self.due_ms = due_ms
        self.interval_ms = interval_ms
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        """Never call back again."""
        self.cancelled = True

    def pass_over(self, now_ms: int) -> None:
        """Be due at the first of its times after ``now_ms``."""
        self.due_ms += ((now_ms - self.due_ms) // self.interval_ms + 1) * self.interval_ms

    def __lt__(self, other: Schedule) -> bool:
        return self.due_ms < other.due_ms


class PunctuationQueue:
    """The schedules of one clock, earliest first. Who comes first of those that are due at one time is decided by their
    places in the heap, which are those of Java's ``PriorityQueue``: outputs show the order."""

    __slots__ = ("_heap", "was_used")

    def __init__(self) -> None:
        self._heap: list[Schedule] = []
        self.was_used = False
        """Whether there ever was a schedule, cancelled by now or not."""

    def __len__(self) -> int:
        return len(self._heap)

    def schedule(
        self, first_due_ms: int, interval_ms: int, callback: Callable[[int], None], *, after_ms: int | None = None
    ) -> Schedule:
        """Call back at ``first_due_ms`` and every ``interval_ms`` after; ValueError below 1 ms. What would have been
        due before ``after_ms`` is left out."""
        if interval_ms < 1:
            raise ValueError(f"a punctuation interval is at least 1 ms, not {interval_ms}")
        self.was_used = True
        schedule = Schedule(first_due_ms, interval_ms, callback)
        if after_ms is not None and first_due_ms < after_ms:
            schedule.pass_over(after_ms)
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
            schedule = self._poll()
            if schedule.cancelled:
                continue
            due_ms = schedule.due_ms
            schedule.pass_over(now_ms)
            try:
                schedule.callback(now_ms)
            except BrokerUnavailableError:
                schedule.due_ms = due_ms
                raise
            finally:
                if not schedule.cancelled:
                    heapq.heappush(heap, schedule)
            fired += 1
        return fired

    def _poll(self) -> Schedule:
        """Take the earliest one out. ``heapq`` would leave equal ones in other places than Java does."""
        heap = self._heap
        last = heap.pop()
        if not heap:
            return last
        first, at, count = heap[0], 0, len(heap)
        while (child := 2 * at + 1) < count:
            if child + 1 < count and heap[child + 1] < heap[child]:
                child += 1
            if not heap[child] < last:
                break
            heap[at] = heap[child]
            at = child
        heap[at] = last
        return first

    def clear(self) -> None:
        """Forget all schedules."""
        self._heap.clear()
