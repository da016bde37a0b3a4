"""KStream: a stream of records."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, Generic, TextIO, TypeVar, overload

from streams_py.errors import TopologyError
from streams_py.serdes import Serde
from streams_py.topology.declare.checks import checked
from streams_py.topology.declare.durations import Duration
from streams_py.topology.declare.in_context import joiner_with_key, one_function
from streams_py.topology.declare.names import Prefix, RepartitionNames, check_name, name_or_generate, names_of
from streams_py.topology.declare.nodes import Operator, Partitioner, RecordContext, SinkNode
from streams_py.topology.declare.processor import (
    FixedKeyProcessorSupplier,
    FixedKeyRecordFunction,
    ProcessorSupplier,
    RecordFunction,
)
from streams_py.topology.declare.windows import JoinWindows
from streams_py.topology.dsl.asynchronous import BATCH_TIMEOUT_MS, TIMEOUT_MS, batch_calls, pair_calls, value_calls
from streams_py.topology.dsl.branches import BranchedKStream
from streams_py.topology.dsl.global_table import GlobalKTable
from streams_py.topology.dsl.grouped_stream import KGroupedStream
from streams_py.topology.dsl.ktable import KTable
from streams_py.topology.dsl.options import Materialized, materialized_or_none
from streams_py.topology.dsl.place import Place
from streams_py.topology.dsl.stream_joins import StreamJoins
from streams_py.topology.logical.graph import ProcessorStep, RepartitionStep, SinkStep, TableStep, Traits
from streams_py.topology.operators import stateless
from streams_py.topology.operators.asynchronous import CallAsync, CallInBatches
from streams_py.topology.operators.processors import ProcessorOperator, stores_of_supplier
from streams_py.topology.operators.tables import TableSource

__all__ = ["KStream"]

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")
VO = TypeVar("VO")
VR = TypeVar("VR")
KG = TypeVar("KG")


@checked
class KStream(Generic[K, V]):
    """A stream of records with keys of type K and values of type V (Kafka Streams' ``KStream``).

    Operations return a new stream; the old one remains usable. Functions get the key and value of the record: null keys
    and values are None, regardless of K and V. Write ``with_context=f`` for an ``f(key, value, record)`` that also gets
    topic, partition, offset, timestamp and headers of the record. ``name=`` sets the name of the node (see
    ``Topology.describe``).
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._joins = StreamJoins(place)

    # -- record by record ------------------------------------------------------------------------------------

    def filter(
        self,
        predicate: Callable[[K, V], object] | None = None,
        *,
        with_context: Callable[[K, V, RecordContext], object] | None = None,
        name: str | None = None,
    ) -> KStream[K, V]:
        """Keep the records for which ``predicate(key, value)`` is true."""
        operator = _operator(stateless.Filter, predicate, with_context, "filter")
        return KStream(self._place.process(name, Prefix.FILTER, operator))

    def filter_not(
        self,
        predicate: Callable[[K, V], object] | None = None,
        *,
        with_context: Callable[[K, V, RecordContext], object] | None = None,
        name: str | None = None,
    ) -> KStream[K, V]:
        """Drop the records for which ``predicate(key, value)`` is true."""
        operator = _operator(_filter_not, predicate, with_context, "filter_not")
        return KStream(self._place.process(name, Prefix.FILTER, operator))

    def map(
        self,
        mapper: Callable[[K, V], tuple[K2, V2]] | None = None,
        *,
        with_context: Callable[[K, V, RecordContext], tuple[K2, V2]] | None = None,
        key: Serde[K2] | None = None,
        value: Serde[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K2, V2]:
        """Replace key and value by the pair that ``mapper(key, value)`` returns.

        Later operations by key repartition first. In all operations, ``key`` and ``value`` are the serdes of the
        function's result, which later operations use.
        """
        operator = _operator(stateless.Map, mapper, with_context, "map")
        place = self._place.process(name, Prefix.MAP, operator, changes_key=True, changes_value=True)
        return KStream(place.with_serdes(key, value))

    @overload
    def map_values(
        self, mapper: Callable[[V], V2], /, *, value: Serde[V2] | None = None, name: str | None = None
    ) -> KStream[K, V2]: ...
    @overload
    def map_values(
        self, /, *, with_key: Callable[[K, V], V2], value: Serde[V2] | None = None, name: str | None = None
    ) -> KStream[K, V2]: ...
    @overload
    def map_values(
        self,
        /,
        *,
        with_context: Callable[[K, V, RecordContext], V2],
        value: Serde[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]: ...
    def map_values(
        self,
        mapper: Callable[[V], V2] | None = None,
        /,
        *,
        with_key: Callable[[K, V], V2] | None = None,
        with_context: Callable[[K, V, RecordContext], V2] | None = None,
        value: Serde[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]:
        """Replace the value by ``mapper(value)``; the key stays the same.

        Write ``with_key=f`` for an ``f(key, value)``.
        """
        operator: Operator = (
            _operator(stateless.MapValuesWithKey, with_key, with_context, "map_values")
            if with_key is not None or with_context is not None
            else stateless.MapValues(_only(mapper, "map_values"))
        )
        place = self._place.process(name, Prefix.MAP_VALUES, operator, changes_value=True)
        return KStream(place.with_serdes(place.key_serde, value))

    def flat_map(
        self,
        mapper: Callable[[K, V], Iterable[tuple[K2, V2]]] | None = None,
        *,
        with_context: Callable[[K, V, RecordContext], Iterable[tuple[K2, V2]]] | None = None,
        key: Serde[K2] | None = None,
        value: Serde[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K2, V2]:
        """Replace each record by the (key, value) pairs that ``mapper(key, value)`` returns.

        The number of pairs may be 0. Later operations by key repartition first.
        """
        operator = _operator(stateless.FlatMap, mapper, with_context, "flat_map")
        place = self._place.process(name, Prefix.FLAT_MAP, operator, changes_key=True, changes_value=True)
        return KStream(place.with_serdes(key, value))

    @overload
    def flat_map_values(
        self, mapper: Callable[[V], Iterable[V2]], /, *, value: Serde[V2] | None = None, name: str | None = None
    ) -> KStream[K, V2]: ...
    @overload
    def flat_map_values(
        self, /, *, with_key: Callable[[K, V], Iterable[V2]], value: Serde[V2] | None = None, name: str | None = None
    ) -> KStream[K, V2]: ...
    @overload
    def flat_map_values(
        self,
        /,
        *,
        with_context: Callable[[K, V, RecordContext], Iterable[V2]],
        value: Serde[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]: ...
    def flat_map_values(
        self,
        mapper: Callable[[V], Iterable[V2]] | None = None,
        /,
        *,
        with_key: Callable[[K, V], Iterable[V2]] | None = None,
        with_context: Callable[[K, V, RecordContext], Iterable[V2]] | None = None,
        value: Serde[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]:
        """Replace each record by one record for each value that ``mapper(value)`` returns.

        The key stays the same. Write ``with_key=f`` for an ``f(key, value)``.
        """
        operator: Operator = (
            _operator(stateless.FlatMapValuesWithKey, with_key, with_context, "flat_map_values")
            if with_key is not None or with_context is not None
            else stateless.FlatMapValues(_only(mapper, "flat_map_values"))
        )
        place = self._place.process(name, Prefix.FLAT_MAP_VALUES, operator, changes_value=True)
        return KStream(place.with_serdes(place.key_serde, value))

    def select_key(
        self,
        selector: Callable[[K, V], K2] | None = None,
        *,
        with_context: Callable[[K, V, RecordContext], K2] | None = None,
        key: Serde[K2] | None = None,
        name: str | None = None,
    ) -> KStream[K2, V]:
        """Replace the key by ``selector(key, value)``. Later operations by key repartition first."""
        operator = _operator(stateless.SelectKey, selector, with_context, "select_key")
        place = self._place.process(name, Prefix.SELECT_KEY, operator, changes_key=True)
        return KStream(place.with_serdes(key, place.value_serde))

    def peek(
        self,
        action: Callable[[K, V], object] | None = None,
        *,
        with_context: Callable[[K, V, RecordContext], object] | None = None,
        name: str | None = None,
    ) -> KStream[K, V]:
        """Call ``action(key, value)`` for its side effect and forward the record unchanged."""
        operator = _operator(stateless.Peek, action, with_context, "peek")
        return KStream(self._place.process(name, Prefix.PEEK, operator))

    def foreach(
        self,
        action: Callable[[K, V], object] | None = None,
        *,
        with_context: Callable[[K, V, RecordContext], object] | None = None,
        name: str | None = None,
    ) -> None:
        """Call ``action(key, value)`` for its side effect; the stream ends here."""
        self._place.process(name, Prefix.FOREACH, _operator(stateless.Foreach, action, with_context, "foreach"))

    def print(
        self,
        *,
        label: str | None = None,
        line: Callable[[K, V], str] | None = None,
        with_context: Callable[[K, V, RecordContext], str] | None = None,
        file: TextIO | None = None,
        name: str | None = None,
    ) -> None:
        """Write one line per record: ``[label]: key, value``, or ``[label]:`` and ``line(key, value)``.

        The stream ends here. The default label is the name of the previous node. The default file is the standard
        output.
        """
        if line is not None or with_context is not None:
            line = one_function(line, with_context, "print takes one function: line=f for f(key, value)")
        operator = stateless.Print(label or self._place.node.name, line, file)
        self._place.process(name, Prefix.PRINT, operator)

    # -- several streams -------------------------------------------------------------------------------------

    def merge(self, other: KStream[K, V], *, name: str | None = None) -> KStream[K, V]:
        """Return the records of both streams, in no defined order between the two."""
        here, there = self._place, other._place
        if here.graph is not there.graph:
            raise TopologyError("only streams of one builder can be merged")
        step = ProcessorStep(
            name_or_generate(name, here.index, Prefix.MERGE), stateless.PassThrough(), traits=Traits(is_merge=True)
        )
        here.graph.attach(step, here.node, there.node)
        # The serdes are dropped, because the two streams may have different ones.
        key_changed = here.key_changed or there.key_changed
        return KStream(Place(here.graph, step, None, None, here.sources | there.sources, key_changed))

    def split(self, *, name: str | None = None) -> BranchedKStream[K, V]:
        """Split the stream by predicates: ``stream.split().branch(is_big, name="big").default_branch()``."""
        return BranchedKStream(self._place, name)

    # -- topics --------------------------------------------------------------------------------------------------------

    def to(
        self,
        topic: str | Callable[[K, V, RecordContext], str],
        *,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        partitioner: Partitioner | None = None,
        name: str | None = None,
    ) -> None:
        """Write to a topic, or to the topic that ``topic(key, value, record context)`` returns.

        Topics must exist. The default serdes are the stream's. All windows of a key go to the same
        partition.
        """
        place = self._place
        sink = SinkNode(
            name_or_generate(name, place.index, Prefix.SINK),
            (),
            topic if isinstance(topic, str) else None,
            None if isinstance(topic, str) else topic,
            key or place.key_serde,
            value or place.value_serde,
            partitioner,
            by_inner_key=True,
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
    ) -> KStream[K, V]:
        """Write to an internal topic and read it back, so that keys are in their partitions.

        The topic has ``partitions`` partitions (default: as many as the topics of the previous operations). A key serde
        that is not set is the default serde, *not* the stream's key serde. That is as in Kafka Streams: the bytes in
        existing topics depend on it. The value serde is taken from the stream.
        """
        place = self._place
        if partitions is not None and partitions < 1:
            raise TopologyError(f"partitions={partitions}: a topic must have at least one partition")
        base = place.index.node_name(Prefix.REPARTITION) if name is None else check_name(name)
        value_serde = value or place.value_serde
        step = RepartitionStep(
            RepartitionNames(base, place.index),
            key,
            value_serde,
            partitions=partitions,
            partitioner=partitioner,
            is_explicit=True,
        )
        return KStream(place.below_repartition(step).with_serdes(key or place.key_serde, value_serde))

    # -- by key ----------------------------------------------------------------------------------------------

    def to_table(
        self, *, store: str | None = None, name: str | None = None, materialized: Materialized[K, V] | None = None
    ) -> KTable[K, V]:
        """Return the latest value of each key as a table; None deletes the key.

        The table is stored under the name ``store`` if it is set, otherwise only if a later operation needs it.
        """
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
        self, *, key: Serde[K] | None = None, value: Serde[V] | None = None, name: str | None = None
    ) -> KGroupedStream[K, V]:
        """Group by the current key, for ``count``, ``reduce`` and ``aggregate``.

        If the key was changed before, the records are repartitioned first, through the topic ``<name or store
        name>-repartition``. The default serdes are the stream's.
        """
        place = self._place
        return KGroupedStream(place.with_serdes(key or place.key_serde, value or place.value_serde), name)

    def group_by(
        self,
        selector: Callable[[K, V], K2 | None] | None = None,
        *,
        with_context: Callable[[K, V, RecordContext], K2 | None] | None = None,
        key: Serde[K2] | None = None,
        value: Serde[V] | None = None,
        name: str | None = None,
    ) -> KGroupedStream[K2, V]:
        """Group by ``selector(key, value)``; None drops the record.

        It always repartitions. ``name`` is also the name of the node that selects the key.
        """
        place = self._place
        operator = _operator(stateless.SelectKey, selector, with_context, "group_by")
        selected = place.process(name, Prefix.SELECT_KEY, operator, changes_key=True)
        return KGroupedStream(selected.with_serdes(key, value or place.value_serde), name)

    # -- joins -----------------------------------------------------------------------------------------------

    @overload
    def join(
        self,
        other: KStream[K, VO],
        joiner: Callable[[V, VO], VR] | None = None,
        windows: JoinWindows | None = None,
        *,
        with_key: Callable[[K, V, VO], VR] | None = None,
        with_context: Callable[[K, V, VO, RecordContext], VR] | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: Serde[VO] | None = None,
        store: str | None = None,
        persistent: bool | None = None,
        logging: bool = True,
        logging_config: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]: ...
    @overload
    def join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[V, VO], VR] | None = None,
        *,
        with_key: Callable[[K, V, VO], VR] | None = None,
        with_context: Callable[[K, V, VO, RecordContext], VR] | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        grace: Duration | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]: ...
    @overload
    def join(
        self,
        other: GlobalKTable[KG, VO],
        joiner: Callable[[V, VO], VR] | None = None,
        *,
        on: Callable[[K, V], KG | None],
        with_key: Callable[[K, V, VO], VR] | None = None,
        with_context: Callable[[K, V, VO, RecordContext], VR] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]: ...
    def join(
        self,
        other: KStream[Any, Any] | KTable[Any, Any] | GlobalKTable[Any, Any],
        joiner: Callable[[Any, Any], Any] | None = None,
        windows: JoinWindows | None = None,
        *,
        on: Callable[[Any, Any], Any] | None = None,
        with_key: Callable[[Any, Any, Any], Any] | None = None,
        with_context: Callable[[Any, Any, Any, RecordContext], Any] | None = None,
        **options: Any,
    ) -> KStream[K, Any]:
        """Join by key: the result is ``joiner(value, other value)``.

        Topics that are joined by key must have the same number of partitions. A stream with changed keys is
        repartitioned first.

        Write ``with_key=f`` for an ``f(key, value, other value)``, or ``with_context=f`` for an ``f(key, value, other
        value, record)`` that also gets the record that led to the result.

        With a stream: each pair of records that match by ``windows`` gives a result with the larger timestamp. Both
        sides are stored for as long as the windows require (stores are named after ``store``), and in changelog topics
        (with the settings ``logging_config``). With a table: the record is joined with the current row; if the table
        has a ``history``, with the row at the time of the record. With a global table: the record is joined with the
        row of ``on(key, value)``.

        With ``grace``, records wait until stream time has advanced by this duration, so that late rows of a table with
        a history are included. Records without a partner are dropped. ``key``, ``value`` and ``other_value`` are the
        serdes for stores and repartition topics, if they differ from the streams' serdes.
        """
        function = joiner_with_key(joiner, with_key, with_context, "join")
        return KStream(self._joins.join(other, function, windows, on, options))

    @overload
    def left_join(
        self,
        other: KStream[K, VO],
        joiner: Callable[[V, VO | None], VR] | None = None,
        windows: JoinWindows | None = None,
        *,
        with_key: Callable[[K, V, VO | None], VR] | None = None,
        with_context: Callable[[K, V, VO | None, RecordContext], VR] | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: Serde[VO] | None = None,
        store: str | None = None,
        persistent: bool | None = None,
        logging: bool = True,
        logging_config: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]: ...
    @overload
    def left_join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[V, VO | None], VR] | None = None,
        *,
        with_key: Callable[[K, V, VO | None], VR] | None = None,
        with_context: Callable[[K, V, VO | None, RecordContext], VR] | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        grace: Duration | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]: ...
    @overload
    def left_join(
        self,
        other: GlobalKTable[KG, VO],
        joiner: Callable[[V, VO | None], VR] | None = None,
        *,
        on: Callable[[K, V], KG | None],
        with_key: Callable[[K, V, VO | None], VR] | None = None,
        with_context: Callable[[K, V, VO | None, RecordContext], VR] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]: ...
    def left_join(
        self,
        other: KStream[Any, Any] | KTable[Any, Any] | GlobalKTable[Any, Any],
        joiner: Callable[[Any, Any], Any] | None = None,
        windows: JoinWindows | None = None,
        *,
        on: Callable[[Any, Any], Any] | None = None,
        with_key: Callable[[Any, Any, Any], Any] | None = None,
        with_context: Callable[[Any, Any, Any, RecordContext], Any] | None = None,
        **options: Any,
    ) -> KStream[K, Any]:
        """Join like :meth:`join`, but keep records of this stream without a partner.

        They are joined with None: with a table immediately, with a stream when the window is closed. Example:
        ``examples/operators/page_views.py``.
        """
        function = joiner_with_key(joiner, with_key, with_context, "left_join")
        return KStream(self._joins.join(other, function, windows, on, options, keeps_left=True))

    def outer_join(
        self,
        other: KStream[K, VO],
        joiner: Callable[[V | None, VO | None], VR] | None = None,
        windows: JoinWindows | None = None,
        *,
        with_key: Callable[[K, V | None, VO | None], VR] | None = None,
        with_context: Callable[[K, V | None, VO | None, RecordContext], VR] | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: Serde[VO] | None = None,
        store: str | None = None,
        persistent: bool | None = None,
        logging: bool = True,
        logging_config: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> KStream[K, VR]:
        """Join with a stream like :meth:`join`, but keep records of both streams without a partner.

        They are joined with None when the window is closed. Example: ``examples/operators/order_payment.py``.
        """
        function = joiner_with_key(joiner, with_key, with_context, "outer_join")
        options = {
            "key": key,
            "value": value,
            "other_value": other_value,
            "store": store,
            "persistent": persistent,
            "logging": logging,
            "logging_config": logging_config,
            "name": name,
        }
        place = self._joins.join(other, function, windows, None, options, keeps_left=True, keeps_right=True)
        return KStream(place)

    # -- functions that wait ---------------------------------------------------------------------------------

    @overload
    def map_values_async(
        self,
        function: Callable[[V], Coroutine[Any, Any, V2]],
        /,
        *,
        concurrency: int = 64,
        timeout: Duration = TIMEOUT_MS,
        ordered: bool = False,
        value: Serde[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]: ...
    @overload
    def map_values_async(
        self,
        /,
        *,
        with_key: Callable[[K, V], Coroutine[Any, Any, V2]],
        concurrency: int = 64,
        timeout: Duration = TIMEOUT_MS,
        ordered: bool = False,
        value: Serde[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]: ...
    @overload
    def map_values_async(
        self,
        /,
        *,
        with_context: Callable[[K, V, RecordContext], Coroutine[Any, Any, V2]],
        concurrency: int = 64,
        timeout: Duration = TIMEOUT_MS,
        ordered: bool = False,
        value: Serde[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]: ...
    def map_values_async(
        self,
        function: Callable[[V], Coroutine[Any, Any, V2]] | None = None,
        /,
        *,
        with_key: Callable[[K, V], Coroutine[Any, Any, V2]] | None = None,
        with_context: Callable[[K, V, RecordContext], Coroutine[Any, Any, V2]] | None = None,
        concurrency: int = 64,
        timeout: Duration = TIMEOUT_MS,
        ordered: bool = False,
        value: Serde[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]:
        """Replace the value by ``await function(value)``; the key stays the same.

            async def locate(value: str) -> Place:
                return await client.get(value)

            clicks.map_values_async(locate, concurrency=64, timeout=5_000)

        The function runs outside of the stream thread, which continues with other records and tasks. Results return to
        the stream thread, so all later operations, including stores, run there as usual. A record keeps its timestamp
        and headers. Its offset is committed only after its result was sent on. If the process dies earlier, the call
        is repeated.

        Records with the same key keep their order. With ``ordered=True`` records with different keys keep their order,
        too. Records without a key have no order to keep. Windows in later operations may need ``ordered=True`` or a
        grace period, because a slow result can be late.

        Each task (partition) runs up to ``concurrency`` calls at a time, for records with different keys. It takes no
        more records from its partitions while twice as many records wait. A call that takes longer than ``timeout``
        (ms, or a timedelta) is cancelled with a :class:`~streams_py.errors.CallTimeoutError`. Errors are passed to the
        processing handler, like errors of ``map_values``. All coroutines of a client run on one event loop. Example:
        ``examples/operators/async_enrichment.py``.
        """
        calls = value_calls(function, with_key, with_context, concurrency, timeout, ordered=ordered)
        place = self._place.process(name, Prefix.MAP_VALUES_ASYNC, CallAsync(calls), changes_value=True)
        return KStream(place.with_serdes(place.key_serde, value))

    def map_async(
        self,
        function: Callable[[K, V], Coroutine[Any, Any, tuple[K2, V2]]] | None = None,
        *,
        with_context: Callable[[K, V, RecordContext], Coroutine[Any, Any, tuple[K2, V2]]] | None = None,
        concurrency: int = 64,
        timeout: Duration = TIMEOUT_MS,
        ordered: bool = False,
        key: Serde[K2] | None = None,
        value: Serde[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K2, V2]:
        """Replace key and value by ``await function(key, value)``.

        It works like :meth:`map_values_async`; ``timeout`` is a ``timedelta`` or milliseconds. Records keep their order
        by their old keys. Later operations by key repartition first.
        """
        calls = pair_calls(function, with_context, concurrency, timeout, ordered=ordered)
        place = self._place.process(name, Prefix.MAP_ASYNC, CallAsync(calls), changes_key=True, changes_value=True)
        return KStream(place.with_serdes(key, value))

    @overload
    def map_batch(
        self,
        function: Callable[[list[V]], Iterable[V2] | Awaitable[Iterable[V2]]],
        /,
        *,
        max_records: int,
        max_ms: Duration,
        timeout: Duration = BATCH_TIMEOUT_MS,
        value: Serde[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]: ...
    @overload
    def map_batch(
        self,
        /,
        *,
        with_key: Callable[[list[tuple[K, V]]], Iterable[V2] | Awaitable[Iterable[V2]]],
        max_records: int,
        max_ms: Duration,
        timeout: Duration = BATCH_TIMEOUT_MS,
        value: Serde[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]: ...
    @overload
    def map_batch(
        self,
        /,
        *,
        with_context: Callable[[list[tuple[K, V, RecordContext]]], Iterable[V2] | Awaitable[Iterable[V2]]],
        max_records: int,
        max_ms: Duration,
        timeout: Duration = BATCH_TIMEOUT_MS,
        value: Serde[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]: ...
    def map_batch(
        self,
        function: Callable[[list[V]], Iterable[V2] | Awaitable[Iterable[V2]]] | None = None,
        /,
        *,
        with_key: Callable[[list[tuple[K, V]]], Iterable[V2] | Awaitable[Iterable[V2]]] | None = None,
        with_context: Callable[[list[tuple[K, V, RecordContext]]], Iterable[V2] | Awaitable[Iterable[V2]]]
        | None = None,
        max_records: int,
        max_ms: Duration,
        timeout: Duration = BATCH_TIMEOUT_MS,
        value: Serde[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]:
        """Replace the values of a batch by ``function(values)``; the keys stay the same.

        ``function`` returns one new value for each value, in the same order. This is useful for models and services
        that are faster with batches. The function runs outside of the stream thread; for timestamps, headers, offsets
        and late results see :meth:`map_values_async`.

        A batch has up to ``max_records`` records of one task (partition). It starts when it is full, or when ``max_ms``
        have elapsed since its first record arrived. One batch of a task runs at a time. ``function`` may be an ``async
        def``; a plain function runs on a separate thread. Write ``with_key=f`` for a function of (key, value) pairs,
        and ``with_context=f`` for a function of (key, value, record context) triples. The processing handler is called
        for each record of the batch if the function raises an exception, returns a different number of values, or takes
        longer than ``timeout`` (a ``timedelta`` or milliseconds).

        Example: ``examples/operators/batch_scoring.py``.
        """
        calls = batch_calls(function, with_key, with_context, max_records, max_ms, timeout)
        place = self._place.process(name, Prefix.MAP_BATCH, CallInBatches(calls), changes_value=True)
        return KStream(place.with_serdes(place.key_serde, value))

    # -- processors ------------------------------------------------------------------------------------------

    @overload
    def process(
        self,
        processor: ProcessorSupplier[K, V, K2, V2],
        *,
        stores: str | Iterable[str] = (),
        key: Serde[K2] | None = None,
        value: Serde[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K2, V2]: ...
    @overload
    def process(
        self,
        processor: RecordFunction[K, V, K2, V2],
        *,
        stores: str | Iterable[str] = (),
        key: Serde[K2] | None = None,
        value: Serde[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K2, V2]: ...
    def process(
        self,
        processor: ProcessorSupplier[K, V, K2, V2] | RecordFunction[K, V, K2, V2],
        *,
        stores: str | Iterable[str] = (),
        key: Serde[K2] | None = None,
        value: Serde[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K2, V2]:
        """Run your own processor: a class, or a generator function that yields records to forward.

            def enrich(record, context):
                yield record.with_value(look_up(record.key))

        The processor may use the named stores (see ``StreamsBuilder.add_state_store``) and the stores of its supplier.
        Later operations by key repartition first.
        """
        operator = ProcessorOperator(processor)
        place = self._process(name, Prefix.PROCESS, operator, processor, stores, changes_key=True)
        return KStream(dataclasses.replace(place, key_serde=key, value_serde=value, key_changed=True))

    @overload
    def process_values(
        self,
        processor: FixedKeyProcessorSupplier[K, V, V2],
        *,
        stores: str | Iterable[str] = (),
        value: Serde[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]: ...
    @overload
    def process_values(
        self,
        processor: FixedKeyRecordFunction[K, V, V2],
        *,
        stores: str | Iterable[str] = (),
        value: Serde[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]: ...
    def process_values(
        self,
        processor: FixedKeyProcessorSupplier[K, V, V2] | FixedKeyRecordFunction[K, V, V2],
        *,
        stores: str | Iterable[str] = (),
        value: Serde[V2] | None = None,
        name: str | None = None,
    ) -> KStream[K, V2]:
        """Run your own processor, which cannot change the key.

        It works like :meth:`process`. Example: ``examples/operators/deduplication.py``.
        """
        operator = ProcessorOperator(processor, fixed_key=True)
        place = self._process(name, Prefix.PROCESS_VALUES, operator, processor, stores, changes_key=False)
        return KStream(dataclasses.replace(place, value_serde=value))

    def _process(
        self,
        name: str | None,
        prefix: str,
        operator: Operator,
        supplier: object,
        stores: str | Iterable[str],
        *,
        changes_key: bool,
    ) -> Place:
        place = self._place
        # Unlike everywhere else, a name set here takes no number of the counter (as in Kafka Streams).
        node_name = place.index.node_name(prefix) if name is None else check_name(name)
        own = stores_of_supplier(supplier)
        step = ProcessorStep(
            node_name,
            operator,
            added_stores=own,
            stores=names_of(stores),
            traits=Traits(changes_key=changes_key, changes_value=True, is_overlooked=True),
        )
        return place.then(step)


def _operator(
    make: Callable[[Callable[[Any, Any], Any]], Operator],
    function: Callable[[Any, Any], Any] | None,
    with_context: Callable[[Any, Any, RecordContext], Any] | None,
    method: str,
) -> Operator:
    if with_context is not None and function is None:
        return stateless.InContext(make, with_context)
    if function is None or with_context is not None:
        raise TopologyError(f"{method} needs one function: f(key, value), or with_context=f for f(key, value, record)")
    return make(function)


def _filter_not(predicate: Callable[[Any, Any], object]) -> Operator:
    return stateless.Filter(predicate, negate=True)


def _only(mapper: Callable[[V], V2] | None, method: str) -> Callable[[V], V2]:
    if mapper is None:
        raise TopologyError(f"{method} needs a function: f(value), or with_key=f for f(key, value)")
    return mapper
