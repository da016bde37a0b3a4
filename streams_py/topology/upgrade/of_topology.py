"""The shape of a given topology."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

from streams_py.topology.declare.nodes import ProcessorNode, SinkNode, SourceNode
from streams_py.topology.declare.stores import StoreBuilder
from streams_py.topology.physical.subtopologies import Subtopology
from streams_py.topology.topology import Topology
from streams_py.topology.upgrade.fingerprint import digest, fingerprint, serde_text
from streams_py.topology.upgrade.shape import Lineage, Part, Shape

_SOURCE_OPERATOR = "source"


def shape_of(topology: Topology) -> Shape:
    """Return the facts that an upgrade check compares: sub-topologies, topics, stores, lineages."""
    lineages = _Lineages(topology)
    subtopologies = topology.subtopologies()
    with_tasks = [sub for sub in subtopologies if not sub.is_global]
    stores = {store.name: _store(topology, store, lineages) for sub in with_tasks for store in sub.stores}
    return Shape(
        stores=stores,
        repartitions=_repartitions(topology, with_tasks, lineages),
        globals={name: _global(topology, name) for name in topology.global_stores},
        subtopologies={sub.id: (_topics(sub), frozenset(store.name for store in sub.stores)) for sub in with_tasks},
    )


def _topics(sub: Subtopology) -> frozenset[str]:
    patterns = (f"pattern {source.pattern.pattern}" for source in sub.sources if source.pattern is not None)
    return frozenset(chain(sub.source_topics, patterns))


def _store(topology: Topology, store: StoreBuilder, lineages: _Lineages) -> Part:
    owner = topology.processors_of(store.name)[0]
    return Part(store.name, lineages.of(owner), _store_details(store), topology.where(owner))


def _store_details(store: StoreBuilder) -> dict[str, str]:
    windows = store.windows
    details = {
        "kind": store.kind.value,
        "key serde": serde_text(store.key_serde),
        "value serde": serde_text(store.value_serde),
        "changelog": store.source_topic or ("its own" if store.logging else "none"),
        "time to live": "none" if store.ttl_ms is None else f"{store.ttl_ms} ms",
        "history": "none" if store.history_ms is None else f"{store.history_ms} ms",
        "medium": "memory" if store.persistent is False else "disk" if store.supplier is None else "the user's own",
    }
    if windows is not None:
        details["window size"] = f"{windows.span_ms} ms"
        details["segments"] = f"{windows.segment_ms} ms"
        details["retention"] = f"{windows.retention_ms} ms"
        details["duplicates"] = "kept" if windows.keeps_duplicates else "none"
    return details


def _repartitions(topology: Topology, subtopologies: Sequence[Subtopology], lineages: _Lineages) -> Mapping[str, Part]:
    metadata = topology.metadata("x") if subtopologies else None
    partitions = {
        topic.name.removeprefix("x-"): topic.partitions
        for sub in (metadata.subtopologies.values() if metadata else ())
        for topic in sub.repartition_sources.values()
    }
    parts: dict[str, Part] = {}
    for sub in subtopologies:
        for source in sub.sources:
            for topic in source.topics if source.is_internal else ():
                count = partitions.get(topic)
                details = {
                    "key serde": serde_text(source.key_serde),
                    "value serde": serde_text(source.value_serde),
                    "partitions": "as many as its input" if count is None else str(count),
                }
                parts[topic] = Part(topic, lineages.of(source.name), details, topology.where(source.name))
    return parts


def _global(topology: Topology, name: str) -> Part:
    store = topology.global_stores[name]
    topic = next(topic for topic, filled in topology.global_topics.items() if filled == name)
    details = {
        key: value
        for key, value in _store_details(store.builder).items()
        if key in ("kind", "key serde", "value serde")
    }
    lineage = Lineage(None, "", ("global", frozenset([topic])))
    return Part(name, lineage, {**details, "topic": topic}, topology.where(store.processor))


class _Lineages:
    """Lineages of nodes. A repartition topic has the lineage of its writers."""

    def __init__(self, topology: Topology) -> None:
        self._nodes = {node.name: node for node in topology.nodes}
        self._names = frozenset(self._nodes) | frozenset(topology.stores)
        self._sinks: dict[str, list[str]] = {}
        for node in topology.nodes:
            if isinstance(node, SinkNode) and node.is_internal and node.topic is not None:
                self._sinks.setdefault(node.topic, []).append(node.name)
                self._names |= {node.topic}
        self._known: dict[str, Lineage] = {}

    def of(self, name: str) -> Lineage:
        """Return the lineage of a node."""
        known = self._known.get(name)
        if known is None:
            self._known[name] = Lineage(None, "", ("", frozenset()))  # ends a cycle
            known = self._known[name] = self._made(name)
        return known

    def _made(self, name: str) -> Lineage:
        node = self._nodes[name]
        match node:
            case SourceNode():
                if node.is_internal:
                    above = [self.of(sink) for topic in node.topics for sink in self._sinks.get(topic, ())]
                    return self._join(_SOURCE_OPERATOR, "repartition", above, frozenset())
                topics = frozenset(node.topics or [f"pattern {node.pattern.pattern if node.pattern else ''}"])
                text = ",".join(sorted(topics))
                return Lineage(digest(text), digest(text), (_SOURCE_OPERATOR, topics))
            case ProcessorNode():
                kind = type(node.operator).__name__
                above = [self.of(parent) for parent in node.parents]
                return self._join(kind, fingerprint(node.operator, self._names), above, frozenset())
            case SinkNode():
                return self._join("sink", "sink", [self.of(parent) for parent in node.parents], frozenset())

    def _join(self, kind: str, exact: str, above: Sequence[Lineage], topics: frozenset[str]) -> Lineage:
        return Lineage(
            digest(exact, *(lineage.exact or "" for lineage in above)),
            digest(kind, *(lineage.kinds for lineage in above)),
            (kind, topics.union(*(lineage.origin[1] for lineage in above))),
        )
