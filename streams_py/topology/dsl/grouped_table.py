"""Grouped tables: aggregates of the rows of a table, corrected when rows change."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

from streams_py.serdes import INT64, Serde
from streams_py.topology.declare.checks import checked
from streams_py.topology.declare.names import Prefix, name_or_generate, suffixed_or_generate
from streams_py.topology.dsl.ktable import KTable
from streams_py.topology.dsl.options import Initializer, Materialized, materialized_or_none
from streams_py.topology.dsl.place import Place
from streams_py.topology.logical.graph import ProcessorStep, TableRepartitionStep
from streams_py.topology.operators.aggregates import GroupedTableAggregate, GroupedTableReduce
from streams_py.topology.operators.tables import TableOperator

__all__ = ["KGroupedTable"]

K = TypeVar("K")
V = TypeVar("V")
A = TypeVar("A")


@checked
class KGroupedTable(Generic[K, V]):
    """Grouped rows of a table (Kafka Streams' ``KGroupedTable``).

    Each change of a row subtracts the row's old value and adds its new value. Results are stored, under the name
    ``store`` if it is set, and written to a changelog topic.
    """

    def __init__(self, place: Place, name: str | None) -> None:
        self._place = place
        self._name = name
        self._shared_repartition: TableRepartitionStep | None = None

    def count(
        self, *, store: str | None = None, name: str | None = None, materialized: Materialized[K, int] | None = None
    ) -> KTable[K, int]:
        """Return the number of rows per group, as int64. The count of an emptied group is 0."""
        options = materialized_or_none(materialized, store) or Materialized()
        if options.value is None:
            options = dataclasses.replace(options, value=INT64)

        def make(store: str) -> TableOperator:
            return GroupedTableAggregate(store, _zero, _plus_one, _minus_one)

        return self._aggregate(make, options, name, Prefix.TABLE_AGGREGATE, None)

    def reduce(
        self,
        adder: Callable[[V, V], V | None],
        subtractor: Callable[[V, V], V | None],
        *,
        store: str | None = None,
        name: str | None = None,
        materialized: Materialized[K, V] | None = None,
    ) -> KTable[K, V]:
        """Combine the values of each group with two functions.

        ``adder(result so far, new value)`` and ``subtractor(result so far, old value)`` return the new result. The
        first new value is the first result. None deletes the group.
        """
        options = materialized_or_none(materialized, store) or Materialized()

        def make(store: str) -> TableOperator:
            return GroupedTableReduce(store, adder, subtractor)

        return self._aggregate(make, options, name, Prefix.TABLE_REDUCE, self._place.value_serde)

    @overload
    def aggregate(
        self,
        initializer: Callable[[], A],
        adder: Callable[[K, V, A], A | None],
        subtractor: Callable[[K, V, A], A | None],
        *,
        store: str | None = None,
        value: Serde[A],
        name: str | None = None,
    ) -> KTable[K, A]: ...
    @overload
    def aggregate(
        self,
        initializer: Callable[[], A],
        adder: Callable[[K, V, A], A | None],
        subtractor: Callable[[K, V, A], A | None],
        *,
        name: str | None = None,
        materialized: Materialized[K, A],
    ) -> KTable[K, A]: ...
    @overload
    def aggregate(
        self,
        initializer: Initializer[A],
        adder: Callable[[K, V, A], A | None],
        subtractor: Callable[[K, V, A], A | None],
        *,
        store: str | None = None,
        name: str | None = None,
    ) -> KTable[K, A]: ...
    def aggregate(
        self,
        initializer: Callable[[], A],
        adder: Callable[[K, V, A], A | None],
        subtractor: Callable[[K, V, A], A | None],
        *,
        store: str | None = None,
        value: Serde[A] | None = None,
        name: str | None = None,
        materialized: Materialized[K, A] | None = None,
    ) -> KTable[K, A]:
        """Aggregate each group with two functions, starting from ``initializer()``.

        ``adder(key, new value, result so far)`` and ``subtractor(key, old value, result so far)`` return the new
        result. ``value`` is the serde of results.
        """
        options = materialized_or_none(materialized, store, None, value) or Materialized()

        def make(store: str) -> TableOperator:
            return GroupedTableAggregate(store, initializer, adder, subtractor)

        return self._aggregate(make, options, name, Prefix.TABLE_AGGREGATE, None)

    def _aggregate(
        self,
        make: Callable[[str], TableOperator],
        options: Materialized[K, A],
        name: str | None,
        prefix: str,
        value_serde: Serde[Any] | None,
    ) -> KTable[K, A]:
        place, index = self._place, self._place.index
        # Stores of reduce are called AGGREGATE, too, as in Kafka Streams.
        store_name = options.store or index.store_name(Prefix.TABLE_AGGREGATE)
        sink = suffixed_or_generate(name, "-sink", index, Prefix.SINK)
        source = suffixed_or_generate(name, "-source", index, Prefix.SOURCE)
        node_name = name_or_generate(name, index, prefix)
        step = self._shared_repartition
        if step is None:
            base = self._name or store_name
            step = TableRepartitionStep(sink, source, base, place.key_serde, place.value_serde)
            if self._name is not None:
                self._shared_repartition = step
        # Even with a shared repartition, use the source that this call would have created. In Kafka Streams, too, the
        # second result adds no topic to later joins, and the partition counts of internal topics depend on that.
        below = dataclasses.replace(place.then(step, key_changed=False), sources=frozenset({source}))
        builder = options.builder(store_name, place.key_serde, value_serde)
        operator = make(store_name)
        result = below.then(ProcessorStep(node_name, operator, added_stores=[builder]))
        return KTable(result.with_serdes(builder.key_serde, builder.value_serde), operator, options.store)


def _zero() -> int:
    return 0


def _plus_one(key: object, value: object, count: int) -> int:
    return count + 1


def _minus_one(key: object, value: object, count: int) -> int:
    return count - 1
