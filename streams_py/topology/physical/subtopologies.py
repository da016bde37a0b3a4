"""Sub-topologies: groups of nodes that run in the same task, and their numbers.

Two nodes are in the same group if one is the parent of the other, or if both use the same store. The groups are
numbered in the order in which their first nodes were *inserted*. That is not the direction of the data: the reading
side of a repartition may have a smaller number than the writing side. Task ids contain these numbers, so all members of
a group must compute the same numbers, whatever their language (Kafka Streams'
``InternalTopologyBuilder.makeNodeGroups``).
"""

from __future__ import annotations

from dataclasses import dataclass

from streams_py.topology.declare.nodes import ProcessorNode, SinkNode, SourceNode
from streams_py.topology.declare.stores import StoreBuilder
from streams_py.topology.physical.assembly import Node, TopologyAssembly


@dataclass(frozen=True, slots=True)
class Subtopology:
    """The part of a topology that one task runs.

    ``nodes`` are in insertion order (parents first), ``stores`` are the stores that they use. If ``is_global``, it has
    a number but no tasks: it fills a global store in every process.
    """

    id: int
    nodes: tuple[Node, ...]
    stores: tuple[StoreBuilder, ...]
    is_global: bool = False

    @property
    def sources(self) -> tuple[SourceNode, ...]:
        """Its source nodes, in insertion order."""
        return tuple(node for node in self.nodes if isinstance(node, SourceNode))

    @property
    def processors(self) -> tuple[ProcessorNode, ...]:
        """Its processor nodes, in insertion order."""
        return tuple(node for node in self.nodes if isinstance(node, ProcessorNode))

    @property
    def sinks(self) -> tuple[SinkNode, ...]:
        """Its sink nodes, in insertion order."""
        return tuple(node for node in self.nodes if isinstance(node, SinkNode))

    @property
    def source_topics(self) -> frozenset[str]:
        """Short names of the topics that its sources read by name (without patterns)."""
        return frozenset(topic for source in self.sources for topic in source.topics)

    def children_of(self, name: str) -> tuple[str, ...]:
        """Return the names of a node's children, in insertion order."""
        return tuple(node.name for node in self.nodes if not isinstance(node, SourceNode) and name in node.parents)


def subtopologies_of(assembly: TopologyAssembly) -> tuple[Subtopology, ...]:
    """Return the sub-topologies by number."""
    root_of = {name: name for name in assembly.nodes}

    def root(name: str) -> str:
        while root_of[name] != name:
            root_of[name] = name = root_of[root_of[name]]
        return name

    for name, node in assembly.nodes.items():
        if not isinstance(node, SourceNode):
            for parent in node.parents:
                root_of[root(name)] = root(parent)
        if isinstance(node, ProcessorNode):
            for store in node.stores:
                root_of[root(name)] = root(assembly.processors_of(store)[0])

    members: dict[str, list[Node]] = {}
    for name, node in assembly.nodes.items():
        members.setdefault(root(name), []).append(node)
    stores: dict[str, list[StoreBuilder]] = {}
    for store_name, builder in assembly.stores.items():
        users = assembly.processors_of(store_name)
        if users:
            stores.setdefault(root(users[0]), []).append(builder)
    return tuple(
        Subtopology(id, tuple(nodes), tuple(stores.get(group, ())), nodes[0].name in assembly.global_sources)
        for id, (group, nodes) in enumerate(members.items())
    )
