"""Several grouped streams in one table (KIP-150; Kafka Streams' ``CogroupedKStream``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeAlias, TypeVar, overload

from streams_py.errors import TopologyError
from streams_py.serdes import Serde, Windowed
from streams_py.topology.checked import checked
from streams_py.topology.dsl.grouped_stream import COGROUP_NEEDS, KGroupedStream
from streams_py.topology.dsl.ktable import KTable
from streams_py.topology.dsl.options import Materialized, materialized_or_none
from streams_py.topology.dsl.place import Place
from streams_py.topology.dsl.window_options import AnyWindows, close_after_ms, window_store_of, windowed_key_serde
from streams_py.topology.dsl.windowed_stream import window_aggregate
from streams_py.topology.logical.graph import ProcessorStep
from streams_py.topology.names import Prefix, suffixed_or_generate
from streams_py.topology.nodes import RecordContext
from streams_py.topology.operators.aggregates import StreamAggregate
from streams_py.topology.operators.cogroup import CogroupMerge
from streams_py.topology.operators.in_context import one_function
from streams_py.topology.operators.sessions import SessionAggregate
from streams_py.topology.operators.tables import TableOperator
from streams_py.topology.stores import StoreBuilder
from streams_py.topology.windows import EmitStrategy, SessionWindows, SlidingWindows, TimeWindows

__all__ = ["CogroupedKStream", "SessionWindowedCogroupedKStream", "TimeWindowedCogroupedKStream"]

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")

_Aggregator: TypeAlias = Any
_Inputs: TypeAlias = "Sequence[tuple[KGroupedStream[Any, Any], _Aggregator]]"


@checked
class CogroupedKStream(Generic[K, A]):
    """Grouped streams with one aggregator each. Null rules are those of the aggregation of a single stream."""

    def __init__(self, inputs: _Inputs) -> None:
        self._inputs = tuple(inputs)

    def cogroup(
        self,
        grouped: KGroupedStream[K, V],
        aggregator: Callable[[K, V, A], A | None] | None = None,
        *,
        with_context: Callable[[K, V, A, RecordContext], A | None] | None = None,
    ) -> CogroupedKStream[K, A]:
        """Add a stream; ``aggregator(key, value, result so far)`` is for its records; ``with_context=f`` for an
        ``f(key, value, result so far, record)``."""
        function = one_function(aggregator, with_context, COGROUP_NEEDS)
        if grouped.place.graph is not self._inputs[0][0].place.graph:
            raise TopologyError("only streams of one builder can be cogrouped")
        return CogroupedKStream([*self._inputs, (grouped, function)])

    def aggregate(
        self,
        initializer: Callable[[], A],
        *,
        store: str | None = None,
        value: Serde[A] | None = None,
        name: str | None = None,
        materialized: Materialized[K, A] | None = None,
    ) -> KTable[K, A]:
        """The table of results, starting from ``initializer()``. ``value`` is the serde of results."""
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
        """Group by windows of time as well."""
        if isinstance(windows, SessionWindows):
            return SessionWindowedCogroupedKStream(self._inputs, windows)
        return TimeWindowedCogroupedKStream(self._inputs, windows)


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
        """The table of results per window, starting from ``initializer()``. ``value`` is the serde of results."""
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
        """The table of results per session, starting from ``initializer()``; ``merger(key, one result, another)`` gives
        that of two sessions that merge. ``value`` is the serde of results."""
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
    """Attach an aggregation per stream over one store, and what merges their results."""
    origin = inputs[0][0].place
    graph, index = origin.graph, origin.index
    store_name = store or index.store_name(Prefix.COGROUP_AGGREGATE)
    above = [grouped.repartitioned(store_name) if grouped.place.key_changed else grouped.place for grouped, _ in inputs]
    steps: list[ProcessorStep] = []
    operators: list[TableOperator] = []
    builder: StoreBuilder | None = None
    for number, (place, (_, aggregator)) in enumerate(zip(above, inputs, strict=True)):
        node = suffixed_or_generate(name, f"-cogroup-agg-{number}", index, Prefix.COGROUP_AGGREGATE)
        operator = make(store_name, aggregator)
        if builder is None:
            builder = build(store_name, node)
            step = ProcessorStep(node, operator, own_stores=[builder])
        else:
            step = ProcessorStep(node, operator, stores=[store_name])
        step.grace_ms = grace_ms
        operator.store_history_ms = builder.history_ms
        graph.attach(step, place.node)
        steps.append(step)
        operators.append(operator)
    assert builder is not None
    merge = CogroupMerge(store_name, operators)
    merge.store_history_ms = builder.history_ms
    merge_name = suffixed_or_generate(name, "-cogroup-merge", index, Prefix.COGROUP_MERGE)
    # The sides as they are *before* repartitioning: a quirk of Kafka Streams that decides over partition counts.
    graph.copartition(frozenset().union(*(grouped.place.sources for grouped, _ in inputs)), merge_name)
    merge_step = ProcessorStep(merge_name, merge)
    graph.attach(merge_step, *steps)
    # Its only source is the merge itself, which reads nothing: a quirk of Kafka Streams.
    return Place(graph, merge_step, None, None, frozenset({merge_name})), builder, merge
