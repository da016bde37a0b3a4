"""Joins of tables by key: a change of one side is joined with the current row of the other side.

Two operators process the changes of one side each. A third one, the merge, stores their results if the table is stored.
The kind of join depends on which sides are *kept* (have a result even without the other side): none (inner), the left
one (left), both (outer). Source: Kafka Streams' ``KTableKTableInnerJoin`` and related classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streams_py.topology.declare.in_context import within
from streams_py.topology.declare.nodes import NodeContext, Process
from streams_py.topology.operators.tables import RowReader, TableOperator, forward_flushed, latest_only, make_change

_NULL_KEY = "null key in a join of tables"


class TableJoin(TableOperator):
    """Joins changes of one side with the rows of the other side.

    ``joiner`` is called with key, this value and other value.
    """

    replayable = True

    def __init__(
        self,
        this: TableOperator,
        other: TableOperator,
        joiner: Callable[[Any, Any, Any], Any],
        *,
        keeps_this: bool,
        keeps_other: bool,
    ) -> None:
        super().__init__("")
        self._this = this
        self._other = other
        self._joiner = joiner
        self._keeps_this = keeps_this
        self._keeps_other = keeps_other
        self.other_stores = other.readable_stores()

    def enable_old_values(self, *, force: bool) -> bool:
        self._this.enable_old_values(force=True)
        self._other.enable_old_values(force=True)
        return super().enable_old_values(force=force)

    def readable_stores(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self._this.readable_stores(), *self._other.readable_stores())))

    def reader(self, node: NodeContext) -> RowReader:
        read_this, read_other, joiner = self._this.reader(node), self._other.reader(node), within(node, self._joiner)
        keeps_this, keeps_other = self._keeps_this, self._keeps_other

        def read(key: Any) -> tuple[Any, int] | None:
            this = read_this(key)
            if this is None and not keeps_other:
                return None
            other = read_other(key)
            if other is None and (this is None or not keeps_this):
                return None
            this_value, this_ms = (None, -1) if this is None else this
            other_value, other_ms = (None, -1) if other is None else other
            value = joiner(key, this_value, other_value)
            return None if value is None else (value, max(this_ms, other_ms))

        return read

    def bind(self, node: NodeContext) -> Process:
        read_other, joiner = self._other.reader(node), within(node, self._joiner)
        keeps_this, keeps_other, old_values = self._keeps_this, self._keeps_other, self.sends_old_values
        forward, failed, context = node.forward, node.failed, node.record

        def process(key: Any, change: Any, timestamp_ms: int) -> None:
            if key is None:
                node.dropped(_NULL_KEY)
                return
            new_input, old_input = change
            context.timestamp = timestamp_ms
            new = old = None
            try:
                row = read_other(key)
                if row is None:
                    if not keeps_this or (new_input is None and old_input is None):
                        return
                    other = None
                else:
                    other, other_ms = row
                    if other_ms > timestamp_ms:
                        timestamp_ms = other_ms
                always = keeps_other and row is not None
                if always or new_input is not None:
                    new = joiner(key, new_input, other)
                if old_values and (always or old_input is not None):
                    old = joiner(key, old_input, other)
            except Exception as error:
                failed(error, key, change, timestamp_ms)
                return
            forward(key, make_change((new, old)), timestamp_ms)

        return latest_only(self._this, process, node.dropped)


class TableJoinMerge(TableOperator):
    """The joined table: the results of both sides, stored if ``store_name`` is not ""."""

    replayable = True

    def __init__(self, left: TableJoin, right: TableJoin, store_name: str) -> None:
        super().__init__(store_name)
        self._left = left
        self._right = right

    def enable_old_values(self, *, force: bool) -> bool:
        self._left.enable_old_values(force=True)
        self._right.enable_old_values(force=True)
        return super().enable_old_values(force=force)

    def readable_stores(self) -> tuple[str, ...]:
        return super().readable_stores() if self.store_name else self._left.readable_stores()

    def reader(self, node: NodeContext) -> RowReader:
        return super().reader(node) if self.store_name else self._left.reader(node)

    def bind(self, node: NodeContext) -> Process:
        forward, failed, context = node.forward, node.failed, node.record
        old_values = self.sends_old_values
        if not self.store_name:
            return forward  # the sides send old values only if old values of this operator are needed
        store = self.store_of(node)
        put, forwards = store.put_value, forward_flushed(node, store, send_old_values=old_values)

        def process(key: Any, change: Any, timestamp_ms: int) -> None:
            context.timestamp = timestamp_ms
            try:
                put(key, change[0], timestamp_ms)
            except Exception as error:
                failed(error, key, change, timestamp_ms)
                return
            if forwards:
                forward(key, change, timestamp_ms)

        return process
