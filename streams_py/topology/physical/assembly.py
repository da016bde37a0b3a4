"""The physical topology during assembly: nodes, stores, internal topics, and all their rules.

Both ways of describing a topology use it: the Processor API calls it directly, the DSL writes its optimised graph into
it. Insertion order is always kept, because sub-topology numbers follow it. Source: Kafka Streams'
``InternalTopologyBuilder``. Every broken rule is a :class:`TopologyError`, raised by the call that breaks it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from streams_py.errors import TopologyError
from streams_py.serdes import SerdeDefaults, serde_or_default
from streams_py.topology.declare.caller import locate, user_line
from streams_py.topology.declare.names import check_name
from streams_py.topology.declare.nodes import ProcessorNode, SinkNode, SourceNode
from streams_py.topology.declare.stores import StoreBuilder, StoreKind

Node: TypeAlias = SourceNode | ProcessorNode | SinkNode
Entry = TypeVar("Entry", SourceNode, SinkNode, StoreBuilder)


@dataclass(frozen=True, slots=True)
class GlobalStore:
    """A store that every process fills from all partitions of a topic.

    ``is_table``: the store has the latest value of each key of the topic. Otherwise the user's processor writes the
    store, also while it is restored.
    """

    source: str
    processor: str
    builder: StoreBuilder
    is_table: bool


class TopologyAssembly:
    """Nodes by name, stores by name, repartition topics, co-partition groups, in insertion order."""

    def __init__(self) -> None:
        self.where: str | None = None
        """Line of the program for the next added nodes; None: the line of the call that adds them."""
        self._lines: dict[str, str | None] = {}
        self._nodes: dict[str, Node] = {}
        self._stores: dict[str, StoreBuilder] = {}
        self._processors_of_store: dict[str, list[str]] = {}
        self._source_of_topic: dict[str, str] = {}
        self._patterns: dict[str, re.Pattern[str]] = {}
        self._repartitions: dict[str, int | None] = {}
        self._copartitions: list[frozenset[str]] = []
        self._copartitioned_by: list[str] = []
        self._global_stores: dict[str, GlobalStore] = {}

    # -- content -------------------------------------------------------------------------------------------------------

    @property
    def nodes(self) -> Mapping[str, Node]:
        """All nodes by name, in insertion order."""
        return self._nodes

    @property
    def stores(self) -> Mapping[str, StoreBuilder]:
        """All stores by name, in insertion order."""
        return self._stores

    @property
    def global_stores(self) -> Mapping[str, GlobalStore]:
        """The global ones of the stores, by name."""
        return {
            name: dataclasses.replace(store, builder=self._stores[name]) for name, store in self._global_stores.items()
        }

    @property
    def global_sources(self) -> frozenset[str]:
        """Names of the sources of global stores."""
        return frozenset(store.source for store in self._global_stores.values())

    @property
    def repartition_topics(self) -> Mapping[str, int | None]:
        """Number of partitions set by the user, or None, by short topic name."""
        return self._repartitions

    @property
    def copartitions(self) -> tuple[frozenset[str], ...]:
        """Declared sets of source node names whose topics need equal partition counts."""
        return tuple(self._copartitions)

    @property
    def copartitioned_by(self) -> tuple[str, ...]:
        """The node that requires each of the :attr:`copartitions`."""
        return tuple(self._copartitioned_by)

    def line_of(self, node: str) -> str | None:
        """Return the line of the user's program that added a node; None if it is unknown."""
        return self._lines.get(node)

    def processors_of(self, store: str) -> tuple[str, ...]:
        """Return the processors connected to a store, in the order in which they were connected."""
        return tuple(self._processors_of_store[store])

    # -- adding ----------------------------------------------------------------------------------------------

    def add_source(self, node: SourceNode) -> None:
        """Add a source. Each topic belongs to one source, by name or by pattern.

        Patterns never match internal topics.
        """
        self._check_new_node(node.name)
        if not node.topics and node.pattern is None:
            raise TopologyError(f"source {node.name!r} needs at least one topic or a pattern")
        for topic in node.topics:
            self._check_topic_is_free(topic, is_internal=node.is_internal)
        if node.pattern is not None:
            if node.pattern.flags != re.UNICODE:
                raise TopologyError(
                    f"pattern {node.pattern.pattern!r} of source {node.name!r} has flags; write them like (?i:...), "
                    "because all patterns are joined into one subscription"
                )
            for topic, source in self._source_of_topic.items():
                if node.pattern.fullmatch(topic) and not self._is_internal(source):
                    raise TopologyError(
                        f"pattern {node.pattern.pattern!r} matches topic {topic!r}, which is already read by "
                        f"{source!r}{self._at(source)}"
                    )
            self._patterns[node.name] = node.pattern
        self._source_of_topic.update(dict.fromkeys(node.topics, node.name))
        self._nodes[node.name] = node

    def add_processor(self, node: ProcessorNode) -> None:
        """Add a processor. Its stores must exist, unless they are connected later."""
        self._check_new_node(node.name)
        self._check_parents(node.name, node.parents)
        for store in node.stores:
            self._check_store(store, node.name)
        self._nodes[node.name] = dataclasses.replace(node, stores=())
        for store in node.stores:
            self.connect(node.name, store)

    def add_sink(self, node: SinkNode) -> None:
        """Add a sink, which writes to one topic or to the topics that a chooser returns."""
        self._check_new_node(node.name)
        if (node.topic is None) == (node.chooser is None):
            raise TopologyError(f"sink {node.name!r} needs a topic or a topic chooser")
        self._check_parents(node.name, node.parents)
        self._nodes[node.name] = node

    def add_store(self, builder: StoreBuilder, processors: Iterable[str] = ()) -> None:
        """Add a store and connect it. The same declaration object can be added again."""
        if self._stores.get(builder.name, builder) is not builder:
            raise TopologyError(
                f"store {builder.name!r} is declared twice{self._first_use_of(builder.name)}; share one declaration "
                "object, or use another name"
            )
        check_name(builder.name)
        self._stores[builder.name] = builder
        self._processors_of_store.setdefault(builder.name, [])
        for processor in processors:
            self.connect(processor, builder.name)

    def add_global_store(
        self, source: SourceNode, processor: ProcessorNode, builder: StoreBuilder, *, is_table: bool
    ) -> None:
        """Add a global store with its source and its processor.

        It has no changelog other than its topic.
        """
        if builder.logging:
            raise TopologyError(f"global store {builder.name!r} must not be logged: set logging=False")
        if builder.kind in (StoreKind.SESSION, StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW) and is_table:
            raise TopologyError(f"global table {builder.name!r} cannot be kept in a {builder.kind.value} store")
        if builder.name in self._stores:
            raise TopologyError(
                f"store {builder.name!r} is declared twice{self._first_use_of(builder.name)}; use another name for the "
                "global one"
            )
        self._check_new_node(processor.name)
        self.add_source(dataclasses.replace(source, is_global=True))
        self.add_processor(processor)
        self.add_store(builder, [processor.name])
        self._global_stores[builder.name] = GlobalStore(source.name, processor.name, builder, is_table)

    def connect(self, processor: str, store: str) -> None:
        """Connect a processor to a store. Connected processors are in the same sub-topology."""
        self._check_store(store, processor)
        node = self._nodes.get(processor)
        if node is None:
            raise TopologyError(f"processor {processor!r} is not added yet; add it before connecting store {store!r}")
        if not isinstance(node, ProcessorNode):
            raise TopologyError(f"store {store!r} cannot be connected to {processor!r}: only processors have stores")
        self._check_global(processor, store)
        if store not in node.stores:
            self._nodes[processor] = dataclasses.replace(node, stores=(*node.stores, store))
            self._processors_of_store[store].append(processor)

    def add_repartition_topic(self, topic: str, partitions: int | None = None) -> None:
        """Declare an internal topic (short name).

        If ``partitions`` is None, the group leader derives the number.
        """
        if topic in self._repartitions:
            sinks = [node.name for node in self._nodes.values() if isinstance(node, SinkNode) and node.topic == topic]
            at = self._at(sinks[0]) if sinks else ""
            raise TopologyError(
                f"internal topic {topic!r} is declared twice{at and f', first{at}'}; give one of the two operations "
                "another name"
            )
        self._repartitions[topic] = partitions

    def add_copartition_group(self, sources: Iterable[str], node: str) -> None:
        """Declare that ``node`` joins the topics of these source nodes by partition number.

        The source nodes must exist. If the user set the number of partitions of all of them, it must be the same.
        """
        group = frozenset(sources)
        read = [known for source in group if isinstance(known := self._nodes.get(source), SourceNode)]
        counts = {topic: self._repartitions.get(topic) for known in read for topic in known.topics}
        if len(set(counts.values())) > 1 and None not in counts.values():
            listed = ", ".join(f"{topic} ({count})" for topic, count in sorted(counts.items()))
            error = TopologyError(
                f"{node!r} joins repartition topics with different numbers of partitions: {listed}; set the same "
                "number for all of them"
            )
            locate(error, self._lines.get(node))
            raise error
        self._copartitions.append(group)
        self._copartitioned_by.append(node)

    def use_default_serdes(self, defaults: SerdeDefaults) -> None:
        """Set these serdes where no serde was set; where they are None, the configured ones are used."""

        def filled(entry: Entry) -> Entry:
            return dataclasses.replace(
                entry,
                key_serde=serde_or_default(entry.key_serde, defaults, is_key=True),
                value_serde=serde_or_default(entry.value_serde, defaults, is_key=False),
            )

        for name, node in self._nodes.items():
            match node:
                case SourceNode() as source:
                    self._nodes[name] = filled(source)
                case SinkNode() as sink:
                    self._nodes[name] = filled(sink)
                case ProcessorNode():
                    pass
        self._stores = {name: filled(store) for name, store in self._stores.items()}

    # -- rules -----------------------------------------------------------------------------------------------

    def _check_new_node(self, name: str) -> None:
        if not name:
            raise TopologyError("a node needs a name")
        if name in self._nodes:
            at = self._at(name)
            raise TopologyError(f"node {name!r} is added twice{at and f', first{at}'}; node names must be unique")
        self._lines[name] = self.where or user_line()

    def _is_internal(self, source: str) -> bool:
        node = self._nodes[source]
        return isinstance(node, SourceNode) and node.is_internal

    def _check_topic_is_free(self, topic: str, *, is_internal: bool) -> None:
        if topic in self._source_of_topic:
            source = self._source_of_topic[topic]
            raise TopologyError(f"topic {topic!r} is already read by source {source!r}{self._at(source)}")
        for source, pattern in self._patterns.items():
            if not is_internal and pattern.fullmatch(topic):
                raise TopologyError(
                    f"topic {topic!r} is already read by {source!r}{self._at(source)}: {pattern.pattern!r} matches it"
                )

    def _at(self, node: str) -> str:
        """Return `` at file:line`` for a node."""
        line = self._lines.get(node)
        return "" if line is None else f" at {line}"

    def _first_use_of(self, store: str) -> str:
        user = next(iter(self._processors_of_store[store]), None)
        return "" if user is None else f", first for {user!r}{self._at(user)}"

    def _check_store(self, store: str, processor: str) -> None:
        if store not in self._stores:
            raise TopologyError(f"store {store!r} is not added yet; add it before connecting {processor!r} to it")

    def _check_global(self, processor: str, store: str) -> None:
        if store in self._global_stores:
            raise TopologyError(
                f"global store {store!r} cannot be connected to {processor!r}: every processor can read it without "
                "that, and only its own processor may write it"
            )
        if processor in {found.processor for found in self._global_stores.values()}:
            raise TopologyError(f"store {store!r} cannot be connected to {processor!r}, which fills a global store")

    def _check_parents(self, name: str, parents: tuple[str, ...]) -> None:
        if not parents:
            raise TopologyError(f"node {name!r} needs at least one parent")
        for parent in parents:
            if parent not in self._nodes:
                raise TopologyError(f"parent {parent!r} of node {name!r} is not added yet; add parents first")
            if isinstance(self._nodes[parent], SinkNode):
                raise TopologyError(f"sink {parent!r} cannot be the parent of {name!r}: sinks have no children")
