"""StreamsBuilder, the start of every DSL program."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, overload

from streams_py.errors import TopologyError
from streams_py.serdes import Serde, SerdeDefaults
from streams_py.topology.declare.checks import checked
from streams_py.topology.declare.names import Prefix, name_or_generate, names_of, suffixed_or_generate
from streams_py.topology.declare.nodes import ResetPolicy, SourceNode, TimestampExtractor
from streams_py.topology.declare.processor import ProcessorSupplier, RecordFunction
from streams_py.topology.declare.stores import StoreBuilder
from streams_py.topology.dsl.global_table import GlobalKTable
from streams_py.topology.dsl.kstream import KStream
from streams_py.topology.dsl.ktable import KTable
from streams_py.topology.dsl.options import Materialized, materialized_or_none
from streams_py.topology.dsl.place import Place
from streams_py.topology.logical.graph import GlobalStoreStep, LogicalGraph, SourceStep, StoreStep, TableSourceStep
from streams_py.topology.logical.optimise import optimise, optimizations_in
from streams_py.topology.operators.processors import ProcessorOperator
from streams_py.topology.operators.tables import TableSource
from streams_py.topology.physical.assembly import TopologyAssembly
from streams_py.topology.topology import Topology

__all__ = ["StreamsBuilder"]

if TYPE_CHECKING:
    # A builder without serdes is a plain StreamsBuilder, also in annotations (PEP 696, Python 3.13).
    from typing_extensions import TypeVar

    DefaultKey = TypeVar("DefaultKey", default=Any)
    DefaultValue = TypeVar("DefaultValue", default=Any)
else:
    from typing import TypeVar

    DefaultKey = TypeVar("DefaultKey")
    DefaultValue = TypeVar("DefaultValue")

K = TypeVar("K")
V = TypeVar("V")


@checked
class StreamsBuilder(Generic[DefaultKey, DefaultValue]):
    """Describes a topology with streams and tables (Kafka Streams' ``StreamsBuilder``).

        builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
        words = builder.stream("lines").flat_map_values(str.split).group_by(lambda key, word: word)
        words.count(store="counts").to_stream().to("counts")
        topology = builder.build()

    ``key`` and ``value`` are the serdes of all operations that do not set a serde and cannot take it from the previous
    operation. Without them, ``default.key.serde`` and ``default.value.serde`` of the configuration are used. Names of
    nodes, stores and internal topics depend on the order of the calls.
    """

    @overload
    def __init__(self: StreamsBuilder[Any, Any]) -> None: ...
    @overload
    def __init__(self: StreamsBuilder[K, V], *, key: Serde[K], value: Serde[V]) -> None: ...
    @overload
    def __init__(self: StreamsBuilder[K, Any], *, key: Serde[K]) -> None: ...
    @overload
    def __init__(self: StreamsBuilder[Any, V], *, value: Serde[V]) -> None: ...
    def __init__(self, *, key: Serde[Any] | None = None, value: Serde[Any] | None = None) -> None:
        self._graph = LogicalGraph(SerdeDefaults(key, value))
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
    def stream(
        self,
        topics: str | Iterable[str] | re.Pattern[str],
        *,
        value: Serde[V],
        timestamp_extractor: TimestampExtractor | None = None,
        reset_policy: ResetPolicy | None = None,
        name: str | None = None,
    ) -> KStream[DefaultKey, V]: ...
    @overload
    def stream(
        self,
        topics: str | Iterable[str] | re.Pattern[str],
        *,
        key: Serde[K],
        timestamp_extractor: TimestampExtractor | None = None,
        reset_policy: ResetPolicy | None = None,
        name: str | None = None,
    ) -> KStream[K, DefaultValue]: ...
    @overload
    def stream(
        self,
        topics: str | Iterable[str] | re.Pattern[str],
        *,
        timestamp_extractor: TimestampExtractor | None = None,
        reset_policy: ResetPolicy | None = None,
        name: str | None = None,
    ) -> KStream[DefaultKey, DefaultValue]: ...
    def stream(
        self,
        topics: str | Iterable[str] | re.Pattern[str],
        *,
        key: Serde[Any] | None = None,
        value: Serde[Any] | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
        reset_policy: ResetPolicy | None = None,
        name: str | None = None,
    ) -> KStream[Any, Any]:
        """Read topics, or all topics whose whole name matches a pattern.

        Serdes that are not set are the default serdes. Streams of the same topics share one source. If sets of topics
        overlap in any other way, ``build`` raises TopologyError.
        """
        pattern = topics if isinstance(topics, re.Pattern) else None
        exact = () if isinstance(topics, re.Pattern) else names_of(topics)
        if pattern is None and not exact:
            raise TopologyError("a stream needs at least one topic or a pattern")
        source_name = name_or_generate(name, self._graph.index, Prefix.SOURCE)
        source = SourceNode(source_name, exact, pattern, key, value, timestamp_extractor, reset_policy)
        return KStream(self._start(SourceStep(source), source_name, key, value))

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
        value: Serde[V],
        store: str | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
        reset_policy: ResetPolicy | None = None,
        name: str | None = None,
        materialized: Materialized[DefaultKey, V] | None = None,
    ) -> KTable[DefaultKey, V]: ...
    @overload
    def table(
        self,
        topic: str,
        *,
        key: Serde[K],
        store: str | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
        reset_policy: ResetPolicy | None = None,
        name: str | None = None,
        materialized: Materialized[K, DefaultValue] | None = None,
    ) -> KTable[K, DefaultValue]: ...
    @overload
    def table(
        self,
        topic: str,
        *,
        store: str | None = None,
        timestamp_extractor: TimestampExtractor | None = None,
        reset_policy: ResetPolicy | None = None,
        name: str | None = None,
    ) -> KTable[DefaultKey, DefaultValue]: ...
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
        materialized: Materialized[Any, Any] | None = None,
    ) -> KTable[Any, Any]:
        """Read a topic as a table: the latest value of each key, where None deletes the key.

        Records with a null key are dropped. The table is stored under the name ``store`` if it is set, otherwise only
        if a later operation needs it.
        """
        index = self._graph.index
        stored = materialized_or_none(materialized, store) or Materialized()
        store_name = stored.store or index.store_name(f"{topic}-")
        source_name = suffixed_or_generate(name, "-source", index, Prefix.SOURCE)
        node_name = name_or_generate(name, index, Prefix.TABLE_SOURCE)
        key, value = key or stored.key, value or stored.value
        stored = dataclasses.replace(stored, key=key, value=value)  # the topic's serdes, even if the store sets others
        source = SourceNode(source_name, (topic,), None, key, value, timestamp_extractor, reset_policy)
        operator = TableSource(store_name, is_stored=stored.store is not None)
        step = TableSourceStep(node_name, source, operator, stored.builder(store_name, key, value))
        return KTable(self._start(step, source_name, key, value), operator, stored.store)

    @overload
    def global_table(
        self, topic: str, *, key: Serde[K], value: Serde[V], store: str | None = None, name: str | None = None
    ) -> GlobalKTable[K, V]: ...
    @overload
    def global_table(
        self, topic: str, *, materialized: Materialized[K, V], name: str | None = None
    ) -> GlobalKTable[K, V]: ...
    @overload
    def global_table(
        self, topic: str, *, value: Serde[V], store: str | None = None, name: str | None = None
    ) -> GlobalKTable[DefaultKey, V]: ...
    @overload
    def global_table(
        self, topic: str, *, key: Serde[K], store: str | None = None, name: str | None = None
    ) -> GlobalKTable[K, DefaultValue]: ...
    @overload
    def global_table(
        self, topic: str, *, store: str | None = None, name: str | None = None
    ) -> GlobalKTable[DefaultKey, DefaultValue]: ...
    def global_table(
        self,
        topic: str,
        *,
        key: Serde[Any] | None = None,
        value: Serde[Any] | None = None,
        store: str | None = None,
        name: str | None = None,
        materialized: Materialized[Any, Any] | None = None,
    ) -> GlobalKTable[Any, Any]:
        """Read all partitions of a topic as a table, in every process.

        The table is complete before the first record is processed. It is always stored, under the name ``store`` if it
        is set. It has the timestamps of the records, whatever extractor is configured. It has a sub-topology number,
        but no tasks.
        """
        index = self._graph.index
        stored = materialized_or_none(materialized, store) or Materialized()
        store_name = stored.store or index.store_name(f"{topic}-")
        source_name = suffixed_or_generate(name, "-source", index, Prefix.SOURCE)
        node_name = name_or_generate(name, index, Prefix.TABLE_SOURCE)
        key, value = key or stored.key, value or stored.value
        stored = dataclasses.replace(stored, key=key, value=value)  # the topic's serdes, even if the store sets others
        source = SourceNode(source_name, (topic,), None, key, value)
        builder = stored.builder(store_name, key, value)
        if builder.history_ms is not None:
            raise TopologyError(f"global table of topic {topic!r}: a global table has no history; remove the history")
        operator = TableSource(store_name, is_stored=True)
        self._graph.attach(GlobalStoreStep(node_name, source, operator, builder, is_table=True), self._graph.root)
        return GlobalKTable(self._graph, store_name, stored.store)

    def add_global_store(
        self,
        store: StoreBuilder,
        topic: str,
        supplier: ProcessorSupplier[Any, Any, Any, Any] | RecordFunction[Any, Any, Any, Any],
        *,
        key: Serde[Any] | None = None,
        value: Serde[Any] | None = None,
        name: str | None = None,
    ) -> StreamsBuilder[DefaultKey, DefaultValue]:
        """Fill a store in every process from all partitions of ``topic``.

        All processors can read the store by its name. The processor that ``supplier`` returns, or a function of a
        record and a context, writes the store. It gets every record of the topic with the record's timestamp. At each
        start it first gets the records that the store does not have yet, before anything else runs.
        """
        index = self._graph.index
        source_name = suffixed_or_generate(name, "-source", index, Prefix.SOURCE)
        node_name = name_or_generate(name, index, Prefix.TABLE_SOURCE)
        source = SourceNode(source_name, (topic,), None, key, value)
        step = GlobalStoreStep(node_name, source, ProcessorOperator(supplier), store, is_table=False)
        self._graph.attach(step, self._graph.root)
        return self

    def add_state_store(self, store: StoreBuilder) -> StreamsBuilder[DefaultKey, DefaultValue]:
        """Add a store that processors can connect to by name (``KStream.process``)."""
        self._graph.attach(StoreStep(store), self._graph.root)
        return self

    def build(self, config: Mapping[str, object] | None = None) -> Topology:
        """Return the topology.

        The only setting that is read from ``config`` is ``topology.optimization``, and it has an effect only if it is
        passed *here*. The first call ends the description. Later calls return the same topology.
        """
        wanted = optimizations_in(config)
        if self._built is None:
            self._graph.close()
            optimise(self._graph, wanted)
            assembly = TopologyAssembly()
            self._graph.write(assembly)
            assembly.use_default_serdes(self._graph.defaults)
            self._built = (wanted, Topology.from_assembly(assembly))
        if self._built[0] != wanted:
            raise TopologyError("the topology was already built, with another topology.optimization")
        return self._built[1]

    def _start(
        self, step: SourceStep | TableSourceStep, source: str, key: Serde[Any] | None, value: Serde[Any] | None
    ) -> Place:
        self._graph.attach(step, self._graph.root)
        return Place(self._graph, step, key, value, frozenset({source}))
