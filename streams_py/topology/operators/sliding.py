"""Aggregations over sliding windows (KIP-450; ``KStreamSlidingWindowAggregate``).

A window ``[s, s + difference]`` exists for each distinct set of records of a key that are at most ``difference`` apart.
A record creates up to two windows: one that ends with the record, and one that starts directly after it (as soon as
that window has a record). It is also added to all existing windows that contain it, and may create a window that starts
directly after its predecessor. A window is stored as its aggregate and the timestamp of its latest record.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streams_py.topology.declare.in_context import within
from streams_py.topology.declare.nodes import NodeContext, Process
from streams_py.topology.declare.windows import SlidingWindows
from streams_py.topology.operators.emission import UNKNOWN_TIME, time_of_store
from streams_py.topology.operators.in_place import aggregating, fresh_initializer, on_copies
from streams_py.topology.operators.tables import make_change
from streams_py.topology.operators.windowed import WINDOW_CLOSED, WindowedOperator, make_windowed

_NULL_KEY_OR_VALUE = "null key or value in a stream with sliding windows"


class SlidingWindowAggregate(WindowedOperator[SlidingWindows]):
    """``aggregate``, ``count`` and ``reduce`` over :class:`SlidingWindows`."""

    replayable = True

    def bind(self, node: NodeContext) -> Process:
        failed, grace, difference = node.failed, self._windows.grace_ms, self._windows.difference_ms
        emit_final = self._final_results(node, self._closed_since)
        path = _Path(self, node, self._windows, self._initializer, aggregating(node, within(node, self._aggregator)))
        store, open_ms = node.store(self.store_name), difference + grace + 1
        observed_ms = time_of_store(node, store, open_ms)
        # Other operators may have advanced the stream time of the store, which expires more windows.
        shares_store = self.shares_store and not node.reference_behaviour

        def observe(time_ms: int) -> None:
            nonlocal observed_ms
            observed_ms = max(observed_ms, time_ms)

        node.remembers(self.store_name, lambda: observed_ms, observe)

        def process(key: Any, value: Any, timestamp_ms: int) -> None:
            nonlocal observed_ms
            if key is None or value is None:
                node.dropped(_NULL_KEY_OR_VALUE)
                return
            observed_ms = max(observed_ms, timestamp_ms)
            if shares_store:
                observed_ms = max(observed_ms, time_of_store(node, store, open_ms))
            close_ms = observed_ms - grace
            if timestamp_ms + difference < close_ms:
                node.dropped(WINDOW_CLOSED)
                return
            is_early = timestamp_ms < difference
            take = path.take_early if is_early else path.take
            try:
                take(key, value, timestamp_ms, close_ms)
            except Exception as error:
                failed(error, key, value, timestamp_ms)
                return
            if emit_final is not None and not is_early:  # as in Kafka Streams
                emit_final(close_ms)

        return process

    def forwards(self, node: NodeContext, store: Any) -> bool:
        """Whether the operator itself sends updates."""
        return self._forwards(node, store)

    def _closed_since(self, close_ms: int, last_close_ms: int) -> tuple[int, int] | None:
        difference = self._windows.difference_ms
        last = close_ms - difference - 1
        if last < 0:
            return None
        return (0 if last_close_ms == UNKNOWN_TIME else max(0, last_close_ms - difference)), last


class _Path:
    """The processing of records in one task."""

    def __init__(
        self,
        operator: SlidingWindowAggregate,
        node: NodeContext,
        windows: SlidingWindows,
        initializer: Callable[[], Any],
        aggregator: Callable[[Any, Any, Any], Any],
    ) -> None:
        store = node.store(operator.store_name)
        self._find = store.between
        # Another operator may have expired windows that the record cache still has. Kafka Streams reads them, so its
        # results depend on when the cache is flushed.
        self._expiring = store if operator.shares_store and not node.reference_behaviour else None
        self._put = store.put_value
        self._node = node
        self._forward = node.forward
        self._forwards = operator.forwards(node, store)
        self._old_values = operator.sends_old_values
        self._difference = windows.difference_ms
        self._initializer = fresh_initializer(node, initializer, store)
        # An aggregate is needed later, as old value or as start of the right window.
        self._aggregator = on_copies(aggregator, store)

    def take(self, key: Any, value: Any, t: int, close_ms: int) -> None:
        """Process a record at ``t`` that is not in the very first window."""
        difference = self._difference
        starts: set[int] = set()
        has_left = has_right = False
        left = right = previous_ms = None
        for start, stored in self._find(key, self._earliest(t - 2 * difference), t + 1, reverse=True):
            starts.add(start)
            if start == t + 1:
                has_right = True
            elif start + difference > t:
                if right is None:
                    right = stored
                self._update(key, value, t, start, stored, close_ms)
            elif start + difference == t:
                has_left = True
                self._update(key, value, t, start, stored, close_ms)
                if stored[1] >= t:
                    return  # another record has the timestamp t, so all its windows exist
                previous_ms = stored[1]
            else:
                left, previous_ms = stored, stored[1]
                break
        if previous_ms is not None and previous_ms + 1 not in starts and previous_ms + 1 + difference >= t:
            self._update(key, value, t, previous_ms + 1, (self._initializer(), t), close_ms)
        if not has_left:
            begun = left is not None and previous_ms is not None and previous_ms >= t - difference
            aggregate = left[0] if begun and left is not None else self._initializer()
            self._update(key, value, t, t - difference, (aggregate, t), close_ms)
        if not has_right:
            self._begin_right(key, t, right)

    def _earliest(self, start: int) -> int:
        """Return ``start``, or the first start of a window that is not expired."""
        return max(0, start) if self._expiring is None else max(0, start, self._expiring.expired_ms + 1)

    def take_early(self, key: Any, value: Any, t: int, close_ms: int) -> None:
        """Process a record whose left window would start before 0.

        All such records belong to the first window, ``[0, difference]``.
        """
        starts: set[int] = set()
        has_right = False
        first = right = previous_ms = None
        for start, stored in self._find(key, self._earliest(0), t + 1):
            starts.add(start)
            if start == 0:
                first = stored
                if stored[1] < t:
                    previous_ms = stored[1]
            elif start <= t:
                right = stored
                self._update(key, value, t, start, stored, close_ms)
            else:
                has_right = True
        if right is None and first is not None and first[1] > t:
            right = first
        if not has_right:
            self._begin_right(key, t, right)
        if previous_ms is not None and previous_ms + 1 not in starts:
            self._update(key, value, t, previous_ms + 1, (self._initializer(), t), close_ms)
        self._update(key, value, t, 0, first or (self._initializer(), t), close_ms)

    def _begin_right(self, key: Any, t: int, right: Any) -> None:
        """Create the window that starts directly after this record, if it has a later record.

        Its content is already known.
        """
        if right is not None and right[1] > t:
            self._send(key, t + 1, right[0], None, right[1], t)

    def _update(self, key: Any, value: Any, t: int, start: int, stored: Any, close_ms: int) -> None:
        if start + self._difference < close_ms:
            self._node.dropped(WINDOW_CLOSED)
            return
        old, stored_ms = stored
        self._send(key, start, self._aggregator(key, value, old), old, max(stored_ms, t), t)

    def _send(self, key: Any, start: int, new: Any, old: Any, result_ms: int, t: int) -> None:
        self._node.record.timestamp = t
        self._put(key, new, result_ms, start)
        if self._forwards:
            change = make_change((new, old if self._old_values else None))
            self._forward(make_windowed((key, start, start + self._difference)), change, result_ms)
