"""The common table of several aggregations over one store (``KTablePassThrough``)."""

from __future__ import annotations

from collections.abc import Sequence

from streams_py.topology.declare.nodes import NodeContext, Process
from streams_py.topology.operators.tables import RowReader, TableOperator


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
