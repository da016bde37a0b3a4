"""Open window and session stores."""

from __future__ import annotations

from typing import Any, TypeAlias

from streams_py.errors import StateError
from streams_py.serdes import BYTES
from streams_py.state.caching.cache import RecordCache
from streams_py.state.caching.cached import ENTRY_BYTES
from streams_py.state.caching.cached_plain import CachedPlainStore
from streams_py.state.caching.cached_timestamped import CachedTimestampedStore
from streams_py.state.stores.bytes_store import BytesStore
from streams_py.state.stores.codec import StoreCodec
from streams_py.state.stores.key_value import ChangeLog, PlainStore, TimestampedStore
from streams_py.state.windowed.entries import AnyEntries, without_segment
from streams_py.state.windowed.layout import SESSION_LAYOUT, WINDOW_LAYOUT
from streams_py.state.windowed.recent import RecentSegments, shared_recent_memory
from streams_py.state.windowed.segments import ExpiringSegments, SegmentedMemory
from streams_py.state.windowed.session_store import SessionStoreOverEntries
from streams_py.state.windowed.window_store import DuplicatesWindowStore, PlainWindowStore, TimestampedWindowStore
from streams_py.topology.declare.nodes import RecordContext
from streams_py.topology.declare.stores import StoreBuilder, StoreKind

WindowedStore: TypeAlias = (
    "PlainWindowStore[Any, Any] | TimestampedWindowStore[Any, Any] | DuplicatesWindowStore[Any, Any] "
    "| SessionStoreOverEntries[Any, Any]"
)

WINDOWED_KINDS = frozenset({StoreKind.WINDOW, StoreKind.TIMESTAMPED_WINDOW, StoreKind.SESSION})


def open_windowed(
    builder: StoreBuilder,
    codec: StoreCodec[Any, Any],
    context: RecordContext,
    *,
    content: BytesStore | None,
    persistent: bool,
    log: ChangeLog | None,
    cache: RecordCache | None,
) -> WindowedStore:
    """Open a window or session store.

    Args:
        builder: Declaration of the store.
        codec: The store's serdes.
        context: The record context of the task.
        content: The bytes store to use; None: a new one in memory.
        persistent: Whether the store is declared to be on disk. This determines the order of its ranges.
        log: Writes to the changelog; None: the store has none.
        cache: The record cache; None: no caching.
    """
    retention = builder.windows
    if retention is None:
        raise StateError(f"store {builder.name!r} is declared as {builder.kind.value} without a retention")
    layout = SESSION_LAYOUT if builder.kind is StoreKind.SESSION else WINDOW_LAYOUT
    recent = RecentSegments(shared_recent_memory()) if retention.keeps_duplicates else None
    expiring = ExpiringSegments(SegmentedMemory() if content is None else content, layout, retention, recent)
    stored: StoreCodec[bytes, Any] = StoreCodec(codec.topic, BYTES, codec.value_serde)
    own_log = without_segment(log)
    entries: AnyEntries
    if builder.kind is StoreKind.TIMESTAMPED_WINDOW:
        timestamped = TimestampedStore(builder.name, expiring, stored, context, persistent=persistent, log=own_log)
        entries = timestamped
        if cache is not None:
            # When Kafka Streams stores windows in time order, its keys have one more byte, which counts in the cache.
            entry_bytes = ENTRY_BYTES + (persistent and retention.holds_back)
            entries = CachedTimestampedStore(
                timestamped, context, cache, keeps_what_is_read=False, entry_bytes=entry_bytes
            )
        return TimestampedWindowStore(codec, entries, expiring, layout, retention, context)
    if retention.keeps_duplicates:
        plain = PlainStore(builder.name, expiring, stored, context, persistent=persistent, log=None)
        store = DuplicatesWindowStore(codec, plain, expiring, layout, retention, context, recent)
        store.rebind(log=log, context=context)
        return store
    plain = PlainStore(builder.name, expiring, stored, context, persistent=persistent, log=own_log)
    entries = plain if cache is None else CachedPlainStore(plain, context, cache, keeps_what_is_read=False)
    if builder.kind is StoreKind.SESSION:
        return SessionStoreOverEntries(codec, entries, expiring, layout, retention, context)
    return PlainWindowStore(codec, entries, expiring, layout, retention, context)
