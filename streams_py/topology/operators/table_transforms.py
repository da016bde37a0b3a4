"""``transform_values`` of a table: new values from an object with its own state.

Source: Kafka Streams' ``KTableTransformValues``. The transformer is called for the new value of a change, and with None
for a deletion. It is also called for the old value if a later operation needs old values and the result is not stored.

A row that is read without a store is transformed again, while another record is current: the record that the row came
from is no longer known. So the transformer gets the row's timestamp, but no topic, partition, offset and headers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from streams_py.errors import ProcessingError, TopologyError
from streams_py.topology.declare.nodes import NodeContext, Process, RecordContext
from streams_py.topology.declare.processor import ValueTransformer
from streams_py.topology.operators.processors import BoundContext
from streams_py.topology.operators.tables import PastRowReader, RowReader, TableOperator, TableTransformation

_UNKNOWN_TIME = -1


class TableTransformValues(TableTransformation):
    """Runs one transformer per task, and another one for each reader of the table without a store."""

    def __init__(
        self, parent: TableOperator, supplier: Callable[[], ValueTransformer[Any, Any, Any]], store: str
    ) -> None:
        super().__init__(parent, store)
        first, second = supplier(), supplier()
        if not isinstance(first, ValueTransformer):
            raise TopologyError(f"transform_values needs a ValueTransformer; the supplier returned {first!r}")
        if first is second:
            raise TopologyError(
                f"the supplier returned the same {type(first).__name__} twice; it must return a new one for each task, "
                "because tasks must not share state"
            )
        self._supplier = supplier
        self.replayable = bool(getattr(supplier, "batch_safe", False))
        """Same as for processors."""

    def _row_function(self, node: NodeContext) -> Callable[[Any, Any], Any]:
        transformer = self._supplier()
        node.on_init(lambda: transformer.init(_TransformerContext(node)))
        node.on_close(transformer.close)
        return transformer.transform

    def reader(self, node: NodeContext) -> RowReader:
        if self.store_name:
            return super().reader(node)
        transform, read_parent = self._row_reader(node), self._parent.reader(node)
        return lambda key: transform(key, read_parent(key))

    def past_reader(self, node: NodeContext) -> PastRowReader:
        if self.store_name:
            return super().past_reader(node)
        transform, read_parent = self._row_reader(node), self._parent.past_reader(node)
        return lambda key, timestamp_ms: transform(key, read_parent(key, timestamp_ms))

    def _row_reader(self, node: NodeContext) -> Callable[[Any, tuple[Any, int] | None], tuple[Any, int] | None]:
        """Return a function that transforms the parent's row for a reader."""
        transform, context = self._row_function(node), node.record

        def transformed(key: Any, row: tuple[Any, int] | None) -> tuple[Any, int] | None:
            value, timestamp_ms = row or (None, _UNKNOWN_TIME)
            saved = (context.topic, context.partition, context.offset, context.timestamp, context.headers)
            context.topic, context.partition, context.offset = None, -1, -1
            context.timestamp, context.headers = timestamp_ms, ()
            try:
                result = transform(key, value)
            finally:
                context.topic, context.partition, context.offset, context.timestamp, context.headers = saved
            return None if result is None else (result, timestamp_ms)

        return transformed

    def bind(self, node: NodeContext) -> Process:
        return self._bind(node, self._row_function(node), skip_nulls=False)


class _TransformerContext(BoundContext):
    """The context of a transformer, which returns its result and cannot forward records."""

    @property
    def record(self) -> RecordContext:
        return self._record

    def forward(self, record: Any, *, child: str | None = None) -> NoReturn:
        """Raise ProcessingError, because the result of a transformer is its return value."""
        raise ProcessingError(
            f"the transformer of node {self._node.name!r} forwards a record; transform_values only uses its return "
            "value. To send other records, use process() on a stream"
        )
