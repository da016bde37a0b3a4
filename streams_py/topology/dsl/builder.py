"""The start of every DSL program."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, overload

from streams_py.errors import TopologyError
from streams_py.serdes import Serde
from streams_py.topology.assembly import TopologyAssembly
from streams_py.topology.dsl.kstream import KStream
from streams_py.topology.dsl.ktable import KTable
from streams_py.topology.dsl.options import Consumed, Materialized, either, materialized_or_none
from streams_py.topology.dsl.place import Place
from streams_py.topology.graph import LogicalGraph, SourceStep, StoreStep, TableSourceStep
from streams_py.topology.names import Prefix, name_or_generate, suffixed_or_generate
from streams_py.topology.nodes import ResetPolicy, SourceNode, TimestampExtractor
from streams_py.topology.operators.tables import TableSource
from streams_py.topology.optimise import optimise, optimizations_in
from streams_py.topology.stores import StoreBuilder
from streams_py.topology.topology import Topology

__all__ = ["StreamsBuilder"]

K = TypeVar("K")
V = TypeVar("V")


class StreamsBuilder:
    """Describes a topology by streams and tables (Kafka Streams' ``StreamsBuilder``).

        builder = StreamsBuilder()
        lines = builder.stream("lines", key=serdes.STRING, value=serdes.STRING)
        words = lines.flat_map_values(str.split)
        grouped = words.group_by(lambda key, word: word, key=serdes.STRING, value=serdes.STRING)
        grouped.count(store="counts").to_stream().to("counts")
        topology = builder.build()

    Names of nodes, stores and internal topics depend on the order of the calls.
    """

    def __init__(self) -> None:
        self._graph = LogicalGraph()
        self._built: tuple[frozenset[str], Topology] | None = None

    @overload
    def stream(
        self,
        topics: str | Iterable[str] | re.Pattern[str],
        *,
        key: Serde[K],
        value: Serde[V],
        timestamp_extractor: TimestampExtractor | None = None,
        reset_policy: ResetPolicy | None = None,
        name: str | None = None,
    ) -> KStream[K, V]: ...
    @overload
    def stream(self, topics: str | Iterable[str] | re.Pattern[str], *, consumed: Consumed[K, V]) -> KStream[K, V]: ...
    @overload
    def stream(
        self,
        topics: str | Iterable[str] | re.Pattern[str],
        *,
        value: Serde[V],
        timestamp_extractor: TimestampExtractor | None = None,
        reset_policy: ResetPolicy | None = None,
        name: str | None = None,
    ) -> KStream[Any, V]: ...
    @overload
    def stream(
        self,
        topics: str | Iterable[str] | re.Pattern[str],
        *,
        key: Serde[K],
        timestamp_extractor: TimestampExtractor | None = None,
        reset_policy: ResetPolicy | None = None,
        name: str | None = None,
    ) -> KStream[K, Any]: ...
    @overload
    def stream(
        self,
        topics: str | Iterable[str] | re.Pattern[str],
        *,
        timestamp_extractor: TimestampExtractor | None = None,
        reset_policy: ResetPolicy | None = None,
        name: str | None = None,
    ) -> KStream[Any, Any]: ...
    def stream(
        self,
        topics: str | Iterable[str] | re.Pattern[str],
        *,
        key: Serde[Any] | None = None,
        value: Serde[Any] | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
        reset_policy: ResetPolicy | None = None,
        name: str | None = None,
        consumed: Consumed[Any, Any] | None = None,
    ) -> KStream[Any, Any]:
        """Read topics, or all topics whose whole name matches a pattern. Serdes left out: the configured defaults.

        Streams of the same topics share one source. TopologyError at ``build`` if sets of topics overlap otherwise.
        """
        options = _consumed(consumed, key, value, timestamp_extractor, reset_policy, name)
        source_name = name_or_generate(options.name, self._graph.index, Prefix.SOURCE)
        if isinstance(topics, re.Pattern):
            source = _source(source_name, (), topics, options)
        else:
            names = (topics,) if isinstance(topics, str) else tuple(dict.fromkeys(topics))
            if not names:
                raise TopologyError("a stream needs at least one topic or a pattern")
            source = _source(source_name, names, None, options)
        return KStream(self._start(SourceStep(source), source_name, options.key, options.value))

    @overload
    def table(
        self,
        topic: str,
        *,
        key: Serde[K],
        value: Serde[V],
        store: str | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
        reset_policy: ResetPolicy | None = None,
        name: str | None = None,
        materialized: Materialized[K, V] | None = None,
    ) -> KTable[K, V]: ...
    @overload
    def table(
        self,
        topic: str,
        *,
        consumed: Consumed[K, V],
        store: str | None = None,
        materialized: Materialized[K, V] | None = None,
    ) -> KTable[K, V]: ...
    @overload
    def table(
        self,
        topic: str,
        *,
        materialized: Materialized[K, V],
        timestamp_extractor: TimestampExtractor | None = None,
        reset_policy: ResetPolicy | None = None,
        name: str | None = None,
    ) -> KTable[K, V]: ...
    @overload
    def table(
        self,
        topic: str,
        *,
        store: str | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
        reset_policy: ResetPolicy | None = None,
        name: str | None = None,
    ) -> KTable[Any, Any]: ...
    def table(
        self,
        topic: str,
        *,
        key: Serde[Any] | None = None,
        value: Serde[Any] | None = None,
        store: str | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
        reset_policy: ResetPolicy | None = None,
        name: str | None = None,
        consumed: Consumed[Any, Any] | None = None,
        materialized: Materialized[Any, Any] | None = None,
    ) -> KTable[Any, Any]:
        """Read a topic as a table: the latest value of each key, None deletes; records with a null key are dropped.

        Stored under ``store`` if given, else only if an operation below needs it.
        """
        index = self._graph.index
        stored = materialized_or_none(materialized, store) or Materialized()
        options = _consumed(consumed, key, value, timestamp_extractor, reset_policy, name)
        store_name = stored.store or index.store_name(f"{topic}-")
        source_name = suffixed_or_generate(options.name, "-source", index, Prefix.SOURCE)
        node_name = name_or_generate(options.name, index, Prefix.TABLE_SOURCE)
        key_serde, value_serde = options.key or stored.key, options.value or stored.value
        source = _source(
            source_name,
            (topic,),
            None,
            Consumed(
                key=key_serde,
                value=value_serde,
                timestamp_extractor=options.timestamp_extractor,
                reset_policy=options.reset_policy,
            ),
        )
        operator = TableSource(store_name, is_stored=stored.store is not None)
        step = TableSourceStep(node_name, source, operator, stored.builder(store_name, key_serde, value_serde))
        return KTable(self._start(step, source_name, key_serde, value_serde), operator, stored.store)

    def add_state_store(self, store: StoreBuilder) -> StreamsBuilder:
        """Add a store that processors connect to by name (``KStream.process``)."""
        self._graph.attach(StoreStep(store), self._graph.root)
        return self

    def build(self, config: Mapping[str, object] | None = None) -> Topology:
        """The topology. Of ``config`` only ``topology.optimization`` matters, and only if it is given *here*.

        The first call ends the description. Later ones give the same topology.
        """
        wanted = optimizations_in(config)
        if self._built is None:
            self._graph.close()
            optimise(self._graph, wanted)
            assembly = TopologyAssembly()
            self._graph.write(assembly)
            self._built = (wanted, Topology.from_assembly(assembly))
        if self._built[0] != wanted:
            raise TopologyError("the topology is built already, with another topology.optimization")
        return self._built[1]

    def _start(
        self, step: SourceStep | TableSourceStep, source: str, key: Serde[Any] | None, value: Serde[Any] | None
    ) -> Place:
        self._graph.attach(step, self._graph.root)
        return Place(self._graph, step, key, value, frozenset({source}))


def _consumed(
    consumed: Consumed[Any, Any] | None,
    key: Serde[Any] | None,
    value: Serde[Any] | None,
    timestamp_extractor: TimestampExtractor | None,
    reset_policy: ResetPolicy | None,
    name: str | None,
) -> Consumed[Any, Any]:
    keywords = {
        "key": key,
        "value": value,
        "timestamp_extractor": timestamp_extractor,
        "reset_policy": reset_policy,
        "name": name,
    }

    def make() -> Consumed[Any, Any]:
        return Consumed(
            key=key, value=value, timestamp_extractor=timestamp_extractor, reset_policy=reset_policy, name=name
        )

    return either(consumed, keywords, make, "consumed")


def _source(
    name: str, topics: tuple[str, ...], pattern: re.Pattern[str] | None, options: Consumed[Any, Any]
) -> SourceNode:
    return SourceNode(
        name, topics, pattern, options.key, options.value, options.timestamp_extractor, options.reset_policy
    )
