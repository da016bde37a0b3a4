"""Grouped streams: aggregation of a stream into a table of counts, sums or other state per key."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from streams_py.errors import TopologyError
from streams_py.serdes import INT64, Serde
from streams_py.topology.declare.checks import checked
from streams_py.topology.declare.in_context import one_function
from streams_py.topology.declare.names import Prefix, RepartitionNames, check_name, name_or_generate
from streams_py.topology.declare.nodes import RecordContext
from streams_py.topology.declare.stores import StoreBuilder
from streams_py.topology.declare.windows import (
    EmitStrategy,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    UnlimitedWindows,
)
from streams_py.topology.dsl.ktable import KTable
from streams_py.topology.dsl.options import Initializer, Materialized, materialized_or_none
from streams_py.topology.dsl.place import Place
from streams_py.topology.logical.graph import ProcessorStep, RepartitionStep
from streams_py.topology.operators.aggregates import StreamAggregate, StreamReduce
from streams_py.topology.operators.tables import TableOperator

if TYPE_CHECKING:
    from streams_py.topology.dsl.cogrouped_stream import CogroupedKStream
    from streams_py.topology.dsl.windowed_stream import SessionWindowedKStream, TimeWindowedKStream

__all__ = ["AGGREGATE_NEEDS", "COGROUP_NEEDS", "KGroupedStream", "plus_one", "zero"]

AGGREGATE_NEEDS = "aggregate needs one function: f(key, value, result)"
COGROUP_NEEDS = "cogroup needs one function: f(key, value, result)"

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")


@checked
class KGroupedStream(Generic[K, V]):
    """Records grouped by key (Kafka Streams' ``KGroupedStream``).

    All aggregations drop records with a null key or a null value. Results are stored, under the name ``store`` if it is
    set, and written to a changelog topic.
    """

    def __init__(self, place: Place, name: str | None) -> None:
        self._place = place
        self._name = None if name is None else check_name(name)
        self._shared_repartition: RepartitionStep | None = None
        self._is_cogrouped = False
        """Whether cogrouped aggregations use the shared repartition, which then keeps its order of writing."""

    def count(
        self, *, store: str | None = None, name: str | None = None, materialized: Materialized[K, int] | None = None
    ) -> KTable[K, int]:
        """Return the number of records per key, as int64."""
        options = materialized_or_none(materialized, store)
        if options is not None and options.store is None:
            # A number of the counter that is not used, as in Kafka Streams.
            self._place.index.store_name(Prefix.AGGREGATE)
        options = options or Materialized()
        if options.value is None:
            options = dataclasses.replace(options, value=INT64)
        return self._aggregate(
            lambda store: StreamAggregate(store, zero, plus_one), options, name, Prefix.AGGREGATE, None
        )

    def reduce(
        self,
        reducer: Callable[[V, V], V | None] | None = None,
        *,
        with_context: Callable[[V, V, RecordContext], V | None] | None = None,
        store: str | None = None,
        name: str | None = None,
        materialized: Materialized[K, V] | None = None,
    ) -> KTable[K, V]:
        """Combine the values of each key with ``reducer(result so far, value)``.

        The first value of a key is its first result. A result of None deletes the key. Write ``with_context=f`` for an
        ``f(result so far, value, record)``.
        """
        function = one_function(reducer, with_context, "reduce needs one function: f(result, value)")
        options = materialized_or_none(materialized, store) or Materialized()
        value_serde = self._place.value_serde
        return self._aggregate(lambda store: StreamReduce(store, function), options, name, Prefix.REDUCE, value_serde)

    @overload
    def aggregate(
        self,
        initializer: Callable[[], A],
        aggregator: Callable[[K, V, A], A | None] | None = None,
        *,
        with_context: Callable[[K, V, A, RecordContext], A | None] | None = None,
        store: str | None = None,
        value: Serde[A],
        name: str | None = None,
    ) -> KTable[K, A]: ...
    @overload
    def aggregate(
        self,
        initializer: Callable[[], A],
        aggregator: Callable[[K, V, A], A | None] | None = None,
        *,
        with_context: Callable[[K, V, A, RecordContext], A | None] | None = None,
        name: str | None = None,
        materialized: Materialized[K, A],
    ) -> KTable[K, A]: ...
    @overload
    def aggregate(
        self,
        initializer: Initializer[A],
        aggregator: Callable[[K, V, A], A | None] | None = None,
        *,
        with_context: Callable[[K, V, A, RecordContext], A | None] | None = None,
        store: str | None = None,
        name: str | None = None,
    ) -> KTable[K, A]: ...
    def aggregate(
        self,
        initializer: Callable[[], A],
        aggregator: Callable[[K, V, A], A | None] | None = None,
        *,
        with_context: Callable[[K, V, A, RecordContext], A | None] | None = None,
        store: str | None = None,
        value: Serde[A] | None = None,
        name: str | None = None,
        materialized: Materialized[K, A] | None = None,
    ) -> KTable[K, A]:
        """Aggregate each key with ``aggregator(key, value, result so far)``.

        The first result is ``initializer()``. ``value`` is the serde of results. A result of None deletes the key.
        Write ``with_context=f`` for an ``f(key, value, result so far, record)``.
        """
        function = one_function(aggregator, with_context, AGGREGATE_NEEDS)
        options = materialized_or_none(materialized, store, None, value) or Materialized()
        return self._aggregate(
            lambda store: StreamAggregate(store, initializer, function), options, name, Prefix.AGGREGATE, None
        )

    @overload
    def windowed_by(
        self, windows: TimeWindows | SlidingWindows, *, emit: EmitStrategy = EmitStrategy.ON_WINDOW_UPDATE
    ) -> TimeWindowedKStream[K, V]: ...
    @overload
    def windowed_by(
        self, windows: SessionWindows, *, emit: EmitStrategy = EmitStrategy.ON_WINDOW_UPDATE
    ) -> SessionWindowedKStream[K, V]: ...
    def windowed_by(
        self,
        windows: TimeWindows | SlidingWindows | SessionWindows,
        *,
        emit: EmitStrategy = EmitStrategy.ON_WINDOW_UPDATE,
    ) -> TimeWindowedKStream[K, V] | SessionWindowedKStream[K, V]:
        """Group additionally by time windows: ``windowed_by(TimeWindows.of(timedelta(minutes=5)))``.

        ``emit``: send every update, or only the final result when the window is closed. Examples:
        ``examples/operators/sessionization.py``, and ``examples/operators/fraud_detection.py`` for sliding windows.
        """
        from streams_py.topology.dsl.windowed_stream import SessionWindowedKStream, TimeWindowedKStream

        if isinstance(windows, UnlimitedWindows) and emit is EmitStrategy.ON_WINDOW_CLOSE:
            raise TopologyError("a window of UnlimitedWindows is never closed, so it has no final result to emit")
        if isinstance(windows, SessionWindows):
            return SessionWindowedKStream(self, windows, emit)
        return TimeWindowedKStream(self, windows, emit)

    def cogroup(
        self,
        aggregator: Callable[[K, V, A], A | None] | None = None,
        *,
        with_context: Callable[[K, V, A, RecordContext], A | None] | None = None,
    ) -> CogroupedKStream[K, A]:
        """Aggregate several grouped streams into one table (KIP-150).

        Add the other streams with ``cogroup``, then call ``aggregate``. ``aggregator(key, value, result so far)``
        aggregates the records of this stream. Write ``with_context=f`` for an ``f(key, value, result so far, record)``.
        """
        from streams_py.topology.dsl.cogrouped_stream import cogrouped

        return cogrouped(self, one_function(aggregator, with_context, COGROUP_NEEDS))

    @property
    def place(self) -> Place:
        """Its place in the graph."""
        return self._place

    def _aggregate(
        self,
        make: Callable[[str], TableOperator],
        options: Materialized[K, A],
        name: str | None,
        prefix: str,
        value_serde: Serde[Any] | None,
    ) -> KTable[K, A]:
        def build(store_name: str, node_name: str) -> StoreBuilder:
            return options.builder(store_name, self._place.key_serde, value_serde)

        _, builder, operator, place = self.attach(make, build, options.store, name, prefix)
        return KTable(place.with_serdes(builder.key_serde, builder.value_serde), operator, options.store)

    def attach(
        self,
        make: Callable[[str], TableOperator],
        build: Callable[[str, str], StoreBuilder],
        store: str | None,
        name: str | None,
        prefix: str,
    ) -> tuple[ProcessorStep, StoreBuilder, TableOperator, Place]:
        """Attach an aggregation and its store, below a repartition if one is needed.

        ``make`` is called with the store's name, ``build`` with the names of store and node.
        """
        index = self._place.index
        store_name = store or index.store_name(prefix)
        node_name = name_or_generate(name, index, prefix)
        builder = build(store_name, node_name)
        place = self.repartitioned(store_name) if self._place.key_changed else self._place
        operator = make(store_name)
        step = ProcessorStep(node_name, operator, added_stores=[builder])
        return step, builder, operator, place.then(step)

    def repartitioned(self, store_name: str) -> Place:
        """Return the place below the repartition.

        A named repartition is shared by all aggregations. Otherwise each aggregation has one.
        """
        step = self._repartition(store_name)
        return self._below(step) if self._is_cogrouped else self._place.below_repartition(step)

    def _repartitioned_once(self, store_name: str, known: dict[KGroupedStream[Any, Any], RepartitionStep]) -> Place:
        """Return the place below the repartition in ``known``, or add a new one there.

        The repartition is attached only once. A node that is attached again is written later. The store of the
        aggregation below it would be written later, too, but the aggregations of the other streams need it.
        """
        step = self._repartition(store_name)  # takes numbers of the counter each time, as in Kafka Streams
        if self in known:
            return self._below(known[self])
        known[self] = step
        if self._is_cogrouped:
            return self._below(step)
        self._is_cogrouped = self._name is not None
        return self._place.below_repartition(step)

    def _repartition(self, store_name: str) -> RepartitionStep:
        names = RepartitionNames(self._name or store_name, self._place.index)
        step = self._shared_repartition
        if step is None:
            step = RepartitionStep(names, self._place.key_serde, self._place.value_serde)
            if self._name is not None:
                self._shared_repartition = step
        return step

    def _below(self, step: RepartitionStep) -> Place:
        """Return the place below a repartition that is already attached."""
        return dataclasses.replace(self._place, node=step, key_changed=False, sources=frozenset({step.names.source}))


def zero() -> int:
    """Return the first count."""
    return 0


def plus_one(key: object, value: object, count: int) -> int:
    """Count one record."""
    return count + 1
