"""Open stores from their declarations."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from streams_protocol.types import TaskId
from streams_py.errors import ConfigError
from streams_py.serdes import Serde, SerdeDefaults, serde_or_default
from streams_py.state.buffers.join_buffer import JoinBuffer
from streams_py.state.buffers.suppress_buffer import SuppressionBuffer
from streams_py.state.caching.cache import RecordCache
from streams_py.state.caching.cached_plain import CachedPlainStore
from streams_py.state.caching.cached_timestamped import CachedTimestampedStore
from streams_py.state.custom.bytes_adapter import CustomBytesAdapter
from streams_py.state.custom.context import CustomStoreContext
from streams_py.state.custom.store_adapter import CustomStoreAdapter
from streams_py.state.opening.window_stores import WINDOWED_KINDS, WindowedStore, open_windowed
from streams_py.state.stores.bytes_store import BytesStore, MemoryBytes
from streams_py.state.stores.codec import StoreCodec
from streams_py.state.stores.expiring import ExpiringBytes
from streams_py.state.stores.key_value import (
    ChangeLog,
    CustomPlainStore,
    ExpiringPlainStore,
    PlainStore,
    TimestampedStore,
)
from streams_py.state.stores.versioned import VersionedStore
from streams_py.topology.declare import names
from streams_py.topology.declare.nodes import RecordContext
from streams_py.topology.declare.stores import StoreBuilder, StoreKind

AnyKeyValueStore: TypeAlias = (
    "PlainStore[Any, Any] | ExpiringPlainStore[Any, Any] | TimestampedStore[Any, Any] | "
    "CachedPlainStore[Any, Any] | CachedTimestampedStore[Any, Any]"
)
"""An open key-value store."""

Store: TypeAlias = (
    "AnyKeyValueStore | WindowedStore | SuppressionBuffer[Any, Any] | JoinBuffer[Any, Any] | VersionedStore[Any, Any]"
    " | CustomStoreAdapter"
)
"""An open store of any kind."""


@dataclass(frozen=True, slots=True)
class StoreDefaults:
    """The defaults for everything that the declaration of a store does not specify."""

    key_serde: Serde[Any] | None = None
    """``default.key.serde``."""
    value_serde: Serde[Any] | None = None
    """``default.value.serde``."""
    persistent: bool = True
    """Whether stores are on disk (``dsl.store.suppliers.class``)."""
    all_on_disk: bool = False
    """Whether the bytes of stores in memory are also kept in the task's database, to bound the memory of the task.

    Such a store has the same entries in the same order as in memory.
    """
    reference_behaviour: bool = False
    """Whether window stores keep windows no longer than Kafka Streams does."""


def changelog_topic(builder: StoreBuilder, application_id: str) -> str:
    """Return the full name of the store's changelog topic. Serdes get this name even without a changelog."""
    return builder.source_topic or names.full_topic_name(application_id, names.changelog_topic(builder.name))


def is_persistent(builder: StoreBuilder, defaults: StoreDefaults) -> bool:
    """Whether the store is declared to be on disk, so that it survives a restart of its task."""
    if builder.supplier is not None:
        return False
    return defaults.persistent if builder.persistent is None else builder.persistent


def is_on_disk(builder: StoreBuilder, defaults: StoreDefaults) -> bool:
    """Whether the store's bytes are in the task's database, if the task has one. Suppression buffers never are."""
    if builder.supplier is not None or builder.kind is StoreKind.SUPPRESSION:
        return False
    return defaults.all_on_disk or is_persistent(builder, defaults)


def disk_layouts(builders: Iterable[StoreBuilder], defaults: StoreDefaults) -> dict[str, str]:
    """Return for each store on disk everything that determines the format of its bytes, as text."""
    return {
        builder.name: repr((builder.kind.value, builder.ttl_ms, builder.history_ms, builder.windows))
        for builder in builders
        if is_on_disk(builder, defaults)
    }


def open_store(
    builder: StoreBuilder,
    *,
    application_id: str,
    context: RecordContext,
    defaults: StoreDefaults | None = None,
    log: ChangeLog | None = None,
    disk: Callable[[str], BytesStore] | None = None,
    cache: RecordCache | None = None,
    task_id: TaskId | None = None,
    directory: str | None = None,
) -> Store:
    """Open the store that ``builder`` declares.

    Args:
        builder: The declaration of the store.
        application_id: The ``application.id``.
        context: The record context of the task.
        defaults: The defaults for declarations.
        log: Writes to the store's changelog. Not used with ``logging=False``, or if the changelog is a source topic.
        disk: Returns the bytes store of a store on disk, see ``TaskDatabase.store``. None: stores are kept in memory.
        cache: The thread's budget for stores declared with caching. Without it, or with a budget of 0 bytes, every
            update is logged and forwarded.
        task_id: The task, for custom stores.
        directory: The directory for files of a custom store. None: nothing is kept on disk.

    Raises:
        ConfigError: A serde is missing, or a supplier returns an object of the wrong type.
    """
    defaults = defaults or StoreDefaults()
    own_log = log if builder.logging and builder.source_topic is None else None
    custom_context: CustomStoreContext | None = None
    if builder.supplier is not None:
        topic = changelog_topic(builder, application_id)
        custom_context = CustomStoreContext(builder.name, application_id, task_id, topic, directory, context, own_log)
        if builder.kind is StoreKind.CUSTOM:
            return CustomStoreAdapter(builder.supplier, custom_context)
    codec: StoreCodec[Any, Any] = StoreCodec(
        changelog_topic(builder, application_id),
        _serde(builder, defaults, is_key=True),
        _serde(builder, defaults, is_key=False),
    )
    persistent = disk is not None and is_persistent(builder, defaults)
    cached = builder.caching and cache is not None and cache.max_bytes > 0
    files = disk(builder.name) if disk is not None and is_on_disk(builder, defaults) else None
    if builder.kind is StoreKind.SUPPRESSION:
        return SuppressionBuffer(builder.name, codec, context, log=own_log)
    if builder.kind in WINDOWED_KINDS:
        if defaults.reference_behaviour and builder.windows is not None:
            builder = replace(builder, windows=replace(builder.windows, extra_ms=0))
        return open_windowed(
            builder, codec, context, content=files, persistent=persistent, log=own_log, cache=cache if cached else None
        )
    content: BytesStore = MemoryBytes() if files is None else files
    if builder.supplier is not None and custom_context is not None:
        is_timestamped = builder.kind is StoreKind.TIMESTAMPED_KEY_VALUE
        content = CustomBytesAdapter(builder.supplier, custom_context, is_timestamped=is_timestamped)
    if builder.kind is StoreKind.JOIN_BUFFER:
        return JoinBuffer(builder.name, content, codec, context, persistent=persistent, log=own_log)
    if builder.kind is StoreKind.VERSIONED_KEY_VALUE:
        history_ms = builder.history_ms or 0
        return VersionedStore(builder.name, content, codec, history_ms, persistent=persistent, log=own_log)
    if builder.ttl_ms is not None:
        content = ExpiringBytes(content, builder.ttl_ms, context)
        expiring = ExpiringPlainStore if builder.kind is StoreKind.KEY_VALUE else TimestampedStore
        return expiring(builder.name, content, codec, context, persistent=persistent, log=own_log)
    if builder.kind is StoreKind.KEY_VALUE:
        kind = PlainStore if builder.supplier is None else CustomPlainStore
        plain = kind(builder.name, content, codec, context, persistent=persistent, log=own_log)
        return CachedPlainStore(plain, context, cache) if cache is not None and cached else plain
    store = TimestampedStore(builder.name, content, codec, context, persistent=persistent, log=own_log)
    return CachedTimestampedStore(store, context, cache) if cache is not None and cached else store


def _serde(builder: StoreBuilder, defaults: StoreDefaults, *, is_key: bool) -> Serde[Any]:
    given = builder.key_serde if is_key else builder.value_serde
    serde = serde_or_default(given, SerdeDefaults(defaults.key_serde, defaults.value_serde), is_key=is_key)
    if serde is None:
        what = "key" if is_key else "value"
        raise ConfigError(
            f"store {builder.name!r} has no {what} serde: give one where the store is declared "
            f"(``key=``, ``value=`` or a Materialized), or set default.{what}.serde",
            key=f"default.{what}.serde",
        )
    return serde
