"""Joins of tables, by key or by foreign key."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from streams_py.errors import TopologyError
from streams_py.serdes import Serde
from streams_py.topology.declare.checks import checked
from streams_py.topology.declare.in_context import rearranged
from streams_py.topology.declare.names import Prefix, name_or_generate, suffixed_or_generate
from streams_py.topology.declare.nodes import RecordContext
from streams_py.topology.dsl.foreign_key_joins import join_on_foreign_key
from streams_py.topology.dsl.joiners import joiner_with_key
from streams_py.topology.dsl.options import Materialized, materialized_or_none
from streams_py.topology.dsl.place import Place
from streams_py.topology.logical.graph import TableJoinStep
from streams_py.topology.operators.table_joins import TableJoin, TableJoinMerge
from streams_py.topology.operators.tables import TableOperator

if TYPE_CHECKING:
    from streams_py.topology.dsl.ktable import KTable

K = TypeVar("K")
V = TypeVar("V")
KO = TypeVar("KO")
VO = TypeVar("VO")
VR = TypeVar("VR")


@checked
class TableJoins(Generic[K, V]):
    """The joins of a :class:`~streams_py.topology.dsl.ktable.KTable`.

    Both tables are stored, and their topics must have the same number of partitions. The result has the larger
    timestamp of the two rows. It is stored under the name ``store`` if it is set, otherwise it is computed on each
    read.
    """

    _place: Place
    _operator: TableOperator

    @overload
    def join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[V, VO], VR] | None = None,
        *,
        with_key: Callable[[K, V, VO], VR] | None = None,
        with_context: Callable[[K, V, VO, RecordContext], VR] | None = None,
        store: str | None = None,
        value: Serde[VR] | None = None,
        name: str | None = None,
        materialized: Materialized[K, VR] | None = None,
    ) -> KTable[K, VR]: ...
    @overload
    def join(
        self,
        other: KTable[KO, VO],
        joiner: Callable[[V, VO], VR] | None = None,
        *,
        on: Callable[[K, V], KO | None],
        with_key: Callable[[K, V, VO], VR] | None = None,
        with_context: Callable[[K, V, VO, RecordContext], VR] | None = None,
        store: str | None = None,
        value: Serde[VR] | None = None,
        name: str | None = None,
        materialized: Materialized[K, VR] | None = None,
    ) -> KTable[K, VR]: ...
    def join(
        self,
        other: KTable[Any, VO],
        joiner: Callable[[V, VO], VR] | None = None,
        *,
        on: Callable[[K, V], Any] | None = None,
        with_key: Callable[[K, V, VO], VR] | None = None,
        with_context: Callable[[K, V, VO, RecordContext], VR] | None = None,
        store: str | None = None,
        value: Serde[VR] | None = None,
        name: str | None = None,
        materialized: Materialized[K, VR] | None = None,
    ) -> KTable[K, VR]:
        """Join rows of keys that both tables have: the result is ``joiner(value, other value)``.

        Write ``with_key=f`` for an ``f(key, value, other value)``, or ``with_context=f`` for an ``f(key, value, other
        value, record)`` that also gets the current record. ``value`` is the serde of results.

        ``on=f`` joins by a foreign key: ``f(key, value)`` returns the key of the other table's row (KIP-213). Changes
        of both tables go through internal topics, and the tables need not have the same number of partitions.
        """
        function = joiner_with_key(joiner, with_key, with_context, "join")
        options = materialized_or_none(materialized, store, None, value)
        if on is not None:
            return self._join_on(other, on, function, options, name, keeps_left=False)
        return self._join(other, function, options, name, keeps_left=False, keeps_right=False)

    @overload
    def left_join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[V, VO | None], VR] | None = None,
        *,
        with_key: Callable[[K, V, VO | None], VR] | None = None,
        with_context: Callable[[K, V, VO | None, RecordContext], VR] | None = None,
        store: str | None = None,
        value: Serde[VR] | None = None,
        name: str | None = None,
        materialized: Materialized[K, VR] | None = None,
    ) -> KTable[K, VR]: ...
    @overload
    def left_join(
        self,
        other: KTable[KO, VO],
        joiner: Callable[[V, VO | None], VR] | None = None,
        *,
        on: Callable[[K, V], KO | None],
        with_key: Callable[[K, V, VO | None], VR] | None = None,
        with_context: Callable[[K, V, VO | None, RecordContext], VR] | None = None,
        store: str | None = None,
        value: Serde[VR] | None = None,
        name: str | None = None,
        materialized: Materialized[K, VR] | None = None,
    ) -> KTable[K, VR]: ...
    def left_join(
        self,
        other: KTable[Any, VO],
        joiner: Callable[[V, VO | None], VR] | None = None,
        *,
        on: Callable[[K, V], Any] | None = None,
        with_key: Callable[[K, V, VO | None], VR] | None = None,
        with_context: Callable[[K, V, VO | None, RecordContext], VR] | None = None,
        store: str | None = None,
        value: Serde[VR] | None = None,
        name: str | None = None,
        materialized: Materialized[K, VR] | None = None,
    ) -> KTable[K, VR]:
        """Join like :meth:`join`, but keep rows without a row in the other table.

        The other value is then None.
        """
        function = joiner_with_key(joiner, with_key, with_context, "left_join")
        options = materialized_or_none(materialized, store, None, value)
        if on is not None:
            return self._join_on(other, on, function, options, name, keeps_left=True)
        return self._join(other, function, options, name, keeps_left=True, keeps_right=False)

    def outer_join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[V | None, VO | None], VR] | None = None,
        *,
        with_key: Callable[[K, V | None, VO | None], VR] | None = None,
        with_context: Callable[[K, V | None, VO | None, RecordContext], VR] | None = None,
        store: str | None = None,
        value: Serde[VR] | None = None,
        name: str | None = None,
        materialized: Materialized[K, VR] | None = None,
    ) -> KTable[K, VR]:
        """Join like :meth:`join`, but keep rows of keys that only one table has.

        The missing value is then None.
        """
        function = joiner_with_key(joiner, with_key, with_context, "outer_join")
        options = materialized_or_none(materialized, store, None, value)
        return self._join(other, function, options, name, keeps_left=True, keeps_right=True)

    def _join_on(
        self,
        other: KTable[Any, VO],
        extractor: Callable[[K, V], Any],
        joiner: Any,
        options: Materialized[K, VR] | None,
        name: str | None,
        *,
        keeps_left: bool,
    ) -> KTable[K, VR]:
        from streams_py.topology.dsl.ktable import KTable  # ktable imports this module

        if self._place.graph is not other._place.graph:
            raise TopologyError("only tables of one builder can be joined")
        place, operator = join_on_foreign_key(
            (self._place, self._operator),
            (other._place, other._operator),
            extractor,
            joiner,
            options,
            name,
            keeps_left=keeps_left,
        )
        return KTable(place, operator, None if options is None else options.store)

    def _join(
        self,
        other: KTable[K, VO],
        joiner: Any,
        options: Materialized[K, VR] | None,
        name: str | None,
        *,
        keeps_left: bool,
        keeps_right: bool,
    ) -> KTable[K, VR]:
        from streams_py.topology.dsl.ktable import KTable  # ktable imports this module

        here, there = self._place, other._place
        if here.graph is not there.graph:
            raise TopologyError("only tables of one builder can be joined")
        index = here.index
        kept = None
        if options is not None:
            kept = dataclasses.replace(options, store=options.store or index.store_name(Prefix.TABLE_MERGE))
        merge_name = name_or_generate(name, index, Prefix.TABLE_MERGE)
        sources = here.graph.copartition(here.sources | there.sources, merge_name)
        if keeps_left:
            self._operator.enable_old_values(force=True)
        if keeps_right:
            other._operator.enable_old_values(force=True)

        def reverse(joiner: Callable[..., Any]) -> Callable[..., Any]:
            return lambda key, right, left, *record: joiner(key, left, right, *record)

        left = TableJoin(self._operator, other._operator, joiner, keeps_this=keeps_left, keeps_other=keeps_right)
        right = TableJoin(
            other._operator, self._operator, rearranged(joiner, reverse), keeps_this=keeps_right, keeps_other=keeps_left
        )
        left_name = suffixed_or_generate(name, "-join-this", index, Prefix.TABLE_JOIN_THIS)
        right_name = suffixed_or_generate(name, "-join-other", index, Prefix.TABLE_JOIN_OTHER)
        merge = TableJoinMerge(left, right, "" if kept is None else kept.store or "")
        builders = [] if kept is None else [kept.builder(merge.store_name, here.key_serde, None)]
        step = TableJoinStep((left_name, right_name, merge_name), (here.node, there.node), left, right, merge, builders)
        here.graph.attach(step, here.node, there.node)
        key_serde = builders[0].key_serde if builders else here.key_serde
        value_serde = builders[0].value_serde if builders else None
        place = Place(here.graph, step, key_serde, value_serde, sources)
        return KTable(place, merge, None if options is None else options.store)
