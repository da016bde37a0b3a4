"""Aggregations over tumbling or hopping windows (Kafka Streams' ``KStreamWindowAggregate``).

A record belongs to all windows that contain its timestamp. A window is closed, and drops records, when the largest
timestamp that this operator has seen exceeds its end by the grace period.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from streams_py.serdes.windowed import Windowed
from streams_py.topology.declare.in_context import within
from streams_py.topology.declare.nodes import NodeContext, Process
from streams_py.topology.declare.windows import EmitStrategy, TimeWindows, UnlimitedWindows
from streams_py.topology.operators.emission import UNKNOWN_TIME, FinalResults, time_of_store
from streams_py.topology.operators.in_place import aggregating, fresh_initializer, on_copies
from streams_py.topology.operators.tables import RowReader, TableOperator, forward_flushed, make_change

NULL_KEY = "null key in a windowed stream"
WINDOW_CLOSED = "the window is closed"

make_windowed: Callable[[tuple[Any, int, int]], Windowed[Any]] = lambda parts: tuple.__new__(Windowed, parts)  # noqa: E731
"""``make_windowed((key, start, end))``: a faster ``Windowed(key, start, end)`` for the record path."""


W = TypeVar("W")


class WindowedOperator(TableOperator, Generic[W]):
    """Base class of aggregations whose windows are found by their start."""

    def __init__(
        self,
        store: str,
        windows: W,
        emit: EmitStrategy,
        initializer: Callable[[], Any],
        aggregator: Callable[[Any, Any, Any], Any],
    ) -> None:
        super().__init__(store)
        self._windows = windows
        self._emits_final = emit is EmitStrategy.ON_WINDOW_CLOSE
        self._initializer = initializer
        self._aggregator = aggregator

    def reader(self, node: NodeContext) -> RowReader:
        fetch = node.store(self.store_name).fetch
        return lambda windowed: fetch(windowed[0], windowed[1])

    def _final_results(
        self, node: NodeContext, bounds: Callable[[int, int], tuple[int, int] | None]
    ) -> Callable[[int], None] | None:
        """Return a function to call after each record with the close time; None: updates are sent."""
        if not self._emits_final:
            return None
        store = node.store(self.store_name)

        def closed(first: int, last: int) -> Iterator[tuple[Windowed[Any], Any, int]]:
            for windowed, (value, timestamp_ms) in store.fetch_all(first, last):
                yield windowed, value, timestamp_ms

        return FinalResults(node, self.store_name, bounds, closed, store.release).emit

    def _forwards(self, node: NodeContext, store: Any) -> bool:
        """Whether the operator itself sends updates.

        It does not if only final results are sent, or if the cache sends the updates.
        """
        return not self._emits_final and forward_flushed(node, store, send_old_values=self.sends_old_values)


class TimeWindowAggregate(WindowedOperator[TimeWindows]):
    """``aggregate``, ``count`` and ``reduce`` over :class:`TimeWindows`."""

    replayable = True

    def bind(self, node: NodeContext) -> Process:
        store, forward, failed, context = node.store(self.store_name), node.forward, node.failed, node.record
        windows = self._windows
        size, grace, starts_of = windows.size_ms, windows.grace_ms, windows.starts_of
        is_tumbling = windows.advance_ms == size and not isinstance(windows, UnlimitedWindows)
        old_values = self.sends_old_values
        forwards = self._forwards(node, store)
        emit_final = self._final_results(node, self._closed_since)
        aggregator = aggregating(node, within(node, self._aggregator))
        if old_values and forwards:
            aggregator = on_copies(aggregator, store)
        update = store.updater(fresh_initializer(node, self._initializer, store), aggregator)
        observed_ms = time_of_store(node, store, size + grace)
        # Other operators may have advanced the stream time of the store, which expires more windows.
        shares_store = self.shares_store and not node.reference_behaviour

        def observe(time_ms: int) -> None:
            nonlocal observed_ms
            observed_ms = max(observed_ms, time_ms)

        node.remembers(self.store_name, lambda: observed_ms, observe)

        def process(key: Any, value: Any, timestamp_ms: int) -> None:
            nonlocal observed_ms
            if key is None:
                node.dropped(NULL_KEY)
                return
            if timestamp_ms > observed_ms:
                observed_ms = timestamp_ms
            if shares_store:
                observed_ms = max(observed_ms, time_of_store(node, store, size + grace))
            close_ms = observed_ms - grace
            for start in (timestamp_ms - timestamp_ms % size,) if is_tumbling else starts_of(timestamp_ms):
                end = start + size
                if end <= close_ms:
                    node.dropped(WINDOW_CLOSED)
                    continue
                context.timestamp = timestamp_ms  # later nodes may have changed it
                try:
                    new, old, result_ms = update(key, value, timestamp_ms, start)
                except Exception as error:
                    failed(error, key, value, timestamp_ms)
                    return
                if forwards:
                    change = make_change((new, old if old_values else None))
                    forward(make_windowed((key, start, end)), change, result_ms)
            if emit_final is not None:
                emit_final(close_ms)

        return process

    def _closed_since(self, close_ms: int, last_close_ms: int) -> tuple[int, int] | None:
        """Return the first and last start of the windows closed since the last emission.

        The last emission was up to ``last_close_ms``.
        """
        windows = self._windows
        last = close_ms - windows.size_ms
        if last < 0:
            return None
        if last_close_ms == UNKNOWN_TIME:
            return 0, last
        first = max(0, last_close_ms - windows.size_ms) + 1
        return None if windows.starts_of(last) == windows.starts_of(first - 1) else (first, last)
