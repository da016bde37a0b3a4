"""Joins of streams with streams in a time window, with tables, and with global tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from streams_py.errors import TopologyError
from streams_py.serdes import Serde
from streams_py.topology.declare.checks import check_given
from streams_py.topology.declare.durations import Duration, duration_ms
from streams_py.topology.declare.names import Prefix, RepartitionNames, check_name, name_or_generate
from streams_py.topology.declare.stores import StoreBuilder, StoreKind
from streams_py.topology.declare.windows import JoinWindows
from streams_py.topology.dsl.global_table import GlobalKTable
from streams_py.topology.dsl.ktable import KTable
from streams_py.topology.dsl.place import Place
from streams_py.topology.dsl.windowed_joins import StreamJoinOptions, join_streams
from streams_py.topology.logical.graph import ProcessorStep, RepartitionStep, Traits
from streams_py.topology.operators.stream_joins import GlobalTableJoin, StreamTableJoin

if TYPE_CHECKING:
    from streams_py.topology.dsl.kstream import KStream

    Joinable: TypeAlias = KStream[Any, Any] | KTable[Any, Any] | GlobalKTable[Any, Any]

_OPTIONS: Final[Mapping[str, str]] = {
    **{field.name: str(field.type) for field in dataclasses.fields(StreamJoinOptions)},
    "grace": "Duration | None",
}
"""Keyword options of joins with their annotations. Not every join has every option."""


class StreamJoins:
    """The joins of one stream."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._repartition: RepartitionStep | None = None

    def join(
        self,
        other: Joinable,
        joiner: Any,
        windows: JoinWindows | None,
        on: Callable[[Any, Any], Any] | None,
        options: Mapping[str, Any],
        *,
        keeps_left: bool = False,
        keeps_right: bool = False,
    ) -> Place:
        """Attach a join and return the place below it. TopologyError for options that this kind of join lacks."""
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
    ) -> Place:
        name, left, right = options.name, self._place, other._place
        if left.key_changed:
            base = left.node.name if name is None else check_name(f"{name}-left")
            left = self._repartitioned(base, options.key, options.value)
        if right.key_changed:
            base = right.node.name if name is None else check_name(f"{name}-right")
            right = other._joins._repartitioned(base, options.key, options.other_value)
        joined = join_streams(left, right, joiner, windows, options, keeps_left=keeps_left, keeps_right=keeps_right)
        left.graph.copartition(left.sources | right.sources, joined.node.name)
        return joined

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
    ) -> Place:
        place, there = self._place, table._place
        if place.key_changed:
            place = self._repartitioned(name or place.node.name, key, value)
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
            added_stores=buffers,
            stores=table._operator.readable_stores(),
            traits=Traits(accepts_null_keys=keeps_stream),
        )
        joined = dataclasses.replace(place.then(step, key_changed=False), sources=sources)
        return joined.with_serdes(key or place.key_serde, None)

    def _join_global_table(
        self,
        table: GlobalKTable[Any, Any],
        joiner: Any,
        on: Callable[[Any, Any], Any],
        *,
        keeps_stream: bool,
        name: str | None = None,
    ) -> Place:
        step = ProcessorStep(
            name_or_generate(name, self._place.index, Prefix.LEFT_JOIN),  # for inner joins, too, as in Kafka Streams
            GlobalTableJoin(table._store, on, joiner, keeps_stream=keeps_stream),
            traits=Traits(changes_value=True, accepts_null_keys=keeps_stream, is_overlooked=True),
        )
        return self._place.then(step).with_serdes(self._place.key_serde, None)

    def _repartitioned(self, base: str, key: Serde[Any] | None, value: Serde[Any] | None) -> Place:
        """Return the place below a repartition.

        Joins without a name share one repartition. Each call takes three numbers of the counter.
        """
        place = self._place
        names = RepartitionNames(base, place.index)
        place = place.with_serdes(key or place.key_serde, value or place.value_serde)
        step = self._repartition
        if step is None or base != place.node.name:
            step = self._repartition = RepartitionStep(names, place.key_serde, place.value_serde)
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
