"""From a store's declaration to an open store."""

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
from streams_py.state.custom.context import OwnStoreContext
from streams_py.state.custom.own_store import OwnStore
from streams_py.state.custom.supplied_bytes import SuppliedBytes
from streams_py.state.opening.window_stores import WINDOWED_KINDS, WindowedStore, open_windowed
from streams_py.state.stores.bytes_store import BytesStore, MemoryBytes
from streams_py.state.stores.codec import StoreCodec
from streams_py.state.stores.expiring import ExpiringBytes
from streams_py.state.stores.key_value import (
    ChangeLog,
    ExpiringPlainStore,
    PlainStore,
    SuppliedPlainStore,
    TimestampedStore,
)
from streams_py.state.stores.versioned import VersionedStore
from streams_py.topology.declare import names
from streams_py.topology.declare.nodes import RecordContext
from streams_py.topology.declare.stores import StoreBuilder, StoreKind

__all__ = [
    "AnyKeyValueStore",
    "Store",
    "StoreDefaults",
    "changelog_topic",
    "is_persistent",
    "kept_as",
    "lies_on_disk",
    "open_store",
]

AnyKeyValueStore: TypeAlias = (
    "PlainStore[Any, Any] | ExpiringPlainStore[Any, Any] | TimestampedStore[Any, Any] | "
    "CachedPlainStore[Any, Any] | CachedTimestampedStore[Any, Any]"
)
"""An open key-value store."""

Store: TypeAlias = (
    "AnyKeyValueStore | WindowedStore | SuppressionBuffer[Any, Any] | JoinBuffer[Any, Any] | VersionedStore[Any, Any]"
    " | OwnStore"
)
"""An open store of any kind."""


@dataclass(frozen=True, slots=True)
class StoreDefaults:
    """What a declaration that leaves it open gets: ``default.key.serde``, ``default.value.serde`` and
    ``dsl.store.suppliers.class``.

    ``all_on_disk``: bytes of stores that are declared to be in memory lie in the task's database, too, for tasks that
    must not grow with them. Such a store lists the same, in the same order, as it does in memory.
    ``reference_behaviour``: window stores keep no longer than in Kafka Streams.
    """

    key_serde: Serde[Any] | None = None
    value_serde: Serde[Any] | None = None
    persistent: bool = True
    all_on_disk: bool = False
    reference_behaviour: bool = False


def changelog_topic(builder: StoreBuilder, application_id: str) -> str:
    """Full name of the store's changelog topic; also the topic name its serdes see when it has none."""
    return builder.source_topic or names.full_topic_name(application_id, names.changelog_topic(builder.name))


def is_persistent(builder: StoreBuilder, defaults: StoreDefaults) -> bool:
    """Whether the store is declared to be on disk, so that it is there again when its task comes back."""
    if builder.supplier is not None:
        return False
    return defaults.persistent if builder.persistent is None else builder.persistent


def lies_on_disk(builder: StoreBuilder, defaults: StoreDefaults) -> bool:
    """Whether its bytes are in the task's database, where the task has one. A suppression buffer holds objects."""
    if builder.supplier is not None or builder.kind is StoreKind.SUPPRESSION:
        return False
    return defaults.all_on_disk or is_persistent(builder, defaults)


def kept_as(builders: Iterable[StoreBuilder], defaults: StoreDefaults) -> dict[str, str]:
    """Of each store on disk: what its bytes depend on."""
    return {
        builder.name: repr((builder.kind.value, builder.ttl_ms, builder.history_ms, builder.windows))
        for builder in builders
        if lies_on_disk(builder, defaults)
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

    ``log`` gets every change when the store keeps a changelog of its own (not with ``logging=False``, and not when a
    source topic is the changelog). ``disk`` gives the bytes of a store that lies on disk by name, see
    ``TaskDatabase.store``; without it the store is kept in memory. ``cache`` is the thread's budget for stores declared
    with caching; none, or one of 0 bytes, means that every update is logged and forwarded. ``task_id`` and
    ``directory`` (None: nothing is kept on disk) are what stores of the user's own are told of their place. ConfigError
    when a serde is missing, or a supplier makes something else.
    """
    defaults = defaults or StoreDefaults()
    own_log = log if builder.logging and builder.source_topic is None else None
    own_place: OwnStoreContext | None = None
    if builder.supplier is not None:
        topic = changelog_topic(builder, application_id)
        own_place = OwnStoreContext(builder.name, application_id, task_id, topic, directory, context, own_log)
        if builder.kind is StoreKind.CUSTOM:
            return OwnStore(builder.supplier, own_place)
    codec: StoreCodec[Any, Any] = StoreCodec(
        changelog_topic(builder, application_id),
        _serde(builder, defaults, is_key=True),
        _serde(builder, defaults, is_key=False),
    )
    persistent = disk is not None and is_persistent(builder, defaults)
    cached = builder.caching and cache is not None and cache.max_bytes > 0
    files = disk(builder.name) if disk is not None and lies_on_disk(builder, defaults) else None
    if builder.kind is StoreKind.SUPPRESSION:
        return SuppressionBuffer(builder.name, codec, context, log=own_log)
    if builder.kind in WINDOWED_KINDS:
        if defaults.reference_behaviour and builder.windows is not None:
            builder = replace(builder, windows=replace(builder.windows, extra_ms=0))
        return open_windowed(
            builder, codec, context, content=files, persistent=persistent, log=own_log, cache=cache if cached else None
        )
    content: BytesStore = MemoryBytes() if files is None else files
    if builder.supplier is not None and own_place is not None:
        is_timestamped = builder.kind is StoreKind.TIMESTAMPED_KEY_VALUE
        content = SuppliedBytes(builder.supplier, own_place, is_timestamped=is_timestamped)
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
        kind = PlainStore if builder.supplier is None else SuppliedPlainStore
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
