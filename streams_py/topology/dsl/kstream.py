"""Streams: records, one after the other."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, Generic, TextIO, TypeVar, cast, overload

from streams_py.errors import TopologyError
from streams_py.serdes import Serde
from streams_py.topology.dsl.branches import BranchedKStream
from streams_py.topology.dsl.grouped_stream import KGroupedStream
from streams_py.topology.dsl.ktable import KTable
from streams_py.topology.dsl.options import Grouped, Materialized, Produced, Repartitioned, either, materialized_or_none
from streams_py.topology.dsl.place import Place
from streams_py.topology.graph import ProcessorStep, RepartitionStep, SinkStep, TableStep
from streams_py.topology.names import Prefix, RepartitionNames, check_name, name_or_generate
from streams_py.topology.nodes import Operator, Partitioner, RecordContext, SinkNode
from streams_py.topology.operators import stateless
from streams_py.topology.operators.processors import ProcessorOperator, stores_of_supplier
from streams_py.topology.operators.tables import TableSource
from streams_py.topology.processor import FixedKeyProcessorSupplier, ProcessorSupplier

__all__ = ["KStream"]

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")


class KStream(Generic[K, V]):
    """A stream of records with keys of type K and values of type V (Kafka Streams' ``KStream``).

    Operations return a new stream; the old one can be used again. Functions get what is in the record: null keys and
    values arrive as None, whatever K and V say. ``name=`` names the node (see ``Topology.describe``).
    """

    def __init__(self, place: Place) -> None:
        self._place = place

    # -- record by record ------------------------------------------------------------------------------------

    def filter(self, predicate: Callable[[K, V], object], *, name: str | None = None) -> KStream[K, V]:
        """Keep the records for which ``predicate(key, value)`` is true."""
        return KStream(self._place.process(name, Prefix.FILTER, stateless.Filter(predicate)))

    def filter_not(self, predicate: Callable[[K, V], object], *, name: str | None = None) -> KStream[K, V]:
        """Drop the records for which ``predicate(key, value)`` is true."""
        return KStream(self._place.process(name, Prefix.FILTER, stateless.Filter(predicate, negate=True)))

    def map(self, mapper: Callable[[K, V], tuple[K2, V2]], *, name: str | None = None) -> KStream[K2, V2]:
        """``mapper(key, value)`` gives the new key and value. Operations by key will repartition first."""
        operator = stateless.Map(mapper)
        return KStream(self._place.process(name, Prefix.MAP, operator, changes_key=True, changes_value=True))

    @overload
    def map_values(self, mapper: Callable[[V], V2], /, *, name: str | None = None) -> KStream[K, V2]: ...
    @overload
    def map_values(self, /, *, with_key: Callable[[K, V], V2], name: str | None = None) -> KStream[K, V2]: ...
    def map_values(
        self,
        mapper: Callable[[V], V2] | None = None,
        /,
        *,
        with_key: Callable[[K, V], V2] | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]:
        """``mapper(value)`` gives the new value; write ``with_key=f`` for ``f(key, value)``. The key stays."""
        operator: Operator = (
            stateless.MapValuesWithKey(with_key)
            if with_key is not None
            else stateless.MapValues(_only(mapper, "map_values"))
        )
        return KStream(self._place.process(name, Prefix.MAP_VALUES, operator, changes_value=True))

    def flat_map(
        self, mapper: Callable[[K, V], Iterable[tuple[K2, V2]]], *, name: str | None = None
    ) -> KStream[K2, V2]:
        """``mapper(key, value)`` gives any number of (key, value) pairs. Operations by key will repartition first."""
        operator = stateless.FlatMap(mapper)
        return KStream(self._place.process(name, Prefix.FLAT_MAP, operator, changes_key=True, changes_value=True))

    @overload
    def flat_map_values(self, mapper: Callable[[V], Iterable[V2]], /, *, name: str | None = None) -> KStream[K, V2]: ...
    @overload
    def flat_map_values(
        self, /, *, with_key: Callable[[K, V], Iterable[V2]], name: str | None = None
    ) -> KStream[K, V2]: ...
    def flat_map_values(
        self,
        mapper: Callable[[V], Iterable[V2]] | None = None,
        /,
        *,
        with_key: Callable[[K, V], Iterable[V2]] | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]:
        """``mapper(value)`` gives any number of values; write ``with_key=f`` for ``f(key, value)``. The key stays."""
        operator: Operator = (
            stateless.FlatMapValuesWithKey(with_key)
            if with_key is not None
            else stateless.FlatMapValues(_only(mapper, "flat_map_values"))
        )
        return KStream(self._place.process(name, Prefix.FLAT_MAP_VALUES, operator, changes_value=True))

    def select_key(self, selector: Callable[[K, V], K2], *, name: str | None = None) -> KStream[K2, V]:
        """``selector(key, value)`` gives the new key. Operations by key will repartition first."""
        return KStream(self._place.process(name, Prefix.SELECT_KEY, stateless.SelectKey(selector), changes_key=True))

    def peek(self, action: Callable[[K, V], object], *, name: str | None = None) -> KStream[K, V]:
        """Call ``action(key, value)`` for its side effect and pass the record on."""
        return KStream(self._place.process(name, Prefix.PEEK, stateless.Peek(action)))

    def foreach(self, action: Callable[[K, V], object], *, name: str | None = None) -> None:
        """Call ``action(key, value)`` for its side effect; the stream ends here."""
        self._place.process(name, Prefix.FOREACH, stateless.Foreach(action))

    def print(
        self,
        *,
        label: str | None = None,
        line: Callable[[K, V], str] | None = None,
        file: TextIO | None = None,
        name: str | None = None,
    ) -> None:
        """Write ``[label]: key, value`` per record, or ``[label]:`` and what ``line(key, value)`` gives; the stream
        ends here. The label is the name of the node above, the file is standard output, unless given."""
        operator = stateless.Print(label or self._place.node.name, line, file)
        self._place.process(name, Prefix.PRINT, operator)

    # -- several streams -------------------------------------------------------------------------------------

    def merge(self, other: KStream[K, V], *, name: str | None = None) -> KStream[K, V]:
        """The records of both streams, in no particular order between the two."""
        here, there = self._place, other._place
        if here.graph is not there.graph:
            raise TopologyError("only streams of one builder can be merged")
        step = ProcessorStep(name_or_generate(name, here.index, Prefix.MERGE), stateless.PassThrough(), is_merge=True)
        here.graph.attach(step, here.node, there.node)
        # The serdes are forgotten: nobody knows that both streams have the same.
        key_changed = here.key_changed or there.key_changed
        return KStream(Place(here.graph, step, None, None, here.sources | there.sources, key_changed))

    def split(self, *, name: str | None = None) -> BranchedKStream[K, V]:
        """Split by predicates: ``stream.split().branch(is_big, name="big").default_branch()``."""
        return BranchedKStream(self._place, name)

    # -- out of the topology, and around ---------------------------------------------------------------------

    def to(
        self,
        topic: str | Callable[[K, V, RecordContext], str],
        *,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        partitioner: Partitioner | None = None,
        name: str | None = None,
        produced: Produced[K, V] | None = None,
    ) -> None:
        """Write to a topic, or to the one that ``topic(key, value, record context)`` names for each record.

        Topics must exist. Serdes left out: those of the stream.
        """
        place = self._place
        options = either(
            produced,
            {"key": key, "value": value, "partitioner": partitioner, "name": name},
            lambda: Produced(key=key, value=value, partitioner=partitioner, name=name),
            "produced",
        )
        sink = SinkNode(
            name_or_generate(options.name, place.index, Prefix.SINK),
            (),
            topic if isinstance(topic, str) else None,
            None if isinstance(topic, str) else topic,
            options.key or place.key_serde,
            options.value or place.value_serde,
            options.partitioner,
        )
        place.then(SinkStep(sink))

    def repartition(
        self,
        *,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        partitions: int | None = None,
        partitioner: Partitioner | None = None,
        name: str | None = None,
        repartitioned: Repartitioned[K, V] | None = None,
    ) -> KStream[K, V]:
        """Write to an internal topic and read it back: keys are in their partitions again, and there are ``partitions``
        of them (default: as many as the topics above have). A key serde left out is the configured default, see
        :class:`Repartitioned`."""
        place = self._place
        options = either(
            repartitioned,
            {"key": key, "value": value, "partitions": partitions, "partitioner": partitioner, "name": name},
            lambda: Repartitioned(key=key, value=value, partitions=partitions, partitioner=partitioner, name=name),
            "repartitioned",
        )
        if options.partitions is not None and options.partitions < 1:
            raise TopologyError(f"a topic needs at least one partition; partitions={options.partitions}")
        base = place.index.node_name(Prefix.REPARTITION) if options.name is None else check_name(options.name)
        value_serde = options.value or place.value_serde
        step = RepartitionStep(
            RepartitionNames(base, place.index),
            options.key,
            value_serde,
            partitions=options.partitions,
            partitioner=options.partitioner,
            is_explicit=True,
        )
        return KStream(place.below_repartition(step).with_serdes(options.key or place.key_serde, value_serde))

    # -- by key ----------------------------------------------------------------------------------------------

    def to_table(
        self, *, store: str | None = None, name: str | None = None, materialized: Materialized[K, V] | None = None
    ) -> KTable[K, V]:
        """The latest value of each key; None deletes. Stored under ``store`` if given, else only if needed."""
        place = self._place
        node_name = name_or_generate(name, place.index, Prefix.TO_TABLE)
        options = materialized_or_none(materialized, store) or Materialized()
        store_name = options.store or place.index.store_name(Prefix.TO_TABLE)
        place = place.with_serdes(options.key or place.key_serde, options.value or place.value_serde)
        if place.key_changed:
            place = place.repartitioned(node_name)
        operator = TableSource(store_name, is_stored=options.store is not None)
        builder = options.builder(store_name, place.key_serde, place.value_serde)
        return KTable(place.then(TableStep(node_name, operator, builder)), operator, options.store)

    def group_by_key(
        self,
        *,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        name: str | None = None,
        grouped: Grouped[K, V] | None = None,
    ) -> KGroupedStream[K, V]:
        """Group by the key as it is, for ``count``, ``reduce`` and ``aggregate``.

        Repartitions first if the key was changed above, through the topic ``<name or store name>-repartition``.
        Serdes left out as keywords: those of the stream.
        """
        place = self._place
        options = _grouped(place, key, value, name, grouped)
        return KGroupedStream(place.with_serdes(options.key, options.value), options.name)

    def group_by(
        self,
        selector: Callable[[K, V], K2 | None],
        *,
        key: Serde[K2] | None = None,
        value: Serde[V] | None = None,
        name: str | None = None,
        grouped: Grouped[K2, V] | None = None,
    ) -> KGroupedStream[K2, V]:
        """Group by ``selector(key, value)``; None leaves a record out. Always repartitions. ``name`` also names the
        selecting node."""
        place = self._place
        options = _grouped(place.with_serdes(None, place.value_serde), key, value, name, grouped)
        operator = stateless.SelectKey(selector)
        selected = place.process(options.name, Prefix.SELECT_KEY, operator, changes_key=True)
        return KGroupedStream(selected.with_serdes(options.key, options.value), options.name)

    # -- processors ------------------------------------------------------------------------------------------

    def process(
        self, supplier: ProcessorSupplier[K, V, K2, V2], *, stores: Iterable[str] = (), name: str | None = None
    ) -> KStream[K2, V2]:
        """Run your own processor; it may use the named stores (see ``StreamsBuilder.add_state_store``) and those its
        supplier brings. Operations by key will repartition first."""
        place = self._process(name, Prefix.PROCESS, ProcessorOperator(supplier), supplier, stores)
        return KStream(dataclasses.replace(place, key_serde=None, value_serde=None, key_changed=True))

    def process_values(
        self, supplier: FixedKeyProcessorSupplier[K, V, V2], *, stores: Iterable[str] = (), name: str | None = None
    ) -> KStream[K, V2]:
        """As :meth:`process`, for processors that cannot change the key."""
        operator = ProcessorOperator(supplier, fixed_key=True)
        place = self._process(name, Prefix.PROCESS_VALUES, operator, supplier, stores)
        return KStream(dataclasses.replace(place, value_serde=None))

    def _process(
        self, name: str | None, prefix: str, operator: Operator, supplier: object, stores: Iterable[str]
    ) -> Place:
        place = self._place
        # Unlike everywhere else, a name given here takes no value from the counter (as in Kafka Streams).
        node_name = place.index.node_name(prefix) if name is None else check_name(name)
        names = (stores,) if isinstance(stores, str) else tuple(stores)
        own = stores_of_supplier(supplier)
        return place.then(ProcessorStep(node_name, operator, own_stores=own, stores=names))


def _only(mapper: Callable[[V], V2] | None, method: str) -> Callable[[V], V2]:
    if mapper is None:
        raise TopologyError(f"{method} needs a function: f(value), or with_key=f for an f(key, value)")
    return mapper


def _grouped(
    place: Place, key: Serde[Any] | None, value: Serde[Any] | None, name: str | None, grouped: Grouped[K, V] | None
) -> Grouped[K, V]:
    made: Grouped[Any, Any] = Grouped(key=key or place.key_serde, value=value or place.value_serde, name=name)
    keywords = {"key": key, "value": value, "name": name}
    return either(grouped, keywords, lambda: cast("Grouped[K, V]", made), "grouped")
