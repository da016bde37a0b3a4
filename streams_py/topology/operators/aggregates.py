"""Aggregations of streams and of tables into tables.

The timestamp of a result is the larger one of the record's and the stored timestamp. But the changelog record of a
deletion has the record's timestamp. With a record cache the operator only stores results, and the cache forwards them
when it is flushed. Source: Kafka Streams' ``KStreamAggregate``, ``KStreamReduce``, ``KTableAggregate`` and
``KTableReduce``, and ``KTablePassThrough`` for the common table of a cogroup.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from streams_py.errors import ProcessingError
from streams_py.topology.declare.in_context import within
from streams_py.topology.declare.nodes import Change, NodeContext, Process
from streams_py.topology.operators.in_place import aggregating, fresh_initializer, on_copies
from streams_py.topology.operators.tables import RowReader, TableOperator, forward_flushed, make_change

_NULL_KEY_OR_VALUE = "null key or value in a grouped stream"


class StreamAggregate(TableOperator):
    """``aggregate`` and ``count`` of a grouped stream."""

    replayable = True

    def __init__(self, store: str, initializer: Callable[[], Any], aggregator: Callable[[Any, Any, Any], Any]) -> None:
        super().__init__(store)
        self._initializer = initializer
        self._aggregator = aggregator

    def bind(self, node: NodeContext) -> Process:
        return _bind_grouped_stream(self, node, self._initializer, self._aggregator)


class StreamReduce(TableOperator):
    """``reduce`` of a grouped stream: the first value of a key is its first result."""

    replayable = True

    def __init__(self, store: str, reducer: Callable[[Any, Any], Any]) -> None:
        super().__init__(store)
        self._reducer = reducer

    def bind(self, node: NodeContext) -> Process:
        reducer = within(node, self._reducer)
        return _bind_grouped_stream(self, node, None, lambda key, value, old: reducer(old, value))


def _bind_grouped_stream(
    operator: TableOperator,
    node: NodeContext,
    initializer: Callable[[], Any] | None,
    aggregator: Callable[[Any, Any, Any], Any],
) -> Process:
    store, forward, failed, context = operator.store_of(node), node.forward, node.failed, node.record
    old_values = operator.sends_old_values
    forwards = forward_flushed(node, store, send_old_values=old_values)
    if initializer is not None:
        initializer = fresh_initializer(node, initializer, store)
    aggregator = aggregating(node, within(node, aggregator))
    if old_values and forwards:
        aggregator = on_copies(aggregator, store)
    update = store.updater(initializer, aggregator)

    def process(key: Any, value: Any, timestamp_ms: int) -> None:
        if key is None or value is None:
            node.dropped(_NULL_KEY_OR_VALUE)
            return
        context.timestamp = timestamp_ms
        try:
            new, old, result_ms = update(key, value, timestamp_ms)
        except Exception as error:
            failed(error, key, value, timestamp_ms)
            return
        if forwards:
            forward(key, make_change((new, old if old_values else None)), result_ms)

    return process


class GroupedTableAggregate(TableOperator):
    """``aggregate`` and ``count`` of a grouped table: subtract the old value, add the new one."""

    replayable = True

    def __init__(
        self,
        store: str,
        initializer: Callable[[], Any],
        adder: Callable[[Any, Any, Any], Any],
        subtractor: Callable[[Any, Any, Any], Any],
    ) -> None:
        super().__init__(store)
        self._initializer = initializer
        self._adder = adder
        self._subtractor = subtractor

    def bind(self, node: NodeContext) -> Process:
        adder, subtractor = within(node, self._adder), within(node, self._subtractor)
        initializer = fresh_initializer(node, self._initializer, self.store_of(node))

        adder, subtractor = aggregating(node, adder), aggregating(node, subtractor)

        def combine(key: Any, change: Change, current: Any) -> Any:
            if change.old is not None and current is not None:
                current = subtractor(key, change.old, current)
            if change.new is None:
                return current
            return adder(key, change.new, initializer() if current is None else current)

        return _bind_grouped_table(self, node, combine)


class GroupedTableReduce(TableOperator):
    """``reduce`` of a grouped table: the first new value is the first result."""

    replayable = True

    def __init__(self, store: str, adder: Callable[[Any, Any], Any], subtractor: Callable[[Any, Any], Any]) -> None:
        super().__init__(store)
        self._adder = adder
        self._subtractor = subtractor

    def bind(self, node: NodeContext) -> Process:
        adder, subtractor = within(node, self._adder), within(node, self._subtractor)

        add = aggregating(node, lambda key, value, current: adder(current, value))
        subtract = aggregating(node, lambda key, value, current: subtractor(current, value))

        def combine(key: Any, change: Change, current: Any) -> Any:
            if change.old is not None and current is not None:
                current = subtract(key, change.old, current)
            if change.new is None:
                return current
            return change.new if current is None else add(key, change.new, current)

        return _bind_grouped_table(self, node, combine)


def _bind_grouped_table(
    operator: TableOperator, node: NodeContext, combine: Callable[[Any, Change, Any], Any]
) -> Process:
    store, forward, failed, context = operator.store_of(node), node.forward, node.failed, node.record
    old_values = operator.sends_old_values
    forwards = forward_flushed(node, store, send_old_values=old_values)
    get, put = store.get, store.put_value
    versioned = operator.store_history_ms is not None
    if old_values and forwards:
        combine = on_copies(combine, store)

    def process(key: Any, change: Any, timestamp_ms: int) -> None:
        context.timestamp = timestamp_ms
        result_ms, old = timestamp_ms, None
        try:
            if key is None:
                raise ProcessingError(f"node {node.name!r} received a change of a grouped table without a key")
            stored = get(key)
            if stored is not None:
                old, stored_ms = stored
                # A change that neither adds nor subtracts anything keeps its own timestamp, as in Kafka Streams.
                if stored_ms > timestamp_ms and (change.new is not None or change.old is not None):
                    result_ms = stored_ms
            new = combine(key, change, old)
            # A deletion is logged with the time of the change, except in a versioned store, where it is a version.
            put(key, new, result_ms if new is not None or versioned else timestamp_ms)
        except Exception as error:
            failed(error, key, change, timestamp_ms)
            return
        if forwards:
            forward(key, make_change((new, old if old_values else None)), result_ms)

    return process


class CogroupMerge(TableOperator):
    """Forwards the results of the aggregations."""

    replayable = True

    def __init__(self, store: str, aggregations: Sequence[TableOperator]) -> None:
        super().__init__(store)
        self._aggregations = tuple(aggregations)

    def enable_old_values(self, *, force: bool) -> bool:
        for aggregation in self._aggregations:
            aggregation.enable_old_values(force=force)
        return super().enable_old_values(force=force)

    def reader(self, node: NodeContext) -> RowReader:
        return self._aggregations[0].reader(node)

    def bind(self, node: NodeContext) -> Process:
        return node.forward
