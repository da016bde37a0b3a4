"""Windowed streams: aggregation into counts, sums or other state per key and window."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast, overload

from streams_py.errors import TopologyError
from streams_py.serdes import INT64, Serde, Windowed
from streams_py.topology.declare.checks import checked
from streams_py.topology.declare.in_context import one_function, rearranged
from streams_py.topology.declare.names import Prefix
from streams_py.topology.declare.nodes import RecordContext
from streams_py.topology.declare.stores import StoreBuilder
from streams_py.topology.declare.windows import EmitStrategy, SessionWindows, SlidingWindows, TimeWindows
from streams_py.topology.dsl.grouped_stream import AGGREGATE_NEEDS, KGroupedStream, plus_one, zero
from streams_py.topology.dsl.ktable import KTable
from streams_py.topology.dsl.options import Initializer, Materialized, materialized_or_none
from streams_py.topology.dsl.window_options import AnyWindows, close_after_ms, window_store_of, windowed_key_serde
from streams_py.topology.operators.sessions import SessionAggregate
from streams_py.topology.operators.sliding import SlidingWindowAggregate
from streams_py.topology.operators.tables import TableOperator
from streams_py.topology.operators.windowed import TimeWindowAggregate

__all__ = ["SessionWindowedKStream", "TimeWindowedKStream", "window_aggregate"]

_REDUCE_NEEDS = "reduce needs one function: f(result, value)"

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")


def window_aggregate(
    windows: TimeWindows | SlidingWindows,
    emit: EmitStrategy,
    store: str,
    initializer: Callable[[], Any],
    aggregator: Any,
) -> TableOperator:
    """Return the operator for this kind of windows."""
    if isinstance(windows, TimeWindows):
        return TimeWindowAggregate(store, windows, emit, initializer, aggregator)
    return SlidingWindowAggregate(store, windows, emit, initializer, aggregator)


@checked
class _WindowedKStream(Generic[K, V]):
    """Base class of both kinds."""

    def __init__(self, grouped: KGroupedStream[K, V], windows: AnyWindows, emit: EmitStrategy) -> None:
        self._grouped = grouped
        self._windows = windows
        self._emit = emit

    def _counted(self, materialized: Materialized[K, int] | None, store: str | None) -> Materialized[K, int]:
        options = materialized_or_none(materialized, store)
        if options is not None and options.store is None and not isinstance(self._windows, SlidingWindows):
            self._grouped.place.index.store_name(Prefix.AGGREGATE)  # taken and thrown away, as in Kafka Streams
        options = options or Materialized()
        return options if options.value is not None else dataclasses.replace(options, value=INT64)

    def _aggregate(
        self,
        make: Callable[[str], TableOperator],
        options: Materialized[K, A],
        name: str | None,
        prefix: str,
        value_serde: Serde[Any] | None,
    ) -> KTable[Windowed[K], A]:
        def build(store_name: str, node_name: str) -> StoreBuilder:
            key = self._grouped.place.key_serde
            return window_store_of(options, self._windows, self._emit, store_name, node_name, key, value_serde)

        step, builder, operator, place = self._grouped.attach(make, build, options.store, name, prefix)
        step.grace_ms = close_after_ms(self._windows)
        place = place.with_serdes(windowed_key_serde(self._windows, builder.key_serde), builder.value_serde)
        return KTable(place, operator, options.store)


@checked
class TimeWindowedKStream(_WindowedKStream[K, V]):
    """Records grouped by key and by time or sliding windows (``TimeWindowedKStream``).

    Results are tables with :class:`Windowed` keys. Records without a key and records that are too late for their
    windows are dropped. Sliding windows also drop null values; in time windows the aggregator gets them.
    """

    def count(
        self, *, store: str | None = None, name: str | None = None, materialized: Materialized[K, int] | None = None
    ) -> KTable[Windowed[K], int]:
        """Return the number of records per key and window, as int64."""
        options = self._counted(materialized, store)
        return self._aggregate(self._make(zero, plus_one), options, name, Prefix.AGGREGATE, None)

    def reduce(
        self,
        reducer: Callable[[V, V], V | None] | None = None,
        *,
        with_context: Callable[[V, V, RecordContext], V | None] | None = None,
        store: str | None = None,
        name: str | None = None,
        materialized: Materialized[K, V] | None = None,
    ) -> KTable[Windowed[K], V]:
        """Combine the values of each key and window with ``reducer(result so far, value)``.

        The first value is the first result. Write ``with_context=f`` for an ``f(result so far, value, record)``.
        """
        function = one_function(reducer, with_context, _REDUCE_NEEDS)
        options = materialized_or_none(materialized, store) or Materialized()
        make = self._make(_nothing, rearranged(function, _reduced))
        return self._aggregate(make, options, name, Prefix.REDUCE, self._grouped.place.value_serde)

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
    ) -> KTable[Windowed[K], A]: ...
    @overload
    def aggregate(
        self,
        initializer: Callable[[], A],
        aggregator: Callable[[K, V, A], A | None] | None = None,
        *,
        with_context: Callable[[K, V, A, RecordContext], A | None] | None = None,
        name: str | None = None,
        materialized: Materialized[K, A],
    ) -> KTable[Windowed[K], A]: ...
    @overload
    def aggregate(
        self,
        initializer: Initializer[A],
        aggregator: Callable[[K, V, A], A | None] | None = None,
        *,
        with_context: Callable[[K, V, A, RecordContext], A | None] | None = None,
        store: str | None = None,
        name: str | None = None,
    ) -> KTable[Windowed[K], A]: ...
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
    ) -> KTable[Windowed[K], A]:
        """Aggregate each key and window with ``aggregator(key, value, result so far)``.

        The first result is ``initializer()``. ``value`` is the serde of results. A result of None deletes the window.
        Write ``with_context=f`` for an ``f(key, value, result so far, record)``.
        """
        function = one_function(aggregator, with_context, AGGREGATE_NEEDS)
        options = materialized_or_none(materialized, store, None, value) or Materialized()
        return self._aggregate(self._make(initializer, function), options, name, Prefix.AGGREGATE, None)

    def _make(self, initializer: Callable[[], Any], aggregator: Any) -> Callable[[str], TableOperator]:
        windows = cast("TimeWindows | SlidingWindows", self._windows)
        return lambda store: window_aggregate(windows, self._emit, store, initializer, aggregator)


@checked
class SessionWindowedKStream(_WindowedKStream[K, V]):
    """Records grouped by key and into sessions (Kafka Streams' ``SessionWindowedKStream``).

    Results are tables with :class:`Windowed` keys. When sessions merge, the old ones are deleted. Records without a key
    and records that are too late are dropped. The aggregator gets null values.
    """

    def count(
        self, *, store: str | None = None, name: str | None = None, materialized: Materialized[K, int] | None = None
    ) -> KTable[Windowed[K], int]:
        """Return the number of records per key and session, as int64."""
        options = self._counted(materialized, store)
        return self._aggregate(self._make(zero, plus_one, _both), options, name, Prefix.AGGREGATE, None)

    def reduce(
        self,
        reducer: Callable[[V, V], V | None] | None = None,
        *,
        with_context: Callable[[V, V, RecordContext], V | None] | None = None,
        store: str | None = None,
        name: str | None = None,
        materialized: Materialized[K, V] | None = None,
    ) -> KTable[Windowed[K], V]:
        """Combine the values of each session with ``reducer(result so far, value)``.

        It also combines the results of two merged sessions. The first value is the first result. Write
        ``with_context=f`` for an ``f(result so far, value, record)``.
        """
        function = one_function(reducer, with_context, _REDUCE_NEEDS)
        options = materialized_or_none(materialized, store) or Materialized()
        make = self._make(_nothing, rearranged(function, _reduced), rearranged(function, _merged))
        return self._aggregate(make, options, name, Prefix.REDUCE, self._grouped.place.value_serde)

    @overload
    def aggregate(
        self,
        initializer: Callable[[], A],
        aggregator: Callable[[K, V, A], A | None] | None = None,
        merger: Callable[[K, A, A], A | None] | None = None,
        *,
        with_context: Callable[[K, V, A, RecordContext], A | None] | None = None,
        store: str | None = None,
        value: Serde[A],
        name: str | None = None,
    ) -> KTable[Windowed[K], A]: ...
    @overload
    def aggregate(
        self,
        initializer: Callable[[], A],
        aggregator: Callable[[K, V, A], A | None] | None = None,
        merger: Callable[[K, A, A], A | None] | None = None,
        *,
        with_context: Callable[[K, V, A, RecordContext], A | None] | None = None,
        name: str | None = None,
        materialized: Materialized[K, A],
    ) -> KTable[Windowed[K], A]: ...
    @overload
    def aggregate(
        self,
        initializer: Initializer[A],
        aggregator: Callable[[K, V, A], A | None] | None = None,
        merger: Callable[[K, A, A], A | None] | None = None,
        *,
        with_context: Callable[[K, V, A, RecordContext], A | None] | None = None,
        store: str | None = None,
        name: str | None = None,
    ) -> KTable[Windowed[K], A]: ...
    def aggregate(
        self,
        initializer: Callable[[], A],
        aggregator: Callable[[K, V, A], A | None] | None = None,
        merger: Callable[[K, A, A], A | None] | None = None,
        *,
        with_context: Callable[[K, V, A, RecordContext], A | None] | None = None,
        store: str | None = None,
        value: Serde[A] | None = None,
        name: str | None = None,
        materialized: Materialized[K, A] | None = None,
    ) -> KTable[Windowed[K], A]:
        """Aggregate each session with ``aggregator(key, value, result so far)``.

        The first result is ``initializer()``. ``merger(key, one result, another result)`` returns the result of two
        merged sessions. ``value`` is the serde of results. A result of None deletes the session. Write
        ``with_context=f`` for an ``f(key, value, result so far, record)``, and pass the merger as ``merger=``.
        """
        function = one_function(aggregator, with_context, AGGREGATE_NEEDS)
        if merger is None:
            raise TopologyError("aggregate of sessions needs a merger: f(key, one result, another result)")
        options = materialized_or_none(materialized, store, None, value) or Materialized()
        return self._aggregate(self._make(initializer, function, merger), options, name, Prefix.AGGREGATE, None)

    def _make(self, initializer: Callable[[], Any], aggregator: Any, merger: Any) -> Callable[[str], TableOperator]:
        windows = cast("SessionWindows", self._windows)
        return lambda store: SessionAggregate(store, windows, self._emit, initializer, aggregator, merger)


def _nothing() -> None:
    return None


def _both(key: object, one: int, other: int) -> int:
    return one + other


def _reduced(reducer: Callable[..., Any]) -> Callable[..., Any]:
    return lambda key, value, result, *record: value if result is None else reducer(result, value, *record)


def _merged(reducer: Callable[..., Any]) -> Callable[..., Any]:
    return lambda key, one, other, *record: other if one is None else reducer(one, other, *record)
