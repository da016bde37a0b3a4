"""Common parts of windowed aggregations: the declaration of their store, and their key serde."""

from __future__ import annotations

from typing import Any, TypeAlias, TypeVar

from streams_py.errors import TopologyError
from streams_py.serdes import Serde
from streams_py.serdes.windowed import SessionWindowedSerde, TimeWindowedSerde, WindowedSerde
from streams_py.topology.declare.durations import duration_ms
from streams_py.topology.declare.stores import StoreBuilder, StoreKind, WindowRetention
from streams_py.topology.declare.windows import (
    EmitStrategy,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    UnlimitedWindows,
)
from streams_py.topology.dsl.options import Materialized

AnyWindows: TypeAlias = TimeWindows | SlidingWindows | SessionWindows

V = TypeVar("V")


def close_after_ms(windows: AnyWindows) -> int | None:
    """Return the time from the end of a window until it is closed, in ms; None if it never closes."""
    if isinstance(windows, UnlimitedWindows):
        return None
    return windows.retention_ms if isinstance(windows, SessionWindows) else windows.grace_ms


def windowed_key_serde(windows: AnyWindows, key: Serde[Any] | None) -> WindowedSerde:
    """Return the serde of the result's keys; None stands for the configured default."""
    if isinstance(windows, SessionWindows):
        return SessionWindowedSerde(key)
    return TimeWindowedSerde(key, windows.span_ms)


def window_store_of(
    options: Materialized[Any, Any],
    windows: AnyWindows,
    emit: EmitStrategy,
    store: str,
    node: str,
    key: Serde[Any] | None,
    value: Serde[Any] | None,
) -> StoreBuilder:
    """Return the declaration of the store of the aggregation ``node``.

    Raises:
        TopologyError: the store would expire windows that still accept records.
    """
    least_ms = windows.retention_ms
    retention_ms = least_ms
    if options.ttl is not None or options.history is not None:
        wrong = "ttl" if options.history is None else "history"
        raise TopologyError(f"store {store!r}, used by {node!r}, keeps windows: set a retention, not a {wrong}")
    if options.supplier is not None:
        raise TopologyError(f"store {store!r}, used by {node!r}, keeps windows, which cannot have your own supplier")
    if options.retention is not None:
        retention_ms = duration_ms(options.retention, f"retention of store {store!r}, used by {node!r},")
        if retention_ms < least_ms:
            raise TopologyError(
                f"store {store!r} of {node!r} keeps windows for only {retention_ms} ms, but they accept records for "
                f"{least_ms} ms: set its retention to at least that, or remove it"
            )
    emits_final = emit is EmitStrategy.ON_WINDOW_CLOSE
    is_session = isinstance(windows, SessionWindows)
    if isinstance(windows, TimeWindows):
        span_ms, step_ms = windows.size_ms, windows.advance_ms
    elif isinstance(windows, SlidingWindows):
        span_ms = step_ms = windows.difference_ms
    else:
        span_ms, step_ms = 0, windows.gap_ms
    return StoreBuilder(
        store,
        StoreKind.SESSION if is_session else StoreKind.TIMESTAMPED_WINDOW,
        options.key or key,
        options.value or value,
        options.persistent,
        options.logging,
        # As in Kafka Streams, whose changelogs show it: final results are read from stores without a cache.
        options.caching and (not emits_final or isinstance(windows, TimeWindows)),
        dict(options.logging_config),
        windows=WindowRetention.of(
            retention_ms, span_ms, step_ms=step_ms, holds_back=emits_final, kept_ms=windows.kept_ms
        ),
    )
