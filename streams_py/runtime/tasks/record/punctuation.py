"""Scheduled callbacks of one task on one clock (Kafka Streams' ``PunctuationQueue``).

A schedule that is due at ``d`` fires once when the clock shows ``t >= d``. It is next due at ``d + interval``. If that
time has passed as well, the missed calls are skipped: the next call is at the first multiple after ``t``. Callbacks
receive ``t``, the time of the clock, not the due time.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from streams_py.errors import BrokerUnavailableError


class Schedule:
    """One scheduled callback. ``cancel`` may be called at any time, even inside the callback."""

    __slots__ = ("callback", "cancelled", "due_ms", "interval_ms")

    def __init__(self, due_ms: int, interval_ms: int, callback: Callable[[int], None]) -> None:
        self.due_ms = due_ms
        self.interval_ms = interval_ms
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        """Stop calling back."""
        self.cancelled = True

    def pass_over(self, now_ms: int) -> None:
        """Set the due time to the first regular time after ``now_ms``."""
        self.due_ms += ((now_ms - self.due_ms) // self.interval_ms + 1) * self.interval_ms

    def __lt__(self, other: Schedule) -> bool:
        return self.due_ms < other.due_ms


class PunctuationQueue:
    """The schedules of one clock, earliest first.

    Schedules that are due at the same time fire in the order of Java's ``PriorityQueue``, because outputs depend on it.
    """

    __slots__ = ("_heap", "was_used")

    def __init__(self) -> None:
        self._heap: list[Schedule] = []
        self.was_used = False
        """Whether there ever was a schedule, even if it is cancelled now."""

    def __len__(self) -> int:
        return len(self._heap)

    def schedule(
        self, first_due_ms: int, interval_ms: int, callback: Callable[[int], None], *, after_ms: int | None = None
    ) -> Schedule:
        """Call back at ``first_due_ms`` and every ``interval_ms`` after it. Calls due before ``after_ms`` are skipped.

        Raises:
            ValueError: The interval is below 1 ms.
        """
        if interval_ms < 1:
            raise ValueError(f"a punctuation interval must be at least 1 ms, not {interval_ms}")
        self.was_used = True
        schedule = Schedule(first_due_ms, interval_ms, callback)
        if after_ms is not None and first_due_ms < after_ms:
            schedule.pass_over(after_ms)
        heapq.heappush(self._heap, schedule)
        return schedule

    def is_due(self, now_ms: int) -> bool:
        """Whether :meth:`fire` would call back, or remove a cancelled schedule."""
        return bool(self._heap) and self._heap[0].due_ms <= now_ms

    def fire(self, now_ms: int) -> int:
        """Call back each schedule that is due at ``now_ms`` once. Return how many were called.

        A callback that an unavailable broker interrupted (BrokerUnavailableError) stays due.
        """
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
        """Remove the earliest schedule. Unlike ``heapq``, leave schedules with equal times where Java leaves them."""
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
