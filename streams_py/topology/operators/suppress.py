"""Suppression: changes of a table wait for a time limit or the end of their window (KIP-328).

Source: Kafka Streams' ``KTableSuppressProcessor``. Changes wait by stream time: a change is sent when the largest
timestamp that this operator has seen exceeds the buffer time of the change by the wait. For windows, the buffer time is
the end of the window, and the wait is the grace period. Otherwise the buffer time is the timestamp of the record, and
the wait is the time limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streams_py.errors import StateError
from streams_py.topology.declare.nodes import NodeContext, Process
from streams_py.topology.operators.emission import UNKNOWN_TIME
from streams_py.topology.operators.tables import DataReader, RowReader, TableOperator, make_change


@dataclass(frozen=True, slots=True)
class SuppressionRule:
    """The rule of one operator.

    ``by_window``: a change waits for the end of its window, and deletions are not sent. ``max_records`` and
    ``max_bytes`` limit the buffer. If they are exceeded, the first entries are sent early, or the task fails.
    """

    wait_ms: int
    by_window: bool
    max_records: int | None
    max_bytes: int | None
    emits_early: bool


class Suppress(TableOperator):
    """``suppress`` of a table."""

    replayable = True

    def __init__(self, parent: TableOperator, buffer: str, rule: SuppressionRule) -> None:
        super().__init__(buffer)
        self._parent = parent
        self._rule = rule
        parent.enable_old_values(force=True)

    def enable_old_values(self, *, force: bool) -> bool:
        return self._parent.enable_old_values(force=force)

    def readable_stores(self) -> tuple[str, ...]:
        return (self.store_name, *self._parent.readable_stores())

    def reader(self, node: NodeContext) -> RowReader:
        buffer, read_parent = node.store(self.store_name), self._parent.reader(node)

        def read(key: Any) -> tuple[Any, int] | None:
            is_buffered, value = buffer.prior_value(key)
            if not is_buffered:
                return read_parent(key)
            return None if value is None else (value, UNKNOWN_TIME)

        return read

    def data_reader(self, node: NodeContext) -> DataReader | None:
        return None  # a row is in the buffer (its value before the last change) or in the parent

    def bind(self, node: NodeContext) -> Process:
        buffer, forward, failed, context = node.store(self.store_name), node.forward, node.failed, node.record
        rule, node_metrics = self._rule, node.node_metrics
        wait, by_window = rule.wait_ms, rule.by_window
        limited = rule.max_records is not None or rule.max_bytes is not None
        put, first_time, first, remove_first = buffer.put, buffer.first_time_ms, buffer.first, buffer.remove_first
        observed_ms = UNKNOWN_TIME

        def observe(time_ms: int) -> None:
            nonlocal observed_ms
            observed_ms = max(observed_ms, time_ms)

        node.remembers(self.store_name, lambda: observed_ms, observe)

        def emit() -> None:
            key, new, old, timestamp, offset, topic, partition, headers = first()
            if new is not None or not by_window:
                context.timestamp, context.offset, context.topic = timestamp, offset, topic
                context.partition, context.headers = partition, headers
                forward(key, make_change((new, old)), timestamp)
                if node_metrics is not None:
                    node_metrics.emitted("suppression-emit")
            remove_first()  # only now: readers of this table must see the previous row while the change is forwarded

        def is_over() -> bool:
            return (rule.max_records is not None and len(buffer) > rule.max_records) or (
                rule.max_bytes is not None and buffer.size_bytes > rule.max_bytes
            )

        def filling() -> str:
            used = ((len(buffer), rule.max_records, "records"), (buffer.size_bytes, rule.max_bytes, "bytes"))
            return ", ".join(f"{now} {unit} of at most {most}" for now, most, unit in used if most is not None)

        def process(key: Any, change: Any, timestamp_ms: int) -> None:
            nonlocal observed_ms
            if timestamp_ms > observed_ms:
                observed_ms = timestamp_ms
            context.timestamp = timestamp_ms
            new, old = change
            try:
                put(key, new, old, key[2] if by_window else timestamp_ms)
            except Exception as error:
                failed(error, key, change, timestamp_ms)
                return
            first_ms = first_time()
            if not limited and (first_ms is None or first_ms > observed_ms - wait):
                return
            saved = (context.timestamp, context.offset, context.topic, context.partition, context.headers)
            try:
                while first_ms is not None and first_ms <= observed_ms - wait:
                    emit()
                    first_ms = first_time()
                if limited and is_over():
                    if not rule.emits_early:
                        raise StateError(
                            f"the buffer of {node.name!r} is full: {filling()}. Increase its limits, or let it emit "
                            "early",
                            task_id=node.task_id,
                        )
                    while is_over() and len(buffer):
                        emit()
            finally:
                context.timestamp, context.offset, context.topic, context.partition, context.headers = saved

        return process
