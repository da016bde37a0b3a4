"""Topology: the topics to read, the processing, the topics to write.

It is the result of the DSL, or built node by node:

topology = Topology()
topology.add_source("words", "in", key=serdes.string, value=serdes.string)
topology.add_processor("upper", Upper, "words")
topology.add_sink("out", "out", "upper", key=serdes.string, value=serdes.string)
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any

from streams_py.errors import TopologyError
from streams_py.serdes import Serde
from streams_py.topology.declare.checks import checked
from streams_py.topology.declare.names import (
    changelog_topic,
    full_topic_name,
    internal_topics,
    names_of,
    topic_on_broker,
)
from streams_py.topology.declare.nodes import (
    Partitioner,
    ProcessorNode,
    ResetPolicy,
    SinkNode,
    SourceNode,
    TimestampExtractor,
    TopicChooser,
)
from streams_py.topology.declare.processor import ProcessorSupplier, RecordFunction
from streams_py.topology.declare.stores import StoreBuilder
from streams_py.topology.operators.processors import ProcessorOperator, stores_of_supplier
from streams_py.topology.physical.assembly import GlobalStore, Node, TopologyAssembly
from streams_py.topology.physical.describe import describe
from streams_py.topology.physical.internal_topics import matched_topics, topology_metadata
from streams_py.topology.physical.metadata import TopologyMetadata
from streams_py.topology.physical.pictures import to_dot, to_mermaid, to_svg
from streams_py.topology.physical.subtopologies import Subtopology, subtopologies_of

__all__ = ["Topology"]


@checked
class Topology:
    """Nodes and stores, grouped into numbered sub-topologies (Kafka Streams' ``Topology``).

    The ``add_`` methods return the topology itself. They raise :class:`TopologyError` immediately when a rule is
    broken.
    """

    def __init__(self) -> None:
        self._assembly = TopologyAssembly()

    @classmethod
    def from_assembly(cls, assembly: TopologyAssembly) -> Topology:
        """Return the topology that the DSL wrote."""
        topology = cls()
        topology._assembly = assembly
        return topology

    # -- building --------------------------------------------------------------------------------------------

    def add_source(
        self,
        name: str,
        topics: str | Iterable[str] | re.Pattern[str],
        *,
        key: Serde[Any] | None = None,
        value: Serde[Any] | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
        reset_policy: ResetPolicy | None = None,
    ) -> Topology:
        """Read topics, or all topics whose whole name matches a pattern.

        Serdes that are not set are the configured defaults.
        """
        names, pattern = _topics_or_pattern(topics)
        self._assembly.add_source(SourceNode(name, names, pattern, key, value, timestamp_extractor, reset_policy))
        return self

    def add_processor(
        self,
        name: str,
        supplier: ProcessorSupplier[Any, Any, Any, Any] | RecordFunction[Any, Any, Any, Any],
        parents: str | Iterable[str],
        *,
        stores: Iterable[str] = (),
    ) -> Topology:
        """Run a processor below ``parents``.

        ``supplier`` is called once per task and returns a new processor each time. Or it is a function of a record and
        a context that yields the records to forward. The stores of a supplier with a method ``stores()`` are added and
        connected, too.
        """
        operator = ProcessorOperator(supplier)
        brought = stores_of_supplier(supplier)
        for builder in brought:
            self._assembly.add_store(builder)
        connected = (*names_of(stores), *(builder.name for builder in brought))
        self._assembly.add_processor(ProcessorNode(name, names_of(parents), operator, connected))
        return self

    def add_sink(
        self,
        name: str,
        topic: str | TopicChooser,
        parents: str | Iterable[str],
        *,
        key: Serde[Any] | None = None,
        value: Serde[Any] | None = None,
        partitioner: Partitioner | None = None,
    ) -> Topology:
        """Write the records of ``parents`` to a topic.

        ``topic`` is a name, or a function that returns it: ``topic(key, value, record context)``. Without a
        ``partitioner`` the whole key determines the partition, even if it is windowed (unlike ``KStream.to``).
        """
        fixed, chooser = (topic, None) if isinstance(topic, str) else (None, topic)
        self._assembly.add_sink(SinkNode(name, names_of(parents), fixed, chooser, key, value, partitioner))
        return self

    def add_global_store(
        self,
        builder: StoreBuilder,
        source: str,
        topic: str,
        processor: str,
        supplier: ProcessorSupplier[Any, Any, Any, Any] | RecordFunction[Any, Any, Any, Any],
        *,
        key: Serde[Any] | None = None,
        value: Serde[Any] | None = None,
    ) -> Topology:
        """Fill a store in every process from all partitions of ``topic``.

        All other processors can read the store. ``source`` and ``processor`` are the names of the two nodes.
        ``supplier`` returns the processor that writes the store. It gets every record of the topic with the record's
        timestamp, at each start from the beginning or from the position of the files. ``builder`` must have
        ``logging=False``, because the topic is the changelog.
        """
        node = SourceNode(source, (topic,), None, key, value)
        operator = ProcessorOperator(supplier)
        self._assembly.add_global_store(node, ProcessorNode(processor, (source,), operator), builder, is_table=False)
        return self

    def add_read_only_state_store(
        self,
        builder: StoreBuilder,
        source: str,
        topic: str,
        processor: str,
        supplier: ProcessorSupplier[Any, Any, Any, Any] | RecordFunction[Any, Any, Any, Any],
        *,
        key: Serde[Any] | None = None,
        value: Serde[Any] | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
    ) -> Topology:
        """Keep a topic in a store that uses the topic as its changelog (KIP-813).

        ``source`` and ``processor`` are the names of the two nodes. ``supplier`` returns the processor that writes the
        store. It must store the records unchanged, because a restore does the same. The topic is read from its
        beginning. Connect the processors that read the store with :meth:`connect_processor_and_state_stores`.
        ``builder`` must have ``logging=False`` and no record cache.
        """
        if builder.logging:
            raise TopologyError(f"read-only store {builder.name!r} must not be logged: set logging=False")
        if builder.windows is not None:
            raise TopologyError(f"read-only store {builder.name!r} cannot be a {builder.kind.value} store")
        node = SourceNode(source, (topic,), None, key, value, timestamp_extractor, ResetPolicy.EARLIEST)
        self._assembly.add_source(node)
        self._assembly.add_processor(ProcessorNode(processor, (source,), ProcessorOperator(supplier)))
        self._assembly.add_store(dataclasses.replace(builder, source_topic=topic), [processor])
        return self

    def add_state_store(self, builder: StoreBuilder, processors: str | Iterable[str] = ()) -> Topology:
        """Add a store and connect it to existing processors."""
        self._assembly.add_store(builder, names_of(processors))
        return self

    def connect_processor_and_state_stores(self, processor: str, stores: str | Iterable[str]) -> Topology:
        """Connect a processor to existing stores."""
        for store in names_of(stores):
            self._assembly.connect(processor, store)
        return self

    # -- reading ---------------------------------------------------------------------------------------------

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes in insertion order."""
        return tuple(self._assembly.nodes.values())

    @property
    def stores(self) -> Mapping[str, StoreBuilder]:
        """All stores by name."""
        return dict(self._assembly.stores)

    def where(self, node: str) -> str | None:
        """Return the line of the program that described a node, as ``file:line``, or None."""
        return self._assembly.line_of(node)

    def processors_of(self, store: str) -> tuple[str, ...]:
        """Return the processors connected to a store, in the order in which they were connected."""
        return self._assembly.processors_of(store)

    @property
    def global_stores(self) -> Mapping[str, GlobalStore]:
        """The global ones of the stores, by name."""
        return self._assembly.global_stores

    @property
    def global_topics(self) -> Mapping[str, str]:
        """The global store of each global topic."""
        sources = {node.name: node for node in self.nodes if isinstance(node, SourceNode)}
        return {sources[store.source].topics[0]: name for name, store in self.global_stores.items()}

    @property
    def has_patterns(self) -> bool:
        """Whether a source reads by pattern; then the subscription is a regular expression."""
        return any(isinstance(node, SourceNode) and node.pattern is not None for node in self.nodes)

    def subtopologies(self) -> tuple[Subtopology, ...]:
        """Return all sub-topologies by id, from 0."""
        return subtopologies_of(self._assembly)

    def subtopology(self, id: int) -> Subtopology:
        """Return one sub-topology. Raises TopologyError if it does not exist."""
        known = self.subtopologies()
        if not 0 <= id < len(known):
            raise TopologyError(f"sub-topology {id} does not exist; this topology has {len(known)}")
        return known[id]

    def describe(self) -> str:
        """Return the text form, comparable with Kafka Streams': nodes, topics and stores."""
        return describe(self.subtopologies())

    def to_svg(self) -> str:
        """Return a picture of the sub-topologies with their processors, stores and topics."""
        return to_svg(self.subtopologies())

    def to_mermaid(self) -> str:
        """Return the picture as a Mermaid flowchart, for Markdown."""
        return to_mermaid(self.subtopologies())

    def to_dot(self) -> str:
        """Return the picture as a Graphviz graph."""
        return to_dot(self.subtopologies())

    def _repr_html_(self) -> str:
        """Return the HTML that a notebook shows."""
        return f'<div style="overflow:auto">{self.to_svg()}</div>'

    def __repr__(self) -> str:
        """Return the description."""
        return self.describe() if self.nodes else "an empty topology"

    def metadata(
        self, application_id: str, config: Mapping[str, object] | None = None, *, available_topics: Iterable[str] = ()
    ) -> TopologyMetadata:
        """Return full names and configurations of the topics, and the co-partition groups.

        The only keys that are read from ``config`` start with ``topic.``: settings for all internal topics. Pattern
        sources choose from ``available_topics``.

        Raises:
            TopologyError: the topology is empty.
        """
        subtopologies = self.subtopologies()
        if not subtopologies:
            raise TopologyError("the topology is empty: add a source (or read a stream or table) before starting it")
        return topology_metadata(self._assembly, subtopologies, application_id, config or {}, available_topics)

    def source_topics(
        self, application_id: str, *, available_topics: Iterable[str] = ()
    ) -> Mapping[str, tuple[str, ...]]:
        """Map each source node to the full names of its topics.

        Pattern sources choose from ``available_topics``. Sources of global stores are not included, because no task
        reads their topics.
        """
        topics: dict[str, tuple[str, ...]] = {}
        matched = matched_topics(self._assembly, application_id, available_topics)
        for node in self.nodes:
            if isinstance(node, SourceNode) and node.name not in self._assembly.global_sources:
                own = matched[node.name] if node.pattern is not None else node.topics
                topics[node.name] = tuple(
                    topic_on_broker(application_id, topic, is_internal=node.is_internal) for topic in own
                )
        return topics

    def subscription(self, application_id: str) -> tuple[str, ...] | re.Pattern[str]:
        """Return the consumer's subscription: sorted full topic names, or one regular expression.

        It is an expression if there are patterns. Patterns do not match internal topics.
        """
        sources = [node for node in self.nodes if isinstance(node, SourceNode)]
        exact = sorted({topic for topics in self.source_topics(application_id).values() for topic in topics})
        patterns = "|".join(node.pattern.pattern for node in sources if node.pattern is not None)
        if not self.has_patterns:
            return tuple(exact)
        matched = rf"(?!(?:{internal_topics(application_id).pattern})\Z)(?:{patterns})"
        # Anchored, because a Kafka client may only check whether a topic name *starts* with a match.
        return re.compile(rf"(?:{'|'.join([*map(re.escape, exact), matched])})\Z")

    def changelog_topic(self, store: str, application_id: str) -> str:
        """Return the full name of a store's changelog, even if it is not logged.

        Serdes get this topic name.
        """
        builder = self._assembly.stores[store]
        return builder.source_topic or full_topic_name(application_id, changelog_topic(store))


def _topics_or_pattern(topics: str | Iterable[str] | re.Pattern[str]) -> tuple[tuple[str, ...], re.Pattern[str] | None]:
    return ((), topics) if isinstance(topics, re.Pattern) else (names_of(topics), None)
