"""Aggregation of several grouped streams into one table (KIP-150; ``CogroupedKStream``)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar, overload

from streams_py.errors import TopologyError
from streams_py.serdes import Serde, Windowed
from streams_py.topology.declare.checks import checked
from streams_py.topology.declare.in_context import one_function
from streams_py.topology.declare.names import Prefix, suffixed_or_generate
from streams_py.topology.declare.nodes import RecordContext
from streams_py.topology.declare.stores import StoreBuilder
from streams_py.topology.declare.windows import EmitStrategy, SessionWindows, SlidingWindows, TimeWindows
from streams_py.topology.dsl.grouped_stream import COGROUP_NEEDS, KGroupedStream
from streams_py.topology.dsl.ktable import KTable
from streams_py.topology.dsl.options import Materialized, materialized_or_none
from streams_py.topology.dsl.place import Place
from streams_py.topology.dsl.window_options import AnyWindows, close_after_ms, window_store_of, windowed_key_serde
from streams_py.topology.dsl.windowed_stream import window_aggregate
from streams_py.topology.logical.graph import ProcessorStep, RepartitionStep
from streams_py.topology.operators.aggregates import CogroupMerge, StreamAggregate
from streams_py.topology.operators.sessions import SessionAggregate
from streams_py.topology.operators.tables import TableOperator

__all__ = ["CogroupedKStream", "SessionWindowedCogroupedKStream", "TimeWindowedCogroupedKStream", "cogrouped"]

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")

_Aggregator: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class _Inputs:
    """The grouped streams with their aggregators.

    Objects that continue one another share ``repartitions``: one for each grouping, for all aggregations.
    """

    streams: tuple[tuple[KGroupedStream[Any, Any], _Aggregator], ...]
    repartitions: dict[KGroupedStream[Any, Any], RepartitionStep] = field(default_factory=dict)

    def with_stream(self, grouped: KGroupedStream[Any, Any], aggregator: _Aggregator) -> _Inputs:
        """Return these streams and another one."""
        return _Inputs((*self.streams, (grouped, aggregator)), self.repartitions)

    def places(self, store_name: str) -> list[Place]:
        """Return the place where each stream is aggregated: below its repartition if it needs one."""
        return [
            grouped._repartitioned_once(store_name, self.repartitions) if grouped.place.key_changed else grouped.place
            for grouped, _ in self.streams
        ]


@checked
class CogroupedKStream(Generic[K, A]):
    """Grouped streams with one aggregator each.

    The rules for null values are the same as for the aggregation of a single stream. :meth:`cogroup` returns a new
    object and does not change this one. In Kafka Streams it changes the object.
    """

    def __init__(self, inputs: _Inputs) -> None:
        self._inputs = inputs

    def cogroup(
        self,
        grouped: KGroupedStream[K, V],
        aggregator: Callable[[K, V, A], A | None] | None = None,
        *,
        with_context: Callable[[K, V, A, RecordContext], A | None] | None = None,
    ) -> CogroupedKStream[K, A]:
        """Add a stream whose records are aggregated by ``aggregator(key, value, result so far)``.

        Write ``with_context=f`` for an ``f(key, value, result so far, record)``.
        """
        function = one_function(aggregator, with_context, COGROUP_NEEDS)
        if grouped.place.graph is not self._inputs.streams[0][0].place.graph:
            raise TopologyError("only streams of one builder can be cogrouped")
        return CogroupedKStream(self._inputs.with_stream(grouped, function))

    def aggregate(
        self,
        initializer: Callable[[], A],
        *,
        store: str | None = None,
        value: Serde[A] | None = None,
        name: str | None = None,
        materialized: Materialized[K, A] | None = None,
    ) -> KTable[K, A]:
        """Return the table of results, starting from ``initializer()``.

        ``value`` is the serde of results.
        """
        options = materialized_or_none(materialized, store, None, value) or Materialized()

        def make(store_name: str, aggregator: _Aggregator) -> TableOperator:
            return StreamAggregate(store_name, initializer, aggregator)

        def build(store_name: str, node: str) -> StoreBuilder:
            return options.builder(store_name, None, None)

        place, builder, merge = _attach(self._inputs, make, build, options.store, name, None)
        return KTable(place.with_serdes(builder.key_serde, builder.value_serde), merge, options.store)

    @overload
    def windowed_by(self, windows: TimeWindows | SlidingWindows) -> TimeWindowedCogroupedKStream[K, A]: ...
    @overload
    def windowed_by(self, windows: SessionWindows) -> SessionWindowedCogroupedKStream[K, A]: ...
    def windowed_by(
        self, windows: TimeWindows | SlidingWindows | SessionWindows
    ) -> TimeWindowedCogroupedKStream[K, A] | SessionWindowedCogroupedKStream[K, A]:
        """Group additionally by time windows."""
        if isinstance(windows, SessionWindows):
            return SessionWindowedCogroupedKStream(self._inputs, windows)
        return TimeWindowedCogroupedKStream(self._inputs, windows)


def cogrouped(grouped: KGroupedStream[Any, Any], aggregator: _Aggregator) -> CogroupedKStream[Any, Any]:
    """Return one stream, to which others can be added."""
    return CogroupedKStream(_Inputs(((grouped, aggregator),)))


@checked
class TimeWindowedCogroupedKStream(Generic[K, A]):
    """Cogrouped streams in time or sliding windows."""

    def __init__(self, inputs: _Inputs, windows: TimeWindows | SlidingWindows) -> None:
        self._inputs = inputs
        self._windows = windows

    def aggregate(
        self,
        initializer: Callable[[], A],
        *,
        store: str | None = None,
        value: Serde[A] | None = None,
        name: str | None = None,
        materialized: Materialized[K, A] | None = None,
    ) -> KTable[Windowed[K], A]:
        """Return the table of results per window, starting from ``initializer()``.

        ``value`` is the serde of results.
        """
        options = materialized_or_none(materialized, store, None, value) or Materialized()

        def make(store_name: str, aggregator: _Aggregator) -> TableOperator:
            return window_aggregate(self._windows, EmitStrategy.ON_WINDOW_UPDATE, store_name, initializer, aggregator)

        return _windowed_table(self._inputs, make, options, self._windows, name)


@checked
class SessionWindowedCogroupedKStream(Generic[K, A]):
    """Cogrouped streams in sessions."""

    def __init__(self, inputs: _Inputs, windows: SessionWindows) -> None:
        self._inputs = inputs
        self._windows = windows

    def aggregate(
        self,
        initializer: Callable[[], A],
        merger: Callable[[K, A, A], A | None],
        *,
        store: str | None = None,
        value: Serde[A] | None = None,
        name: str | None = None,
        materialized: Materialized[K, A] | None = None,
    ) -> KTable[Windowed[K], A]:
        """Return the table of results per session, starting from ``initializer()``.

        ``merger(key, one result, another result)`` returns the result of two merged sessions. ``value`` is the serde of
        results.
        """
        options = materialized_or_none(materialized, store, None, value) or Materialized()

        def make(store_name: str, aggregator: _Aggregator) -> TableOperator:
            emit = EmitStrategy.ON_WINDOW_UPDATE
            return SessionAggregate(store_name, self._windows, emit, initializer, aggregator, merger)

        return _windowed_table(self._inputs, make, options, self._windows, name)


def _windowed_table(
    inputs: _Inputs,
    make: Callable[[str, _Aggregator], TableOperator],
    options: Materialized[Any, Any],
    windows: AnyWindows,
    name: str | None,
) -> KTable[Any, Any]:
    def build(store_name: str, node: str) -> StoreBuilder:
        emit = EmitStrategy.ON_WINDOW_UPDATE
        return window_store_of(options, windows, emit, store_name, node, None, None)

    grace_ms = close_after_ms(windows)
    place, builder, merge = _attach(inputs, make, build, options.store, name, grace_ms)
    place = place.with_serdes(windowed_key_serde(windows, builder.key_serde), builder.value_serde)
    return KTable(place, merge, options.store)


def _attach(
    inputs: _Inputs,
    make: Callable[[str, _Aggregator], TableOperator],
    build: Callable[[str, str], StoreBuilder],
    store: str | None,
    name: str | None,
    grace_ms: int | None,
) -> tuple[Place, StoreBuilder, CogroupMerge]:
    """Attach one aggregation per stream over a common store, and a node that merges their results."""
    origin = inputs.streams[0][0].place
    graph, index = origin.graph, origin.index
    store_name = store or index.store_name(Prefix.COGROUP_AGGREGATE)
    steps: list[ProcessorStep] = []
    operators: list[TableOperator] = []
    builder: StoreBuilder | None = None
    for number, (place, (_, aggregator)) in enumerate(zip(inputs.places(store_name), inputs.streams, strict=True)):
        node = suffixed_or_generate(name, f"-cogroup-agg-{number}", index, Prefix.COGROUP_AGGREGATE)
        operator = make(store_name, aggregator)
        if builder is None:
            builder = build(store_name, node)
            step = ProcessorStep(node, operator, added_stores=[builder])
        else:
            step = ProcessorStep(node, operator, stores=[store_name])
        step.grace_ms = grace_ms
        operator.store_history_ms = builder.history_ms
        operator.shares_store = len(inputs.streams) > 1
        graph.attach(step, place.node)
        steps.append(step)
        operators.append(operator)
    assert builder is not None
    merge = CogroupMerge(store_name, operators)
    merge.store_history_ms = builder.history_ms
    merge_name = suffixed_or_generate(name, "-cogroup-merge", index, Prefix.COGROUP_MERGE)
    # The sides *before* repartitioning: a quirk of Kafka Streams that determines partition counts.
    graph.copartition(frozenset().union(*(grouped.place.sources for grouped, _ in inputs.streams)), merge_name)
    merge_step = ProcessorStep(merge_name, merge)
    graph.attach(merge_step, *steps)
    # Its only source is the merge itself, which does not read topics: a quirk of Kafka Streams.
    return Place(graph, merge_step, None, None, frozenset({merge_name})), builder, merge
