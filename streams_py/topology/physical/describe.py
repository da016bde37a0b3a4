"""The text of a topology in the format of Kafka Streams' ``TopologyDescription``.

So two topologies can be compared. Within a sub-topology the node with the most descendants comes first, then the order
is by name. (As in Kafka Streams, a node that can be reached in two ways counts twice.) Names after an arrow are in
insertion order; in Java their order depends on hashing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

from streams_py.topology.declare.nodes import ProcessorNode, SinkNode, SourceNode
from streams_py.topology.physical.assembly import Node
from streams_py.topology.physical.subtopologies import Subtopology


class Description(str):
    """Text that notebooks and the interactive interpreter show line by line, without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def describe(subtopologies: Sequence[Subtopology]) -> Description:
    """Return the text of all sub-topologies; internal topics have their short names."""
    return Description("Topologies:\n " + "".join(f"  {_describe_subtopology(sub)}" for sub in subtopologies))


def _describe_subtopology(subtopology: Subtopology) -> str:
    children = {node.name: subtopology.children_of(node.name) for node in subtopology.nodes}

    @cache
    def size(name: str) -> int:
        return 1 + sum(size(child) for child in children[name])

    ordered = sorted(subtopology.nodes, key=lambda node: (-size(node.name), node.name))
    lines = "".join(f"    {_describe_node(node, children[node.name])}\n" for node in ordered)
    if subtopology.is_global:
        return f"Sub-topology: {subtopology.id} for global store (will not generate tasks)\n{lines}"
    return f"Sub-topology: {subtopology.id}\n{lines}\n"


def _describe_node(node: Node, children: Iterable[str]) -> str:
    successors = f"\n      --> {_names(children)}"
    match node:
        case SourceNode(name=name, topics=topics, pattern=None):
            return f"Source: {name} (topics: [{', '.join(sorted(topics))}]){successors}"
        case SourceNode(name=name, pattern=pattern):
            text = "" if pattern is None else pattern.pattern
            return f"Source: {name} (topics: {text}){successors}"
        case ProcessorNode(name=name, stores=stores, parents=parents):
            found = f"(stores: [{', '.join(sorted(stores))}])"
            return f"Processor: {name} {found}{successors}\n      <-- {_names(parents)}"
        case SinkNode(name=name, topic=topic, parents=parents):
            target = f"topic: {topic}" if topic is not None else f"extractor class: {_chooser_name(node)}"
            return f"Sink: {name} ({target})\n      <-- {_names(parents)}"


def _names(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def _chooser_name(sink: SinkNode) -> str:
    return getattr(sink.chooser, "__qualname__", type(sink.chooser).__qualname__)
