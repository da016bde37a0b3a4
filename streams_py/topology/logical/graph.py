"""The logical graph: the DSL calls, before they become the nodes of a topology.

Calls attach logical nodes. When the topology is built, the graph is optimised (:mod:`.optimise`) and then written, node
by node, into an assembly. The order of writing determines sub-topology numbers, so it is defined exactly. Each node
gets a rising priority when it is attached. A node that is attached again, or below two parents, keeps its last
priority. The next node to write is always the one with the smallest priority whose parents are all written. Source:
Kafka Streams' ``InternalStreamsBuilder`` and its package ``graph``.
"""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Iterable
from typing import Any, Final

from streams_py.errors import TopologyError
from streams_py.serdes import Serde, SerdeDefaults
from streams_py.topology.declare.caller import locate, user_line
from streams_py.topology.declare.names import NameIndex, RepartitionNames, table_repartition_topic
from streams_py.topology.declare.nodes import Operator, Partitioner, ProcessorNode, SinkNode, SourceNode
from streams_py.topology.declare.stores import StoreBuilder
from streams_py.topology.formats.change_serde import ChangeSerde
from streams_py.topology.operators.stateless import NullKeyFilter
from streams_py.topology.operators.table_joins import TableJoin, TableJoinMerge
from streams_py.topology.operators.tables import TableOperator, TableSource
from streams_py.topology.physical.assembly import TopologyAssembly


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What the optimisation needs to know about an operation.

    Attributes:
        changes_key: The operation changes keys.
        changes_value: The operation changes values.
        is_merge: The operation merges streams.
        is_overlooked: Kafka Streams does not know that this operation changes keys or values.
        accepts_null_keys: The operation uses records without a key.
    """

    changes_key: bool = False
    changes_value: bool = False
    is_merge: bool = False
    accepts_null_keys: bool = False
    is_overlooked: bool = False


_PLAIN: Final = Traits()


class GraphNode:
    """One logical node. ``name`` is also the name of the physical node that its children connect to."""

    def __init__(self, name: str, traits: Traits = _PLAIN) -> None:
        self.name = name
        self.traits = traits
        self.grace_ms: int | None = None
        """For a windowed aggregation: time after its end in which a window accepts records, in ms."""
        self.where = user_line()
        self.priority = 0
        self.is_written = False
        self.parents: dict[GraphNode, None] = {}
        self.children: dict[GraphNode, None] = {}

    def add_child(self, child: GraphNode) -> None:
        """Connect ``child``, if it is not connected yet."""
        self.children[child] = None
        child.parents[self] = None

    def remove_child(self, child: GraphNode) -> None:
        """Disconnect ``child``, if it is connected."""
        if child in self.children:
            del self.children[child]
            child.parents.pop(self, None)

    @property
    def parent_names(self) -> tuple[str, ...]:
        """Names of the nodes that send records to this one."""
        return tuple(parent.name for parent in self.parents)

    def write(self, assembly: TopologyAssembly) -> None:
        """Add the physical nodes. The root has none."""


class SourceStep(GraphNode):
    """A source node, which reads topics."""

    def __init__(self, source: SourceNode) -> None:
        super().__init__(source.name)
        self.source = source

    def write(self, assembly: TopologyAssembly) -> None:
        assembly.add_source(self.source)


class TableSourceStep(GraphNode):
    """Reads a table: a source, and the processor that creates the table. The table has a store only if needed."""

    def __init__(self, name: str, source: SourceNode, operator: TableSource, store: StoreBuilder) -> None:
        super().__init__(name)
        self.source = source
        self.operator = operator
        self.store = store
        self.reuses_source_topic = False
        operator.store_history_ms = store.history_ms

    def write(self, assembly: TopologyAssembly) -> None:
        assembly.add_source(self.source)
        assembly.add_processor(ProcessorNode(self.name, (self.source.name,), self.operator))
        if self.operator.is_stored:
            store = self.store
            if self.reuses_source_topic:
                store = dataclasses.replace(store, logging=False, source_topic=self.source.topics[0])
            assembly.add_store(store, [self.name])


class ProcessorStep(GraphNode):
    """Runs an operator. ``added_stores`` are added with it; ``stores`` are names of existing stores."""

    def __init__(
        self,
        name: str,
        operator: Operator,
        *,
        added_stores: Iterable[StoreBuilder] = (),
        stores: Iterable[str] = (),
        traits: Traits = _PLAIN,
    ) -> None:
        super().__init__(name, traits)
        self.operator = operator
        self.added_stores = tuple(added_stores)
        self.stores = tuple(stores)
        if isinstance(operator, TableOperator) and self.added_stores:
            operator.store_history_ms = self.added_stores[0].history_ms

    def write(self, assembly: TopologyAssembly) -> None:
        assembly.add_processor(ProcessorNode(self.name, self.parent_names, self.operator, self.stores))
        for store in self.added_stores:
            assembly.add_store(store, [self.name])


class TableStep(ProcessorStep):
    """Creates a table from a stream (``to_table``). It has a store only if it has a name or a later use."""

    def __init__(self, name: str, operator: TableSource, store: StoreBuilder) -> None:
        super().__init__(name, operator)
        self._table = operator
        self._store = store
        operator.store_history_ms = store.history_ms

    def write(self, assembly: TopologyAssembly) -> None:
        super().write(assembly)
        if self._table.is_stored:
            assembly.add_store(self._store, [self.name])


class TableJoinStep(GraphNode):
    """Joins two tables, with one operator for each side and one that merges the results.

    The merging operator also stores the results, if required.
    """

    def __init__(
        self,
        names: tuple[str, str, str],
        tables: tuple[GraphNode, GraphNode],
        left: TableJoin,
        right: TableJoin,
        merge: TableJoinMerge,
        added_stores: Iterable[StoreBuilder],
    ) -> None:
        left_name, right_name, merge_name = names
        super().__init__(merge_name)
        self._sides = ((left_name, tables[0], left), (right_name, tables[1], right))
        self._merge = merge
        self._added_stores = tuple(added_stores)
        if self._added_stores:
            merge.store_history_ms = self._added_stores[0].history_ms

    def write(self, assembly: TopologyAssembly) -> None:
        for name, table, operator in self._sides:
            assembly.add_processor(ProcessorNode(name, (table.name,), operator))
        assembly.add_processor(ProcessorNode(self.name, tuple(name for name, _, _ in self._sides), self._merge))
        for name, _, operator in self._sides:
            for store in operator.other_stores:
                assembly.connect(name, store)
        for builder in self._added_stores:
            assembly.add_store(builder, [self.name])


class SinkStep(GraphNode):
    """Writes a stream to a topic. ``sink`` has no parents yet."""

    def __init__(self, sink: SinkNode) -> None:
        super().__init__(sink.name)
        self.sink = sink

    def write(self, assembly: TopologyAssembly) -> None:
        assembly.add_sink(dataclasses.replace(self.sink, parents=self.parent_names))


class StoreStep(GraphNode):
    """Adds a store that processors can connect to by name."""

    def __init__(self, store: StoreBuilder) -> None:
        super().__init__(store.name)
        self.store = store

    def write(self, assembly: TopologyAssembly) -> None:
        assembly.add_store(self.store)


class GlobalStoreStep(GraphNode):
    """Fills a global store from a topic."""

    def __init__(
        self, name: str, source: SourceNode, operator: Operator, store: StoreBuilder, *, is_table: bool
    ) -> None:
        super().__init__(name)
        self._source = source
        self._operator = operator
        self._store = dataclasses.replace(store, logging=False)
        self._is_table = is_table

    def write(self, assembly: TopologyAssembly) -> None:
        processor = ProcessorNode(self.name, (self._source.name,), self._operator)
        assembly.add_global_store(self._source, processor, self._store, is_table=self._is_table)


class RepartitionStep(GraphNode):
    """Sends a stream through an internal topic.

    ``is_explicit``: the user requested it, so it is never merged with others.
    """

    def __init__(
        self,
        names: RepartitionNames,
        key_serde: Serde[Any] | None,
        value_serde: Serde[Any] | None,
        *,
        partitions: int | None = None,
        partitioner: Partitioner | None = None,
        is_explicit: bool = False,
    ) -> None:
        super().__init__(names.source)
        self.names = names
        self.key_serde = key_serde
        self.value_serde = value_serde
        self.partitions = partitions
        self.partitioner = partitioner
        self.is_explicit = is_explicit
        self.null_key_filter = NullKeyFilter()

    def write(self, assembly: TopologyAssembly) -> None:
        names, key, value = self.names, self.key_serde, self.value_serde
        assembly.add_repartition_topic(names.topic, self.partitions)
        assembly.add_processor(ProcessorNode(names.filter, self.parent_names, self.null_key_filter))
        assembly.add_sink(
            SinkNode(names.sink, (names.filter,), names.topic, None, key, value, self.partitioner, is_internal=True)
        )
        assembly.add_source(_internal_source(names.source, names.topic, key, value))


class TableRepartitionStep(GraphNode):
    """Sends the changes of a grouped table through an internal topic."""

    def __init__(
        self, sink: str, source: str, base: str, key_serde: Serde[Any] | None, value_serde: Serde[Any] | None
    ) -> None:
        super().__init__(source)
        self._sink = sink
        self._topic = table_repartition_topic(base)
        self._key_serde = key_serde
        self._value_serde = ChangeSerde(value_serde)

    def write(self, assembly: TopologyAssembly) -> None:
        key, value = self._key_serde, self._value_serde
        assembly.add_repartition_topic(self._topic)
        assembly.add_sink(SinkNode(self._sink, self.parent_names, self._topic, None, key, value, is_internal=True))
        assembly.add_source(_internal_source(self.name, self._topic, key, value))


def _internal_source(name: str, topic: str, key: Serde[Any] | None, value: Serde[Any] | None) -> SourceNode:
    # Without reset policy and extractor: all records must be read, with the timestamps with which they were sent.
    return SourceNode(name, (topic,), None, key, value, is_internal=True)


class LogicalGraph:
    """The graph of one builder, with its counter of names."""

    def __init__(self, defaults: SerdeDefaults | None = None) -> None:
        self.defaults = defaults or SerdeDefaults()
        self.index = NameIndex()
        self.root = GraphNode("root")
        self._priority = 0
        self._is_built = False
        self._copartitions: list[tuple[frozenset[str], str]] = []
        self._attached: dict[GraphNode, None] = {}

    @property
    def attached(self) -> tuple[GraphNode, ...]:
        """All nodes, in the order in which they were first attached."""
        return tuple(self._attached)

    def attach(self, node: GraphNode, *parents: GraphNode) -> None:
        """Attach a node below its parents."""
        if self._is_built:
            raise TopologyError("the topology was already built; make all calls before build(), or use a new builder")
        for parent in parents:
            parent.add_child(node)
        self._priority += len(parents)
        node.priority = self._priority
        self._attached[node] = None

    def copartition(self, sources: Iterable[str], node: str) -> frozenset[str]:
        """Declare that ``node`` joins the topics of these source nodes by partition number.

        Returns the source nodes.
        """
        group = frozenset(sources)
        self._copartitions.append((group, node))
        return group

    def replace_source(self, old: str, new: str) -> None:
        """Replace a removed source node by another one in the groups joined by partition number."""
        self._copartitions = [
            (frozenset(new if source == old else source for source in group), node)
            for group, node in self._copartitions
        ]

    def close(self) -> None:
        """Reject further calls, because the topology is being built."""
        self._is_built = True

    def write(self, assembly: TopologyAssembly) -> None:
        """Write all nodes: parents first, otherwise in the order of their priority."""
        ready = [(self.root.priority, 0, self.root)]
        sequence = 0
        while ready:
            _, _, node = heapq.heappop(ready)
            if node.is_written or not all(parent.is_written for parent in node.parents):
                continue
            assembly.where = node.where
            try:
                node.write(assembly)
            except TopologyError as error:
                locate(error, node.where)
                raise
            node.is_written = True
            for child in node.children:
                sequence += 1
                heapq.heappush(ready, (child.priority, sequence, child))
        for group, joining in self._copartitions:
            assembly.add_copartition_group(group, joining)
