"""Place: the position of a stream or table in the logical graph, and facts about its data."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from streams_py.serdes import Serde
from streams_py.topology.declare.names import NameIndex, RepartitionNames, name_or_generate
from streams_py.topology.declare.nodes import Operator
from streams_py.topology.declare.stores import StoreBuilder
from streams_py.topology.logical.graph import GraphNode, LogicalGraph, ProcessorStep, RepartitionStep, Traits


@dataclass(frozen=True, slots=True)
class Place:
    """The position at which the next operation is attached.

    Attributes:
        key_serde: None if it is not known here; then the configured default is used.
        value_serde: None if it is not known here; then the configured default is used.
        sources: the source nodes whose topics determine the partitions.
        key_changed: keys may be in the wrong partition, so operations by key need a repartition first.
    """

    graph: LogicalGraph
    node: GraphNode
    key_serde: Serde[Any] | None
    value_serde: Serde[Any] | None
    sources: frozenset[str]
    key_changed: bool = False

    @property
    def index(self) -> NameIndex:
        """The counter of generated names."""
        return self.graph.index

    def with_serdes(self, key: Serde[Any] | None, value: Serde[Any] | None) -> Place:
        """Return this place with other serdes."""
        return dataclasses.replace(self, key_serde=key, value_serde=value)

    def then(self, node: GraphNode, *, key_changed: bool | None = None) -> Place:
        """Attach ``node`` here and return the place below it."""
        self.graph.attach(node, self.node)
        changed = self.key_changed if key_changed is None else key_changed
        return dataclasses.replace(self, node=node, key_changed=changed)

    def process(
        self,
        name: str | None,
        prefix: str,
        operator: Operator,
        *,
        stores: Iterable[StoreBuilder] = (),
        changes_key: bool = False,
        changes_value: bool = False,
    ) -> Place:
        """Attach a new processor and return the place below it.

        If the processor changes keys or values, their serde is unknown.
        """
        step = ProcessorStep(
            name_or_generate(name, self.index, prefix),
            operator,
            added_stores=stores,
            traits=Traits(changes_key=changes_key, changes_value=changes_value),
        )
        place = self.then(step, key_changed=self.key_changed or changes_key)
        return place.with_serdes(None if changes_key else self.key_serde, None if changes_value else self.value_serde)

    def below_repartition(self, step: RepartitionStep) -> Place:
        """Attach a repartition and return the place below it, where keys are in their partitions."""
        place = self.then(step, key_changed=False)
        return dataclasses.replace(place, sources=frozenset({step.names.source}))

    def repartitioned(self, base: str) -> Place:
        """Attach a repartition that an operation needs and return the place below it.

        Apart from the serdes, the facts about the data are unknown there.
        """
        names = RepartitionNames(base, self.index)
        return self.below_repartition(RepartitionStep(names, self.key_serde, self.value_serde))
