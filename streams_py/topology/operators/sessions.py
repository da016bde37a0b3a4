"""Aggregations over sessions (Kafka Streams' ``KStreamSessionWindowAggregate``).

A record merges with all sessions of its key that end at most ``gap`` before it or start at most ``gap`` after it. The
merged sessions are removed and replaced by a new session, from the earliest start to the latest end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from streams_py.serdes.windowed import Windowed
from streams_py.topology.declare.in_context import within
from streams_py.topology.declare.nodes import NodeContext, Process
from streams_py.topology.declare.windows import EmitStrategy, SessionWindows
from streams_py.topology.operators.emission import FinalResults, time_of_store
from streams_py.topology.operators.in_place import aggregating, copier_of, fresh_initializer
from streams_py.topology.operators.tables import RowReader, TableOperator, forward_flushed, make_change
from streams_py.topology.operators.windowed import NULL_KEY, WINDOW_CLOSED


class SessionAggregate(TableOperator):
    """``aggregate``, ``count`` and ``reduce`` over :class:`SessionWindows`.

    ``merger`` is called with the key and two aggregates.
    """

    replayable = True

    def __init__(
        self,
        store: str,
        windows: SessionWindows,
        emit: EmitStrategy,
        initializer: Callable[[], Any],
        aggregator: Callable[[Any, Any, Any], Any],
        merger: Callable[[Any, Any, Any], Any],
    ) -> None:
        super().__init__(store)
        self._windows = windows
        self._emits_final = emit is EmitStrategy.ON_WINDOW_CLOSE
        self._initializer = initializer
        self._aggregator = aggregator
        self._merger = merger

    def reader(self, node: NodeContext) -> RowReader:
        fetch = node.store(self.store_name).fetch_session

        def read(windowed: Windowed[Any]) -> tuple[Any, int] | None:
            value = fetch(windowed.key, windowed.start, windowed.end)
            return None if value is None else (value, windowed.end)

        return read

    def bind(self, node: NodeContext) -> Process:
        store, forward, failed, context = node.store(self.store_name), node.forward, node.failed, node.record
        gap, grace = self._windows.gap_ms, self._windows.grace_ms
        aggregator = aggregating(node, within(node, self._aggregator))
        merger = within(node, self._merger)
        initializer = fresh_initializer(node, self._initializer, store)
        old_values = self.sends_old_values
        forwards = not self._emits_final and forward_flushed(node, store, send_old_values=old_values)
        emit_final = self._final_results(node, store)
        find, put = store.sessions, store.put
        copy = copier_of(store) if old_values and forwards else None
        observed_ms = time_of_store(node, store, gap + grace + 1)
        # The record cache still has sessions that the store would have expired. Kafka Streams merges them, so its
        # results depend on when the cache is flushed.
        kept_ms = 2**63 if node.reference_behaviour else store.retention.kept_ms
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
            observed_ms = max(observed_ms, timestamp_ms)
            if shares_store:
                observed_ms = max(observed_ms, time_of_store(node, store, gap + grace + 1))
            close_ms = observed_ms - grace - gap
            headers = context.headers
            context.timestamp = timestamp_ms
            try:
                start = end = timestamp_ms
                aggregate = initializer()
                earliest_end = max(timestamp_ms - gap, observed_ms - kept_ms + 1)
                found = list(find(key, earliest_end, timestamp_ms + gap))
                for session, merged in found:
                    aggregate = merger(key, aggregate, merged if copy is None else copy(merged))
                    start, end = min(start, session.start), max(end, session.end)
                if end < close_ms:
                    node.dropped(WINDOW_CLOSED)
                    found, result = [], None
                else:
                    aggregate = aggregator(key, value, aggregate)
                    result = Windowed(key, start, end)
                if start == end == timestamp_ms:
                    found = []  # an existing session is the same as the new one
                for session, old in found:
                    context.timestamp = timestamp_ms
                    put(session, None)
                    if forwards:
                        context.headers = ()
                        forward(session, make_change((None, old if old_values else None)), session.end)
                        context.headers = headers
                if result is not None:
                    context.timestamp = timestamp_ms
                    put(result, aggregate)
            except Exception as error:
                context.headers = headers
                failed(error, key, value, timestamp_ms)
                return
            if result is not None and forwards:
                context.headers = ()
                forward(result, make_change((aggregate, None)), end)
                context.headers = headers
            if emit_final is not None:
                emit_final(close_ms)

        return process

    def _final_results(self, node: NodeContext, store: Any) -> Callable[[int], None] | None:
        if not self._emits_final:
            return None

        def closed(first: int, last: int) -> Iterator[tuple[Windowed[Any], Any, int]]:
            for session, value in store.sessions_ended(first, last):
                yield session, value, session.end

        return FinalResults(node, self.store_name, _closed_since, closed, store.release).emit


def _closed_since(close_ms: int, last_close_ms: int) -> tuple[int, int] | None:
    """Return the first and last end of the sessions that were closed since the last emission."""
    first, last = max(0, last_close_ms), close_ms - 1
    return None if last < first else (first, last)
