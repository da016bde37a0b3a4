"""KTable: the latest value of each key."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from streams_py.errors import TopologyError
from streams_py.serdes import Serde
from streams_py.topology.declare.checks import checked
from streams_py.topology.declare.in_context import joiner_with_key, one_function
from streams_py.topology.declare.names import Prefix, check_name, name_or_generate, names_of
from streams_py.topology.declare.nodes import RecordContext
from streams_py.topology.declare.processor import ValueTransformer
from streams_py.topology.declare.stores import StoreBuilder, StoreKind
from streams_py.topology.dsl.foreign_key_joins import join_on_foreign_key
from streams_py.topology.dsl.options import Materialized, materialized_or_none
from streams_py.topology.dsl.place import Place
from streams_py.topology.dsl.suppressed import Suppressed
from streams_py.topology.dsl.table_joins import join_tables
from streams_py.topology.logical.graph import ProcessorStep
from streams_py.topology.operators.suppress import Suppress
from streams_py.topology.operators.table_transforms import TableTransformValues
from streams_py.topology.operators.tables import TableFilter, TableGroupBy, TableMapValues, TableOperator, TableToStream

if TYPE_CHECKING:
    from streams_py.topology.dsl.grouped_table import KGroupedTable
    from streams_py.topology.dsl.kstream import KStream

__all__ = ["KTable"]

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")
KO = TypeVar("KO")
VO = TypeVar("VO")
VR = TypeVar("VR")


@checked
class KTable(Generic[K, V]):
    """A table with keys of type K and values of type V (Kafka Streams' ``KTable``).

    Its updates are forwarded like records; a deleted key is an update to None. Results are stored only if a store is
    named (``store=``, or a :class:`Materialized` with a name), or if a later operation needs the store. Write
    ``with_context=f`` for a function that also gets the current record as its last argument: its topic, partition,
    offset, timestamp and headers. Without a store, a row may be computed again, for another record.
    """

    def __init__(self, place: Place, operator: TableOperator, queryable_store_name: str | None) -> None:
        self._place = place
        self._operator = operator
        self._queryable_store_name = queryable_store_name

    @property
    def queryable_store_name(self) -> str | None:
        """Name of its store if the user set one."""
        return self._queryable_store_name

    def filter(
        self,
        predicate: Callable[[K, V], object] | None = None,
        *,
        with_context: Callable[[K, V, RecordContext], object] | None = None,
        store: str | None = None,
        name: str | None = None,
        materialized: Materialized[K, V] | None = None,
    ) -> KTable[K, V]:
        """Keep the rows for which ``predicate(key, value)`` is true; other rows become deletions."""
        function = one_function(predicate, with_context, "filter needs one function: f(key, value)")
        return self._filter(function, materialized_or_none(materialized, store), name, negate=False)

    def filter_not(
        self,
        predicate: Callable[[K, V], object] | None = None,
        *,
        with_context: Callable[[K, V, RecordContext], object] | None = None,
        store: str | None = None,
        name: str | None = None,
        materialized: Materialized[K, V] | None = None,
    ) -> KTable[K, V]:
        """Drop the rows for which ``predicate(key, value)`` is true: they become deletions."""
        function = one_function(predicate, with_context, "filter_not needs one function: f(key, value)")
        return self._filter(function, materialized_or_none(materialized, store), name, negate=True)

    @overload
    def map_values(
        self,
        mapper: Callable[[V], V2],
        /,
        *,
        store: str | None = None,
        value: Serde[V2] | None = None,
        name: str | None = None,
        materialized: Materialized[K, V2] | None = None,
    ) -> KTable[K, V2]: ...
    @overload
    def map_values(
        self,
        /,
        *,
        with_key: Callable[[K, V], V2],
        store: str | None = None,
        value: Serde[V2] | None = None,
        name: str | None = None,
        materialized: Materialized[K, V2] | None = None,
    ) -> KTable[K, V2]: ...
    @overload
    def map_values(
        self,
        /,
        *,
        with_context: Callable[[K, V, RecordContext], V2],
        store: str | None = None,
        value: Serde[V2] | None = None,
        name: str | None = None,
        materialized: Materialized[K, V2] | None = None,
    ) -> KTable[K, V2]: ...
    def map_values(
        self,
        mapper: Callable[[V], V2] | None = None,
        /,
        *,
        with_key: Callable[[K, V], V2] | None = None,
        with_context: Callable[[K, V, RecordContext], V2] | None = None,
        store: str | None = None,
        value: Serde[V2] | None = None,
        name: str | None = None,
        materialized: Materialized[K, V2] | None = None,
    ) -> KTable[K, V2]:
        """Replace the value by ``mapper(value)``.

        Write ``with_key=f`` for an ``f(key, value)``. The function is not called for deletions, which stay deletions.
        ``value`` is the serde of new values.
        """
        if with_key is None and mapper is not None:
            by_value = mapper

            def with_key(key: K, value: V) -> V2:
                return by_value(value)

        function = one_function(
            with_key, with_context, "map_values needs one function: f(value), or with_key=f for f(key, value)"
        )
        options = materialized_or_none(materialized, store, None, value)
        if options is not None and options.store is None:
            self._place.index.store_name(Prefix.TABLE_MAP_VALUES)  # taken and thrown away, as in Kafka Streams
        operator = TableMapValues(self._operator, function, _store_of(options))
        return self._transform(operator, options, None, name, Prefix.TABLE_MAP_VALUES)

    @overload
    def to_stream(self, *, name: str | None = None) -> KStream[K, V]: ...
    @overload
    def to_stream(self, selector: Callable[[K, V], K2], *, name: str | None = None) -> KStream[K2, V]: ...
    @overload
    def to_stream(
        self, *, with_context: Callable[[K, V, RecordContext], K2], name: str | None = None
    ) -> KStream[K2, V]: ...
    def to_stream(
        self,
        selector: Callable[[K, V], K2] | None = None,
        *,
        with_context: Callable[[K, V, RecordContext], K2] | None = None,
        name: str | None = None,
    ) -> KStream[K, V] | KStream[K2, V]:
        """Return the table's updates as records; deletions have the value None.

        ``selector(key, value)`` returns new keys.
        """
        from streams_py.topology.dsl.kstream import KStream  # kstream imports this module

        place = self._place.process(name, Prefix.TABLE_TO_STREAM, TableToStream())
        stream: KStream[K, V] = KStream(place)
        if selector is None and with_context is None:
            return stream
        return stream.select_key(selector, with_context=with_context)

    def transform_values(
        self,
        supplier: Callable[[], ValueTransformer[K, V, V2]],
        *,
        stores: str | Iterable[str] = (),
        store: str | None = None,
        value: Serde[V2] | None = None,
        name: str | None = None,
        materialized: Materialized[K, V2] | None = None,
    ) -> KTable[K, V2]:
        """Replace values with one transformer object per task.

        It may use the named stores (see ``StreamsBuilder.add_state_store``). ``value`` is the serde of new values.
        Without a store for the result, old values are computed again. So a transformer whose results depend on earlier
        values needs ``store=``.
        """
        options = materialized_or_none(materialized, store, None, value) or Materialized()
        operator = TableTransformValues(self._operator, supplier, options.store or "")
        builder = options.builder(options.store or "", self._place.key_serde, None)
        step = ProcessorStep(
            name_or_generate(name, self._place.index, Prefix.TABLE_TRANSFORM_VALUES),
            operator,
            added_stores=[builder] if options.store is not None else [],
            stores=names_of(stores),
        )
        place = self._place.then(step)
        return KTable(place.with_serdes(builder.key_serde, builder.value_serde), operator, options.store)

    def suppress(
        self,
        suppressed: Suppressed,
        *,
        name: str | None = None,
        logging: bool = True,
        logging_config: Mapping[str, str] | None = None,
    ) -> KTable[K, V]:
        """Delay changes: ``suppress(Suppressed.until_window_closes())`` sends one final result per window.

        The buffer is in memory. It is also written to a changelog topic unless ``logging`` is False. Example:
        ``examples/operators/order_payment.py``.
        """
        if self._operator.is_versioned():
            raise TopologyError("suppress needs a table without versions, because it delays the latest change of a row")
        place, index = self._place, self._place.index
        node = index.node_name(Prefix.TABLE_SUPPRESS) if name is None else check_name(name)
        buffer = index.store_name(Prefix.TABLE_SUPPRESS) if name is None else check_name(f"{name}-store")
        operator = Suppress(self._operator, buffer, suppressed.rule(place.node, node))
        store = StoreBuilder(
            buffer,
            StoreKind.SUPPRESSION,
            place.key_serde,
            place.value_serde,
            persistent=False,
            logging=logging,
            logging_config=dict(logging_config or {}),
        )
        step = ProcessorStep(node, operator, added_stores=[store])
        below = dataclasses.replace(place.then(step), sources=frozenset({place.node.name}))  # as in Kafka Streams
        return KTable(below, operator, None)

    def group_by(
        self,
        selector: Callable[[K, V], tuple[K2 | None, V2 | None]] | None = None,
        *,
        with_context: Callable[[K, V, RecordContext], tuple[K2 | None, V2 | None]] | None = None,
        key: Serde[K2] | None = None,
        value: Serde[V2] | None = None,
        name: str | None = None,
    ) -> KGroupedTable[K2, V2]:
        """Group rows by ``selector(key, value)``, which returns the group and the value of a row.

        A group of None drops the row. It always repartitions. When a row changes, its old value is subtracted from its
        old group. Serdes that are not set are the configured default serdes.
        """
        from streams_py.topology.dsl.grouped_table import KGroupedTable  # grouped_table imports this module

        function = one_function(selector, with_context, "group_by needs one function: f(key, value)")
        place = self._place.process(name, Prefix.TABLE_SELECT, TableGroupBy(self._operator, function))
        self._operator.enable_old_values(force=True)
        return KGroupedTable(place.with_serdes(key, value), name)

    def _filter(
        self, predicate: Any, options: Materialized[K, V] | None, name: str | None, *, negate: bool
    ) -> KTable[K, V]:
        if options is not None and options.store is None:
            self._place.index.store_name(Prefix.TABLE_FILTER)  # taken and thrown away, as in Kafka Streams
        operator = TableFilter(self._operator, predicate, _store_of(options), negate=negate)
        return self._transform(operator, options, self._place.value_serde, name, Prefix.TABLE_FILTER)

    def _transform(
        self,
        operator: TableFilter | TableMapValues,
        options: Materialized[K, V2] | None,
        value_serde: Serde[Any] | None,
        name: str | None,
        prefix: str,
    ) -> KTable[K, V2]:
        options = options or Materialized()
        builder = options.builder(options.store or "", self._place.key_serde, value_serde)
        stores = [builder] if options.store is not None else []
        place = self._place.process(name, prefix, operator, stores=stores)
        return KTable(place.with_serdes(builder.key_serde, builder.value_serde), operator, options.store)

    # -- joins -----------------------------------------------------------------------------------------------

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

        Both tables are stored, and their topics must have the same number of partitions. The result has the larger
        timestamp of the two rows. It is stored under the name ``store`` if it is set, otherwise it is computed on each
        read.

        Write ``with_key=f`` for an ``f(key, value, other value)``, or ``with_context=f`` for an ``f(key, value, other
        value, record)`` that also gets the current record. ``value`` is the serde of results.

        ``on=f`` joins by a foreign key: ``f(key, value)`` returns the key of the other table's row (KIP-213). Changes
        of both tables go through internal topics, and the tables need not have the same number of partitions.
        """
        function = joiner_with_key(joiner, with_key, with_context, "join")
        options = materialized_or_none(materialized, store, None, value)
        return self._join(other, on, function, options, name, keeps_left=False, keeps_right=False)

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
        return self._join(other, on, function, options, name, keeps_left=True, keeps_right=False)

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
        return self._join(other, None, function, options, name, keeps_left=True, keeps_right=True)

    def _join(
        self,
        other: KTable[Any, VO],
        on: Callable[[K, V], Any] | None,
        joiner: Any,
        options: Materialized[K, VR] | None,
        name: str | None,
        *,
        keeps_left: bool,
        keeps_right: bool,
    ) -> KTable[K, VR]:
        if self._place.graph is not other._place.graph:
            raise TopologyError("only tables of one builder can be joined")
        left, right = (self._place, self._operator), (other._place, other._operator)
        if on is None:
            joined = join_tables(left, right, joiner, options, name, keeps_left=keeps_left, keeps_right=keeps_right)
        else:
            joined = join_on_foreign_key(left, right, on, joiner, options, name, keeps_left=keeps_left)
        return KTable(*joined, None if options is None else options.store)


def _store_of(options: Materialized[Any, Any] | None) -> str:
    return "" if options is None else options.store or ""
