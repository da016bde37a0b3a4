"""Assembly of a join of two streams: names, stores, nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from streams_py.serdes import Serde, list_of
from streams_py.topology.declare.names import NameIndex, Prefix, check_name, suffixed_or_generate
from streams_py.topology.declare.stores import StoreBuilder, StoreKind, WindowRetention
from streams_py.topology.declare.windows import JoinWindows
from streams_py.topology.dsl.place import Place
from streams_py.topology.formats.join_serdes import JoinSideKeySerde, JoinSideValueSerde
from streams_py.topology.logical.graph import ProcessorStep
from streams_py.topology.logical.join_steps import JoinSide, StreamJoinStep
from streams_py.topology.operators.windowed_joins import JoinRule, JoinWindowKeeper, SelfJoin, StreamJoin

_SEGMENTS_MAX = 1024
_SEGMENT_MS_MIN = 10_000
"""Minimum segment interval in ms, one minute in Kafka Streams.

These stores are searched only by key, so small segments have no advantage, and each expired segment costs a removal.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamJoinOptions:
    """Options of a join of two streams. ``name`` names its nodes, ``store`` its stores.

    ``logging``: write changelog topics, created with ``logging_config`` in addition to the defaults. The changelogs of
    records that wait to be joined are never compacted.
    """

    key: Serde[Any] | None = None
    value: Serde[Any] | None = None
    other_value: Serde[Any] | None = None
    name: str | None = None
    store: str | None = None
    persistent: bool | None = None
    logging: bool = True
    logging_config: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class _Names:
    """All names, generated in the order of Kafka Streams' ``KStreamImplJoin``."""

    left_keeper: str
    right_keeper: str
    left: str
    right: str
    merge: str
    left_store: str
    right_store: str
    pending: str

    @classmethod
    def of(
        cls, index: NameIndex, name: str | None, store: str | None, *, keeps_left: bool, keeps_right: bool
    ) -> _Names:
        left_suffix = "-outer-this-join" if keeps_right else "-this-join"
        right_suffix = "-outer-other-join" if keeps_left else "-other-join"
        left_keeper = suffixed_or_generate(name, "-this-windowed", index, Prefix.WINDOWED)
        right_keeper = suffixed_or_generate(name, "-other-windowed", index, Prefix.WINDOWED)
        left = index.node_name(Prefix.OUTER_THIS if keeps_right else Prefix.JOIN_THIS)
        right = index.node_name(Prefix.OUTER_OTHER if keeps_left else Prefix.JOIN_OTHER)
        merge = suffixed_or_generate(name, "-merge", index, Prefix.MERGE)
        number = left[-10:]
        pending = f"{Prefix.OUTER_SHARED}{number}-store"
        if store is not None:
            pending = f"{check_name(store)}-{'outer' if keeps_right else 'left'}-shared-join-store"
        return cls(
            left_keeper,
            right_keeper,
            left if name is None else check_name(name + left_suffix),
            right if name is None else check_name(name + right_suffix),
            merge,
            f"{left}-store" if store is None else f"{store}{left_suffix}-store",
            f"{right}-store" if store is None else f"{store}{right_suffix}-store",
            pending,
        )


def _retention(windows: JoinWindows) -> WindowRetention:
    return WindowRetention(
        windows.retention_ms,
        windows.size_ms,
        max(_SEGMENT_MS_MIN, windows.size_ms, windows.retention_ms // _SEGMENTS_MAX),
        keeps_duplicates=True,
        extra_ms=max(windows.kept_ms - windows.retention_ms, 0),
    )


def join_streams(
    left: Place,
    right: Place,
    joiner: Callable[[Any, Any, Any], Any],
    windows: JoinWindows,
    options: StreamJoinOptions,
    *,
    keeps_left: bool,
    keeps_right: bool,
) -> Place:
    """Return the place below a join of two places, which are already repartitioned if needed."""
    graph = left.graph
    names = _Names.of(graph.index, options.name, options.store, keeps_left=keeps_left, keeps_right=keeps_right)
    key = options.key or (left.key_serde if left.key_serde is right.key_serde else None)
    left_value, right_value = options.value or left.value_serde, options.other_value or right.value_serde
    retention = _retention(windows)
    logging_config = dict(options.logging_config or {})

    def window_store(name: str, value: Serde[Any] | None) -> StoreBuilder:
        kind, persistent, logging = StoreKind.WINDOW, options.persistent, options.logging
        config = {**logging_config, "cleanup.policy": "delete"}  # records of one key and time do not replace each other
        return StoreBuilder(
            name, kind, key, value, persistent, logging, logging_config=config, windows=retention, logs_headers=True
        )

    has_pending = keeps_left or keeps_right
    pending = StoreBuilder(
        names.pending,
        StoreKind.KEY_VALUE,
        JoinSideKeySerde(key),
        list_of(JoinSideValueSerde(left_value, right_value)),
        options.persistent,
        options.logging,
        logging_config=logging_config,
    )
    rule = JoinRule(windows, keeps_left=keeps_left, keeps_right=keeps_right)
    left_keeper = ProcessorStep(names.left_keeper, JoinWindowKeeper(names.left_store, rule, is_left=True))
    graph.attach(left_keeper, left.node)
    right_keeper = ProcessorStep(names.right_keeper, JoinWindowKeeper(names.right_store, rule, is_left=False))
    graph.attach(right_keeper, right.node)
    waiting = names.pending if has_pending else ""
    left_join = StreamJoin(names.right_store, rule, joiner, is_left=True, pending=waiting)
    right_join = StreamJoin(names.left_store, rule, joiner, is_left=False, pending=waiting)
    step = StreamJoinStep(
        names.merge,
        JoinSide(left_keeper, window_store(names.left_store, left_value), names.left, left_join),
        JoinSide(right_keeper, window_store(names.right_store, right_value), names.right, right_join),
        pending if has_pending else None,
        SelfJoin(names.left_store, rule, joiner),
        rule,
        accepts_null_keys=has_pending,
    )
    graph.attach(step, left.node, right.node)
    return Place(graph, step, key, None, left.sources | right.sources)
