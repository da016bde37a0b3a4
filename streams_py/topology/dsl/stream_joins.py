"""Joins of streams with streams in a time window, with tables, and with global tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar, overload

from streams_py.errors import TopologyError
from streams_py.serdes import Serde
from streams_py.topology.declare.checks import check_given, checked
from streams_py.topology.declare.durations import Duration, duration_ms
from streams_py.topology.declare.names import Prefix, RepartitionNames, check_name, name_or_generate
from streams_py.topology.declare.nodes import RecordContext
from streams_py.topology.declare.stores import StoreBuilder, StoreKind
from streams_py.topology.declare.windows import JoinWindows
from streams_py.topology.dsl.global_table import GlobalKTable
from streams_py.topology.dsl.joiners import joiner_with_key
from streams_py.topology.dsl.place import Place
from streams_py.topology.dsl.windowed_joins import StreamJoinOptions, join_streams
from streams_py.topology.logical.graph import ProcessorStep, RepartitionStep
from streams_py.topology.operators.stream_joins import GlobalTableJoin, StreamTableJoin

if TYPE_CHECKING:
    from streams_py.topology.dsl.kstream import KStream
    from streams_py.topology.dsl.ktable import KTable

    Joinable: TypeAlias = KStream[Any, Any] | KTable[Any, Any] | GlobalKTable[Any, Any]

_OPTIONS: Final[Mapping[str, str]] = {
    **{field.name: str(field.type) for field in dataclasses.fields(StreamJoinOptions)},
    "grace": "Duration | None",
}
"""Keyword options of joins with their annotations. Not every join has every option."""

K = TypeVar("K")
V = TypeVar("V")
VO = TypeVar("VO")
VR = TypeVar("VR")
KG = TypeVar("KG")


@checked
class StreamJoins(Generic[K, V]):
    """The joins of a :class:`~streams_py.topology.dsl.kstream.KStream`.

    Topics that are joined by key must have the same number of partitions. A stream with changed keys is repartitioned
    first.
    """

    _place: Place
    _join_repartition: RepartitionStep | None = None

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
        other: Joinable,
        joiner: Callable[[Any, Any], Any] | None = None,
        windows: JoinWindows | None = None,
        *,
        on: Callable[[Any, Any], Any] | None = None,
        with_key: Callable[[Any, Any, Any], Any] | None = None,
        with_context: Callable[[Any, Any, Any, RecordContext], Any] | None = None,
        **options: Any,
    ) -> KStream[K, Any]:
        """Join by key: the result is ``joiner(value, other value)``.

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
        return self._join(other, function, windows, on, options)

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
        other: Joinable,
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
        return self._join(other, function, windows, on, options, keeps_left=True)

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
        return self._join(other, function, windows, None, options, keeps_left=True, keeps_right=True)

    def _join(
        self,
        other: Joinable,
        joiner: Any,
        windows: JoinWindows | None,
        on: Callable[[Any, Any], Any] | None,
        options: Mapping[str, Any],
        *,
        keeps_left: bool = False,
        keeps_right: bool = False,
    ) -> KStream[Any, Any]:
        from streams_py.topology.dsl.ktable import KTable  # ktable and kstream import this module

        graph = other._graph if isinstance(other, GlobalKTable) else other._place.graph
        if self._place.graph is not graph:
            raise TopologyError("only streams and tables of one builder can be joined")
        if isinstance(other, GlobalKTable):
            if on is None or windows is not None:
                raise TopologyError(
                    "a join with a global table has no windows and needs on=f: f(key, value) returns the table's key"
                )
            _check_options(options, ("name",), "a global table")
            return self._join_global_table(other, joiner, on, keeps_stream=keeps_left, **options)
        if on is not None:
            raise TopologyError("on= is for global tables; streams and tables are joined by the record's key")
        if isinstance(other, KTable):
            if windows is not None:
                raise TopologyError("a join with a table has no windows: a record is joined with the current row")
            _check_options(options, ("key", "value", "grace", "name"), "a table")
            return self._join_table(other, joiner, keeps_stream=keeps_left, **options)
        if windows is None:
            raise TopologyError("a join of two streams needs windows: JoinWindows.of(difference)")
        _check_options(options, [field.name for field in dataclasses.fields(StreamJoinOptions)], "a stream")
        return self._join_stream(
            other, joiner, windows, StreamJoinOptions(**options), keeps_left=keeps_left, keeps_right=keeps_right
        )

    def _join_stream(
        self,
        other: KStream[Any, Any],
        joiner: Any,
        windows: JoinWindows,
        options: StreamJoinOptions,
        *,
        keeps_left: bool,
        keeps_right: bool,
    ) -> KStream[Any, Any]:
        from streams_py.topology.dsl.kstream import KStream  # kstream imports this module

        name, left, right = options.name, self._place, other._place
        if left.key_changed:
            base = left.node.name if name is None else check_name(f"{name}-left")
            left = self._repartitioned_for_join(base, options.key, options.value)
        if right.key_changed:
            base = right.node.name if name is None else check_name(f"{name}-right")
            right = other._repartitioned_for_join(base, options.key, options.other_value)
        joined = join_streams(left, right, joiner, windows, options, keeps_left=keeps_left, keeps_right=keeps_right)
        left.graph.copartition(left.sources | right.sources, joined.node.name)
        return KStream(joined)

    def _join_table(
        self,
        table: KTable[Any, Any],
        joiner: Any,
        *,
        keeps_stream: bool,
        key: Serde[Any] | None = None,
        value: Serde[Any] | None = None,
        grace: Duration | None = None,
        name: str | None = None,
    ) -> KStream[Any, Any]:
        from streams_py.topology.dsl.kstream import KStream  # kstream imports this module

        place, there = self._place, table._place
        if place.key_changed:
            place = self._repartitioned_for_join(name or place.node.name, key, value)
        node_name = name_or_generate(name, place.index, Prefix.LEFT_JOIN if keeps_stream else Prefix.JOIN)
        sources = place.graph.copartition(place.sources | there.sources, node_name)
        buffers, grace_ms = [], 0
        if grace is not None:
            grace_ms = _grace_ms(grace, node_name, table._operator.history_ms())
            known = place.with_serdes(key or place.key_serde, value or place.value_serde)
            kind = StoreKind.JOIN_BUFFER
            buffers.append(StoreBuilder(f"{node_name}-Buffer", kind, known.key_serde, known.value_serde))
        buffer = buffers[0].name if buffers else ""
        step = ProcessorStep(
            node_name,
            StreamTableJoin(table._operator, joiner, keeps_stream=keeps_stream, buffer=buffer, grace_ms=grace_ms),
            own_stores=buffers,
            stores=table._operator.readable_stores(),
            accepts_null_keys=keeps_stream,
        )
        joined = dataclasses.replace(place.then(step, key_changed=False), sources=sources)
        return KStream(joined.with_serdes(key or place.key_serde, None))

    def _join_global_table(
        self,
        table: GlobalKTable[Any, Any],
        joiner: Any,
        on: Callable[[Any, Any], Any],
        *,
        keeps_stream: bool,
        name: str | None = None,
    ) -> KStream[Any, Any]:
        from streams_py.topology.dsl.kstream import KStream  # kstream imports this module

        step = ProcessorStep(
            name_or_generate(name, self._place.index, Prefix.LEFT_JOIN),  # for inner joins, too, as in Kafka Streams
            GlobalTableJoin(table._store, on, joiner, keeps_stream=keeps_stream),
            changes_value=True,
            accepts_null_keys=keeps_stream,
            is_overlooked=True,
        )
        return KStream(self._place.then(step).with_serdes(self._place.key_serde, None))

    def _repartitioned_for_join(self, base: str, key: Serde[Any] | None, value: Serde[Any] | None) -> Place:
        """Return the place below a repartition.

        Joins without a name share one repartition. Each call takes three numbers of the counter.
        """
        place = self._place
        names = RepartitionNames(base, place.index)
        place = place.with_serdes(key or place.key_serde, value or place.value_serde)
        step = self._join_repartition
        if step is None or base != place.node.name:
            step = self._join_repartition = RepartitionStep(names, place.key_serde, place.value_serde)
            place.graph.attach(step, place.node)
        return dataclasses.replace(place, node=step, key_changed=False, sources=frozenset({names.source}))


def _grace_ms(grace: Duration, node: str, history_ms: int | None) -> int:
    grace_ms = duration_ms(grace, f"grace of {node!r}")
    if history_ms is None:
        raise TopologyError(
            f"{node!r} has a grace period, so its table must have a history: Materialized(name, history=...)"
        )
    if grace_ms > history_ms:
        raise TopologyError(
            f"grace of {node!r} is {grace_ms} ms, but the history of its table is only {history_ms} ms: "
            "make the history at least as long"
        )
    return grace_ms


def _check_options(options: Mapping[str, Any], known: Sequence[str], other: str) -> None:
    for option in options:
        if option not in known:
            raise TopologyError(f"a join with {other} has no option {option}=; it has {', '.join(known)}")
    check_given(options, _OPTIONS, f"join with {other}")
