"""What streams can be joined with: streams within a window of time, tables, and global tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from streams_py.errors import TopologyError
from streams_py.serdes import Serde
from streams_py.topology.dsl.global_table import GlobalKTable
from streams_py.topology.dsl.joiners import joiner_with_key
from streams_py.topology.dsl.place import Place
from streams_py.topology.graph import ProcessorStep, RepartitionStep
from streams_py.topology.names import Prefix, RepartitionNames, name_or_generate
from streams_py.topology.operators.stream_joins import GlobalTableJoin, StreamTableJoin

if TYPE_CHECKING:
    from streams_py.topology.dsl.kstream import KStream
    from streams_py.topology.dsl.ktable import KTable

__all__ = ["StreamJoins"]

K = TypeVar("K")
V = TypeVar("V")
VO = TypeVar("VO")
VR = TypeVar("VR")
KG = TypeVar("KG")


class StreamJoins(Generic[K, V]):
    """The joins of a :class:`~streams_py.topology.dsl.kstream.KStream`.

    Topics joined by key must have equal numbers of partitions; a stream whose key was changed is repartitioned first.
    """

    _place: Place
    _join_repartition: RepartitionStep | None = None

    @overload
    def join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[V, VO], VR] | None = None,
        *,
        with_key: Callable[[K, V, VO], VR] | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
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
        name: str | None = None,
    ) -> KStream[K, VR]: ...
    def join(
        self,
        other: KTable[Any, Any] | GlobalKTable[Any, Any],
        joiner: Callable[[Any, Any], Any] | None = None,
        *,
        on: Callable[[Any, Any], Any] | None = None,
        with_key: Callable[[Any, Any, Any], Any] | None = None,
        key: Serde[Any] | None = None,
        value: Serde[Any] | None = None,
        name: str | None = None,
    ) -> KStream[K, Any]:
        """Join with a table: ``joiner(value, row's value)``, or ``with_key=f`` for ``f(key, value, row's value)``.

        A record without a row is dropped. A table is asked for the row of the record's key, a global one for that of
        ``on(key, value)``. ``key`` and ``value`` are serdes for the topic a repartition goes through.
        """
        function = joiner_with_key(joiner, with_key, "join")
        return self._join(other, function, on, key, value, name, keeps_stream=False)

    @overload
    def left_join(
        self,
        other: KTable[K, VO],
        joiner: Callable[[V, VO | None], VR] | None = None,
        *,
        with_key: Callable[[K, V, VO | None], VR] | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
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
        name: str | None = None,
    ) -> KStream[K, VR]: ...
    def left_join(
        self,
        other: KTable[Any, Any] | GlobalKTable[Any, Any],
        joiner: Callable[[Any, Any], Any] | None = None,
        *,
        on: Callable[[Any, Any], Any] | None = None,
        with_key: Callable[[Any, Any, Any], Any] | None = None,
        key: Serde[Any] | None = None,
        value: Serde[Any] | None = None,
        name: str | None = None,
    ) -> KStream[K, Any]:
        """As :meth:`join`; a record without a row is joined with None."""
        function = joiner_with_key(joiner, with_key, "left_join")
        return self._join(other, function, on, key, value, name, keeps_stream=True)

    def _join(
        self,
        other: KTable[Any, Any] | GlobalKTable[Any, Any],
        joiner: Callable[[Any, Any, Any], Any],
        on: Callable[[Any, Any], Any] | None,
        key: Serde[Any] | None,
        value: Serde[Any] | None,
        name: str | None,
        *,
        keeps_stream: bool,
    ) -> KStream[Any, Any]:
        if isinstance(other, GlobalKTable):
            if on is None:
                raise TopologyError("a join with a global table needs on=f: f(key, value) gives the key of the row")
            return self._join_global_table(other, joiner, on, name, keeps_stream=keeps_stream)
        if on is not None:
            raise TopologyError("on= is for global tables; a table is joined by the record's key")
        return self._join_table(other, joiner, key, value, name, keeps_stream=keeps_stream)

    def _join_table(
        self,
        table: KTable[Any, Any],
        joiner: Callable[[Any, Any, Any], Any],
        key: Serde[Any] | None,
        value: Serde[Any] | None,
        name: str | None,
        *,
        keeps_stream: bool,
    ) -> KStream[Any, Any]:
        from streams_py.topology.dsl.kstream import KStream  # streams are joined, joined streams are streams

        place, there = self._place, table._place
        if place.graph is not there.graph:
            raise TopologyError("only a stream and a table of one builder can be joined")
        if place.key_changed:
            place = self._repartitioned_for_join(name or place.node.name, key, value)
        sources = place.graph.copartition(place.sources | there.sources)
        step = ProcessorStep(
            name_or_generate(name, place.index, Prefix.LEFT_JOIN if keeps_stream else Prefix.JOIN),
            StreamTableJoin(table._operator, joiner, keeps_stream=keeps_stream),
            stores=table._operator.readable_stores(),
            accepts_null_keys=keeps_stream,
        )
        joined = dataclasses.replace(place.then(step, key_changed=False), sources=sources)
        return KStream(joined.with_serdes(key or place.key_serde, None))

    def _join_global_table(
        self,
        table: GlobalKTable[Any, Any],
        joiner: Callable[[Any, Any, Any], Any],
        on: Callable[[Any, Any], Any],
        name: str | None,
        *,
        keeps_stream: bool,
    ) -> KStream[Any, Any]:
        from streams_py.topology.dsl.kstream import KStream  # streams are joined, joined streams are streams

        step = ProcessorStep(
            name_or_generate(name, self._place.index, Prefix.LEFT_JOIN),  # also of inner joins, as in Kafka Streams
            GlobalTableJoin(table._store, on, joiner, keeps_stream=keeps_stream),
            accepts_null_keys=keeps_stream,
        )
        return KStream(self._place.then(step).with_serdes(self._place.key_serde, None))

    def _repartitioned_for_join(self, base: str, key: Serde[Any] | None, value: Serde[Any] | None) -> Place:
        """Below a repartition. Joins without a name share one; the three values of the counter are taken each time."""
        place = self._place
        names = RepartitionNames(base, place.index)
        place = place.with_serdes(key or place.key_serde, value or place.value_serde)
        step = self._join_repartition
        if step is None or base != place.node.name:
            step = self._join_repartition = RepartitionStep(names, place.key_serde, place.value_serde)
            place.graph.attach(step, place.node)
        return dataclasses.replace(place, node=step, key_changed=False, sources=frozenset({names.source}))
