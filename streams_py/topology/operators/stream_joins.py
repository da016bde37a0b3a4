"""Joins of a stream with a table: each record is joined with the current row of its key.

Changes of the table do not trigger results. For a table in a versioned store the row at the time of the record is used.
With a grace period a record waits in a buffer until stream time exceeds its timestamp by this period. A record that is
already older is joined immediately.

Source: Kafka Streams' ``KStreamKTableJoin`` and ``KStreamGlobalKTableJoin``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streams_py.topology.declare.in_context import at_its_time, within
from streams_py.topology.declare.nodes import NodeContext, Process
from streams_py.topology.operators.tables import TableOperator

_NO_JOIN = "null key or value in a join"


class StreamTableJoin:
    """Joins with the row of the record's key. ``joiner`` is called with key, value and row value.

    ``keeps_stream`` (left join): a record without a row, or without a key, is joined with None. ``buffer`` is the name
    of the store in which records wait for ``grace_ms``; "" if they do not wait.
    """

    replayable = True

    def __init__(
        self,
        table: TableOperator,
        joiner: Callable[[Any, Any, Any], Any],
        *,
        keeps_stream: bool,
        buffer: str = "",
        grace_ms: int = 0,
    ) -> None:
        self._buffer = buffer
        self._grace_ms = grace_ms
        self._table = table
        self._joiner = joiner
        self._keeps_stream = keeps_stream

    def bind(self, node: NodeContext) -> Process:
        joiner, keeps_stream = within(node, self._joiner), self._keeps_stream
        by_time = self._table.history_ms() is not None
        read: Any = self._table.past_reader(node) if by_time else self._table.reader(node)
        forward, failed = node.forward, node.failed

        def process(key: Any, value: Any, timestamp_ms: int) -> None:
            if value is None or (key is None and not keeps_stream):
                node.dropped(_NO_JOIN)
                return
            try:
                row = None if key is None else read(key, timestamp_ms) if by_time else read(key)
                if row is None:
                    if not keeps_stream:
                        return
                    joined = joiner(key, value, None)
                else:
                    joined = joiner(key, value, row[0])
            except Exception as error:
                failed(error, key, value, timestamp_ms)
                return
            forward(key, joined, timestamp_ms)

        join = at_its_time(node, process, self._joiner)
        return self._later(node, join) if self._buffer else join

    def _later(self, node: NodeContext, join: Process) -> Process:
        buffer, grace_ms, failed, context = node.store(self._buffer), self._grace_ms, node.failed, node.record

        def process(key: Any, value: Any, timestamp_ms: int) -> None:
            if key is None or value is None or timestamp_ms < buffer.observed_ms - grace_ms:
                join(key, value, timestamp_ms)
                return
            context.timestamp = timestamp_ms
            try:
                buffer.put(key, value)
            except Exception as error:
                failed(error, key, value, timestamp_ms)
                return
            saved = (context.timestamp, context.offset, context.topic, context.partition, context.headers)
            try:
                for due in buffer.take_until(buffer.observed_ms - grace_ms):
                    context.timestamp, context.offset, context.topic = due.timestamp, due.offset, due.topic
                    context.partition, context.headers = due.partition, due.headers
                    join(due.key, due.new, due.timestamp)
            finally:
                context.timestamp, context.offset, context.topic, context.partition, context.headers = saved

        return process


class GlobalTableJoin:
    """Joins with the row of a global table with the key ``selector(key, value)``.

    A record is dropped if the *selected* key is None, except in a left join.
    """

    replayable = True

    def __init__(
        self,
        store: str,
        selector: Callable[[Any, Any], Any],
        joiner: Callable[[Any, Any, Any], Any],
        *,
        keeps_stream: bool,
    ) -> None:
        self._store = store
        self._selector = selector
        self._joiner = joiner
        self._keeps_stream = keeps_stream

    def bind(self, node: NodeContext) -> Process:
        get, selector, joiner, keeps_stream = (
            node.store(self._store).get,
            within(node, self._selector),
            within(node, self._joiner),
            self._keeps_stream,
        )
        forward, failed = node.forward, node.failed

        def process(key: Any, value: Any, timestamp_ms: int) -> None:
            if value is None:
                node.dropped(_NO_JOIN)
                return
            try:
                selected = selector(key, value)
                if selected is None and not keeps_stream:
                    node.dropped(_NO_JOIN)
                    return
                row = None if selected is None else get(selected)
                if row is None and not keeps_stream:
                    return
                joined = joiner(key, value, None if row is None else row[0])
            except Exception as error:
                failed(error, key, value, timestamp_ms)
                return
            forward(key, joined, timestamp_ms)

        return at_its_time(node, process, self._selector, self._joiner)
