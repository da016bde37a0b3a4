"""``transform_values`` of a table: new values by an object with state of its own.

Answers to Kafka Streams' ``KTableTransformValues``. The transformer is called for the new value of a change, with None
for a deletion too, and for the old one as well when somebody below wants old values and the result is not stored.

A row that is read without a store is transformed again, for a record that is not its own: nobody knows any more where
it came from. So the transformer sees the row's timestamp, but neither topic, partition, offset nor headers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from streams_py.errors import ProcessingError, TopologyError
from streams_py.topology.declare.nodes import NodeContext, Process, RecordContext
from streams_py.topology.declare.processor import ValueTransformer
from streams_py.topology.operators.processors import BoundContext
from streams_py.topology.operators.tables import PastRowReader, RowReader, TableOperator, TableTransformation

__all__ = ["TableTransformValues"]

_UNKNOWN_TIME = -1


class TableTransformValues(TableTransformation):
    """Runs one transformer per task, and one more for each operator that reads the table without a store."""

    def __init__(
        self, parent: TableOperator, supplier: Callable[[], ValueTransformer[Any, Any, Any]], store: str
    ) -> None:
        super().__init__(parent, store)
        first, second = supplier(), supplier()
        if not isinstance(first, ValueTransformer):
            raise TopologyError(f"transform_values needs a ValueTransformer; the supplier gave {first!r}")
        if first is second:
            raise TopologyError(
                f"the supplier gave the same {type(first).__name__} twice; it must make a new one for each task, "
                "or tasks would share state"
            )
        self._supplier = supplier
        self.batch_safe = bool(getattr(supplier, "batch_safe", False))
        """As of processors."""

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
        """The row for a reader, from key and row of the parent."""
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
    """A transformer returns its result; it cannot send anything else."""

    @property
    def record(self) -> RecordContext:
        return self._record

    def forward(self, record: Any, *, child: str | None = None) -> NoReturn:
        """ProcessingError: what a transformer gives is what it returns."""
        raise ProcessingError(
            f"the transformer of node {self._node.name!r} forwards a record; transform_values takes what it returns. "
            "To send more than that use process() on a stream"
        )
