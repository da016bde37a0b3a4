"""Declarations of state stores, and their interfaces for processors.

The implementations are in :mod:`streams_py.state`. This module only defines names, contents and operations of stores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from streams_py.errors import TopologyError
from streams_py.ports import Headers
from streams_py.serdes import Serde
from streams_py.topology.declare.caller import located
from streams_py.topology.declare.checks import checked_function
from streams_py.topology.declare.durations import Duration, duration_ms
from streams_py.topology.declare.given_types import check_serdes_of, kind_of

__all__ = [
    "Eviction",
    "FlushListener",
    "KeyValueStore",
    "StateStore",
    "StoreBuilder",
    "StoreKind",
    "TimestampedKeyValueStore",
    "ValueAndTimestamp",
    "WindowRetention",
    "WindowUpdater",
    "key_value_store",
    "timestamped_key_value_store",
    "ttl_ms_of",
]

K = TypeVar("K")
V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)

_SEGMENTS_MAX = 1024


class ValueAndTimestamp(NamedTuple, Generic[V]):
    """A stored value and the timestamp (ms) of the record that created it."""

    value: V
    """The value."""
    timestamp: int
    """The timestamp, in ms."""


class StoreKind(Enum):
    """The kind of content of a store."""

    KEY_VALUE = "key-value"
    TIMESTAMPED_KEY_VALUE = "timestamped key-value"
    WINDOW = "window"
    """Values by key and start of a window."""
    TIMESTAMPED_WINDOW = "timestamped window"
    SESSION = "session"
    """Values by key, start and end of a session."""
    SUPPRESSION = "suppression buffer"
    JOIN_BUFFER = "join buffer"
    VERSIONED_KEY_VALUE = "versioned key-value"
    CUSTOM = "custom"
    """Your own implementation."""


@dataclass(frozen=True, slots=True)
class WindowRetention:
    """The retention of a window or session store, in ms.

    Attributes:
        retention_ms: retention by stream time, from the start of a window or the end of a session.
        span_ms: size of a window (sessions: 0).
        segment_ms: windows that start in the same segment are stored, scanned and removed together.
        keeps_duplicates: several values per key and time, for joins; then a null value is not a deletion.
        holds_back: no window is removed before it is released (emit on window close).
        extra_ms: additional time in which the store keeps windows, because an operator still reads them. The changelog
            topic is configured only for ``retention_ms``, as in Kafka Streams. It is not in the ``repr``, which has
            everything that the bytes on disk depend on.
    """

    retention_ms: int
    span_ms: int
    segment_ms: int
    keeps_duplicates: bool = False
    holds_back: bool = False
    extra_ms: int = field(default=0, repr=False)

    @classmethod
    def of(
        cls,
        retention_ms: int,
        span_ms: int,
        *,
        step_ms: int,
        keeps_duplicates: bool = False,
        holds_back: bool = False,
        kept_ms: int = 0,
    ) -> WindowRetention:
        """Return a retention whose segments fit lookups within ``step_ms``, at most a thousand of them.

        ``kept_ms`` is how long the operator reads windows, which may exceed ``retention_ms``.
        """
        segment_ms = max(step_ms, retention_ms // _SEGMENTS_MAX, 1)
        extra_ms = max(kept_ms - retention_ms, 0)
        return cls(retention_ms, span_ms, segment_ms, keeps_duplicates, holds_back, extra_ms)

    @property
    def kept_ms(self) -> int:
        """Time for which the store keeps windows; a window of this age is expired."""
        return self.retention_ms + self.extra_ms


@dataclass(frozen=True)
class StoreBuilder:
    """Declaration of a state store.

    Attributes:
        key_serde: None stands for the configured default.
        value_serde: None stands for the configured default.
        persistent: True: RocksDB on disk, False: in memory, None: as set by ``dsl.store.suppliers.class``.
        logging: write a changelog topic, created with ``logging_config`` in addition to the defaults.
        caching: merge updates between commits (record cache).
        source_topic: short name of the source topic that serves as changelog (optimised source tables), otherwise None.
        windows: set for window and session stores.
        history_ms: set for versioned stores.
        ttl_ms: time to live of entries of a key-value store.
        logs_headers: changelog records have the headers of the current record.
        supplier: returns your own implementation (:mod:`streams_py.topology.declare.custom_stores`).
    """

    name: str
    """Name of the store."""
    kind: StoreKind
    """Kind of its content."""
    key_serde: Serde[Any] | None = None
    value_serde: Serde[Any] | None = None
    persistent: bool | None = None
    logging: bool = True
    caching: bool = False
    logging_config: Mapping[str, str] = field(default_factory=dict)
    """Settings of the changelog topic."""
    source_topic: str | None = None
    windows: WindowRetention | None = None
    history_ms: int | None = None
    ttl_ms: int | None = None
    logs_headers: bool = False
    supplier: Callable[[], Any] | None = None

    @property
    def expires(self) -> bool:
        """Whether retention may delete the beginning of its changelog.

        That is the case if entries expire, or if other programs write the topic.
        """
        is_deleted = "delete" in self.logging_config.get("cleanup.policy", "")
        return is_deleted or not (self.windows is None and self.ttl_ms is None and self.source_topic is None)

    @located
    def __post_init__(self) -> None:
        check_serdes_of(f"store {self.name!r}", key=self.key_serde, value=self.value_serde)
        if self.supplier is not None:
            self._check_supplier()

    def _check_supplier(self) -> None:
        if not callable(self.supplier):
            raise TopologyError(
                f"store {self.name!r}: supplier is {kind_of(self.supplier)}; use a class or a function that returns a "
                "new store each time"
            )
        if self.kind not in (StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED_KEY_VALUE, StoreKind.CUSTOM):
            raise TopologyError(f"store {self.name!r} is a {self.kind.value} store, which cannot have a supplier")
        if self.persistent:
            raise TopologyError(
                f"store {self.name!r} has a supplier, which decides where it is stored: remove persistent="
            )
        if self.ttl_ms is not None:
            raise TopologyError(f"store {self.name!r} has a supplier, which decides when entries expire: remove ttl=")


@checked_function
def key_value_store(
    name: str,
    *,
    key: Serde[Any] | None = None,
    value: Serde[Any] | None = None,
    persistent: bool | None = None,
    logging: bool = True,
    caching: bool = False,
    logging_config: Mapping[str, str] | None = None,
    ttl: Duration | None = None,
    supplier: Callable[[], Any] | None = None,
) -> StoreBuilder:
    """Declare a :class:`KeyValueStore` for your own processors. See :class:`StoreBuilder`.

    ``ttl`` is a ``timedelta`` or milliseconds. An entry expires for all readers when stream time exceeds its timestamp
    by ``ttl``. It has the timestamp of the record that was processed when it was put. Such a store has no record
    cache. ``supplier`` returns your own ``KeyValueBytesStore`` for each task, for example ``lru_map(1000)``.
    """
    kind, config, ttl_ms = StoreKind.KEY_VALUE, dict(logging_config or {}), ttl_ms_of(ttl, name)
    caching = caching and ttl_ms is None
    return StoreBuilder(name, kind, key, value, persistent, logging, caching, config, ttl_ms=ttl_ms, supplier=supplier)


@checked_function
def timestamped_key_value_store(
    name: str,
    *,
    key: Serde[Any] | None = None,
    value: Serde[Any] | None = None,
    persistent: bool | None = None,
    logging: bool = True,
    caching: bool = False,
    logging_config: Mapping[str, str] | None = None,
    ttl: Duration | None = None,
    supplier: Callable[[], Any] | None = None,
) -> StoreBuilder:
    """Declare a :class:`TimestampedKeyValueStore` for your own processors.

    The options, including ``ttl`` (a ``timedelta`` or milliseconds), are the same as of :func:`key_value_store`.
    """
    kind, config, ttl_ms = StoreKind.TIMESTAMPED_KEY_VALUE, dict(logging_config or {}), ttl_ms_of(ttl, name)
    caching = caching and ttl_ms is None
    return StoreBuilder(name, kind, key, value, persistent, logging, caching, config, ttl_ms=ttl_ms, supplier=supplier)


def ttl_ms_of(ttl: Duration | None, store: str) -> int | None:
    """Return a time to live in ms. Raises TopologyError if it is not positive."""
    return None if ttl is None else duration_ms(ttl, f"time to live of store {store!r}", least_ms=1)


class StateStore(Protocol):
    """The common interface of all stores."""

    @property
    def name(self) -> str:
        """Its declared name."""

    @property
    def persistent(self) -> bool:
        """Whether it is stored on disk, not only in memory."""

    @property
    def is_open(self) -> bool:
        """Whether its task has opened it and not closed it yet."""


class KeyValueStore(StateStore, Protocol[K, V]):
    """Key-value store. Iterators are snapshots, in unsigned byte order of the serialized keys.

    A value of ``None`` deletes the key. Ranges include both ends; None means no bound.
    """

    def get(self, key: K) -> V | None:
        """Return the value, or None."""

    def put(self, key: K, value: V | None) -> None:
        """Store a value, replacing an existing one; None deletes the key."""

    def put_if_absent(self, key: K, value: V) -> V | None:
        """Return the existing value, or store ``value`` and return None."""

    def put_all(self, entries: Iterable[tuple[K, V | None]]) -> None:
        """Call ``put`` for each entry, in order."""

    def delete(self, key: K) -> V | None:
        """Delete the key and return its value, or None."""

    def range(self, first: K | None, last: K | None) -> Iterator[tuple[K, V]]:
        """Return entries from ``first`` to ``last``, both included; None means no bound."""

    def reverse_range(self, first: K | None, last: K | None) -> Iterator[tuple[K, V]]:
        """Return the entries of ``range`` in reverse order."""

    def all(self) -> Iterator[tuple[K, V]]:
        """Return all entries."""

    def reverse_all(self) -> Iterator[tuple[K, V]]:
        """Return all entries in reverse order."""

    def prefix_scan(self, prefix: bytes) -> Iterator[tuple[K, V]]:
        """Return entries whose *serialized* key starts with ``prefix``."""

    def approximate_num_entries(self) -> int:
        """Return the number of entries; for stores on disk an estimate that includes overwritten ones."""


class Eviction(NamedTuple):
    """A change that leaves a suppression buffer, with the context of its latest record."""

    key: Any
    new: Any
    old: Any
    timestamp: int
    offset: int
    topic: str | None
    partition: int
    headers: Headers


FlushListener = Callable[[Any, Any, Any, int], None]
"""listener(key, new value, old value, timestamp_ms), called when an entry leaves the cache."""

Updater = Callable[[Any, Any, int], "tuple[Any, Any, int]"]
"""update(key, value, timestamp_ms) -> new aggregate, old aggregate, new timestamp_ms."""

WindowUpdater = Callable[[Any, Any, int, int], "tuple[Any, Any, int]"]
"""update(key, value, timestamp_ms, window start) -> new aggregate, old aggregate, new timestamp_ms."""


class TimestampedKeyValueStore(KeyValueStore[K, ValueAndTimestamp[V]], Protocol[K, V]):
    """Key-value store with timestamped values, for all tables and aggregates of the DSL.

    For the record path there are calls without pair objects: ``get`` returns the pair, ``put_value`` takes its parts,
    and an ``updater`` does both.
    """

    @property
    def is_cached(self) -> bool:
        """Whether the record cache merges updates; then the flush listener forwards, not the operator."""

    def put_value(self, key: K, value: V | None, timestamp_ms: int) -> None:
        """Store a value (None deletes); ``timestamp_ms`` is also the changelog record's."""

    def updater(self, initializer: Callable[[], V] | None, aggregator: Callable[[K, Any, V], V | None]) -> Updater:
        """Return a function that adds one record to the aggregate of its key.

        The old aggregate in its result is the object that the aggregator got and may have changed. Without
        ``initializer`` the first value of a key is its first aggregate. The new timestamp is the larger one of the
        record's and the old aggregate's. A new aggregate of None deletes the key, logged with the context's timestamp.
        """

    def set_flush_listener(self, listener: FlushListener, *, send_old_values: bool) -> None:
        """Set the function that forwards when the cache is flushed.

        During its call the record context describes the cached entry.
        """
