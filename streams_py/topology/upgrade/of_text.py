"""The shape of a topology from the text of ``describe()``, ours or Kafka Streams'."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from streams_py.errors import TopologyError
from streams_py.topology.declare.names import internal_topics
from streams_py.topology.upgrade.fingerprint import digest
from streams_py.topology.upgrade.shape import Lineage, Part, Shape

_TEXT_MAX = 16 * 1024 * 1024
_SUBTOPOLOGY = re.compile(r"Sub-topology: (\d+)( for global store .*)?")
_NODE = re.compile(r"(Source|Processor|Sink): (\S+) \((topics|stores|topic|extractor class): (.*)\)")
_PARENTS = re.compile(r"<-- (.*)")
_CHILDREN = re.compile(r"--> .*")
_GENERATED = re.compile(r"-?\d{10}")


@dataclass(slots=True)
class _Node:
    kind: str
    name: str
    topics: tuple[str, ...] = ()
    stores: tuple[str, ...] = ()
    parents: list[str] = field(default_factory=list)


def shape_of_text(text: str) -> Shape:
    """Return the shape of a description. Raises TopologyError if it is not a description."""
    if len(text) > _TEXT_MAX:
        raise TopologyError(f"the text has {len(text)} characters, which is too long for a description of a topology")
    groups: dict[int, list[_Node]] = {}
    global_groups: list[list[_Node]] = []
    nodes: list[_Node] = []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if found := _SUBTOPOLOGY.fullmatch(line):
            nodes = []
            if found[2]:
                global_groups.append(nodes)
            else:
                groups[int(found[1])] = nodes
        elif found := _NODE.fullmatch(line):
            nodes.append(_node(found))
        elif (found := _PARENTS.fullmatch(line)) and nodes:
            nodes[-1].parents = _listed(found[1])
        elif line and line != "Topologies:" and not _CHILDREN.fullmatch(line):
            raise TopologyError(f"line {number} does not belong to a topology's description: {line[:80]!r}")
    if not groups and not global_groups:
        raise TopologyError("not a description of a topology: the line 'Sub-topology: 0' is missing")
    return _Reading([node for group in groups.values() for node in group]).shape(groups, global_groups)


def _node(found: re.Match[str]) -> _Node:
    kind, name, what, content = found.groups()
    match what:
        case "topics" if content.startswith("["):
            return _Node(kind, name, topics=tuple(_listed(content[1:-1])))
        case "topics":
            return _Node(kind, name, topics=(f"pattern {content}",))
        case "stores":
            return _Node(kind, name, stores=tuple(_listed(content[1:-1])))
        case "topic":
            return _Node(kind, name, topics=(content,))
        case _:
            return _Node(kind, name)


def _listed(text: str) -> list[str]:
    return [] if text.strip() in ("", "none") else [each.strip() for each in text.split(",")]


class _Reading:
    def __init__(self, nodes: Sequence[_Node]) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._writers: dict[str, list[_Node]] = {}
        for node in nodes:
            if node.kind == "Sink":
                for topic in node.topics:
                    self._writers.setdefault(topic, []).append(node)
        self._lineages: dict[str, Lineage] = {}

    def shape(self, groups: dict[int, list[_Node]], global_groups: list[list[_Node]]) -> Shape:
        stores: dict[str, Part] = {}
        repartitions: dict[str, Part] = {}
        for nodes in groups.values():
            for node in nodes:
                for store in node.stores:
                    stores.setdefault(store, Part(store, self._lineage(self._owner(store, nodes))))
                for topic in node.topics:
                    if node.kind == "Source" and self._is_internal(topic):
                        repartitions[topic] = Part(topic, self._lineage(node))
        return Shape(
            stores=stores,
            repartitions=repartitions,
            globals={
                store: Part(store, Lineage(None, "", ("global", _topics(nodes))))
                for nodes in global_groups
                for node in nodes
                for store in node.stores
            },
            subtopologies={
                id: (_topics(nodes), frozenset(store for node in nodes for store in node.stores))
                for id, nodes in groups.items()
            },
            is_text=True,
        )

    def _is_internal(self, topic: str) -> bool:
        return topic in self._writers and internal_topics("").fullmatch(f"-{topic}") is not None

    def _owner(self, store: str, nodes: Sequence[_Node]) -> _Node:
        """Return the node nearest to the sources that uses a store. Ties are broken by name."""
        users = [node for node in nodes if store in node.stores]
        return min(users, key=lambda node: (self._depth(node.name, frozenset()), node.name))

    def _depth(self, name: str, below: frozenset[str]) -> int:
        node = self._nodes.get(name)
        if node is None or name in below:
            return 0
        return 1 + max((self._depth(parent, below | {name}) for parent in node.parents), default=0)

    def _lineage(self, node: _Node) -> Lineage:
        known = self._lineages.get(node.name)
        if known is not None:
            return known
        self._lineages[node.name] = Lineage(None, "", ("", frozenset()))  # ends a cycle
        above = [self._lineage(self._nodes[parent]) for parent in node.parents if parent in self._nodes]
        topics: frozenset[str] = frozenset()
        if node.kind == "Source":
            internal = [topic for topic in node.topics if self._is_internal(topic)]
            topics = frozenset(node.topics) - frozenset(internal)
            above += [self._lineage(writer) for topic in internal for writer in self._writers[topic]]
        generated = _GENERATED.search(node.name)
        kind = _GENERATED.sub("", node.name) if generated else node.kind
        origin = topics.union(*(lineage.origin[1] for lineage in above))
        kinds = digest(kind, *sorted(topics), *sorted(lineage.kinds for lineage in above))
        self._lineages[node.name] = lineage = Lineage(None, kinds, (kind, origin))
        return lineage


def _topics(nodes: Sequence[_Node]) -> frozenset[str]:
    return frozenset(topic for node in nodes if node.kind == "Source" for topic in node.topics)
