"""Scheduled callbacks of one task: :class:`PunctuationQueue` for one clock, and :class:`Punctuators` for both clocks.

A schedule that is due at ``d`` fires once when the clock shows ``t >= d``. It is next due at ``d + interval``. If that
time has passed as well, the missed calls are skipped: the next call is at the first multiple after ``t``. Callbacks
receive ``t``, the time of the clock, not the due time.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from streams_py.errors import BrokerUnavailableError
from streams_py.ports import Clock
from streams_py.runtime.tasks.record.offset_metadata import UNKNOWN_TIME
from streams_py.topology.declare.nodes import Punctuation, RecordContext


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
    """The schedules of one clock, earliest first (Kafka Streams' ``PunctuationQueue``).

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


class Punctuators:
    """The punctuators of one task, by stream time and by the wall clock."""

    def __init__(self, record: RecordContext, clock: Clock) -> None:
        self._record = record
        self._clock = clock
        self._queues = {of: PunctuationQueue() for of in Punctuation}
        self._by_stream_time = self._queues[Punctuation.STREAM_TIME]
        self._by_wall_clock = self._queues[Punctuation.WALL_CLOCK_TIME]
        self.were_called = False
        """Whether a punctuator was called since the last commit."""

    def queue(self, clock: Punctuation) -> PunctuationQueue:
        """Return the punctuators of a clock."""
        return self._queues[clock]

    def __len__(self) -> int:
        return len(self._by_stream_time) + len(self._by_wall_clock)

    @property
    def were_used(self) -> bool:
        """Whether a processor has ever scheduled a punctuator, even if it was cancelled since."""
        return self._by_stream_time.was_used or self._by_wall_clock.was_used

    def fire(self) -> int:
        """Call the punctuators that are due, by stream time first. Return how many were called."""
        fired = self.fire_stream_time()
        return fired + self.fire_wall_clock()

    def fire_stream_time(self) -> int:
        """Call the punctuators that are due by stream time."""
        now_ms, queue = self._record.stream_time_ms, self._by_stream_time
        return self._fire(queue, now_ms) if queue and now_ms != UNKNOWN_TIME else 0

    def fire_wall_clock(self) -> int:
        """Call the punctuators that are due by the wall clock."""
        queue = self._by_wall_clock
        return self._fire(queue, self._clock.now_ms()) if queue else 0

    def _fire(self, queue: PunctuationQueue, now_ms: int) -> int:
        if not queue.is_due(now_ms):
            return 0
        record = self._record
        record.topic, record.partition, record.offset = None, -1, -1
        record.headers, record.timestamp = (), now_ms
        record.system_time_ms = self._clock.now_ms()
        self.were_called = True
        return queue.fire(now_ms)

    def clear(self) -> None:
        """Forget all schedules."""
        for queue in self._queues.values():
            queue.clear()
