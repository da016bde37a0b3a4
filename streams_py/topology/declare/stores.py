"""State stores as a topology declares them, and the interfaces through which processors use them.

Implementations live in :mod:`streams_py.state`; this module only says what a store is called, what it holds, and
what may be asked of it.
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
from streams_py.topology.declare.given_serdes import check_serdes_of, kind_of

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
    """A stored value and the timestamp (ms) of the record that made it."""

    value: V
    timestamp: int


class StoreKind(Enum):
    """What a store holds."""

    KEY_VALUE = "key-value"
    TIMESTAMPED_KEY_VALUE = "timestamped key-value"
    WINDOW = "window"
    TIMESTAMPED_WINDOW = "timestamped window"
    SESSION = "session"
    SUPPRESSION = "suppression buffer"
    JOIN_BUFFER = "join buffer"
    VERSIONED_KEY_VALUE = "versioned key-value"
    CUSTOM = "custom"


@dataclass(frozen=True, slots=True)
class WindowRetention:
    """What a window or session store keeps, in ms.

    ``retention_ms``: how long, by stream time, from the start of a window or the end of a session. ``span_ms``: from
    start to end of a window (sessions: 0). ``segment_ms``: windows that start in one segment lie together, are scanned
    together and go together. ``keeps_duplicates``: several values per key and time, for joins; then null is no
    deletion. ``holds_back``: nothing goes before it is released (emit on window close).

    The changelog topic is configured for ``retention_ms``, as in Kafka Streams. ``extra_ms`` is how much longer the
    store itself keeps windows, because an operator still reads them then. It is not in the ``repr``, which says what
    the bytes on disk depend on.
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
        """With segments that suit what is looked up within ``step_ms``, and not more than a thousand at a time.
        ``kept_ms``: how long the operator reads windows, which may be longer than ``retention_ms``."""
        segment_ms = max(step_ms, retention_ms // _SEGMENTS_MAX, 1)
        extra_ms = max(kept_ms - retention_ms, 0)
        return cls(retention_ms, span_ms, segment_ms, keeps_duplicates, holds_back, extra_ms)

    @property
    def kept_ms(self) -> int:
        """How long the store keeps windows: what is this old or older is expired."""
        return self.retention_ms + self.extra_ms


@dataclass(frozen=True)
class StoreBuilder:
    """Declaration of a state store.

    ``persistent``: True = RocksDB on disk, False = in memory, None = as ``dsl.store.suppliers.class`` says.
    A None serde stands for the configured default. ``logging``: keep a changelog topic, created with
    ``logging_config`` on top of the defaults. ``caching``: merge updates between commits (record cache).
    ``source_topic``: short name of the source topic that serves as changelog (optimised source tables), else None.
    ``windows``: set for window and session stores. ``history_ms``: set for versioned stores. ``ttl_ms``: time to live
    of entries of a key-value store. ``logs_headers``: its changelog records have the headers of the record in process.
    ``supplier``: makes what it is kept in, of your own (:mod:`streams_py.topology.declare.custom_stores`).
    """

    name: str
    kind: StoreKind
    key_serde: Serde[Any] | None = None
    value_serde: Serde[Any] | None = None
    persistent: bool | None = None
    logging: bool = True
    caching: bool = False
    logging_config: Mapping[str, str] = field(default_factory=dict)
    source_topic: str | None = None
    windows: WindowRetention | None = None
    history_ms: int | None = None
    ttl_ms: int | None = None
    logs_headers: bool = False
    supplier: Callable[[], Any] | None = None

    @property
    def expires(self) -> bool:
        """Whether retention may delete the beginning of its changelog: entries expire, or others write the topic."""
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
                f"store {self.name!r}: supplier is {kind_of(self.supplier)}; give a class or a function that makes a "
                "new store each time"
            )
        if self.kind not in (StoreKind.KEY_VALUE, StoreKind.TIMESTAMPED_KEY_VALUE, StoreKind.CUSTOM):
            raise TopologyError(f"store {self.name!r} is a {self.kind.value} store, which takes no supplier")
        if self.persistent:
            raise TopologyError(f"store {self.name!r} has a supplier, which decides where it is kept: no persistent=")
        if self.ttl_ms is not None:
            raise TopologyError(f"store {self.name!r} has a supplier, which decides what is dropped: no ttl=")


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
    """Declare a :class:`KeyValueStore` for your own processors; options: :class:`StoreBuilder`.

    ``ttl``, a ``timedelta`` or milliseconds: an entry is gone, for every reader, when stream time has passed its
    timestamp by so much. Its timestamp is that of the record that was processed when it was put. Such a store has no
    record cache. ``supplier``: makes a ``KeyValueBytesStore`` of your own to keep it in, for each task, such as
    ``lru_map(1000)``.
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
    """Declare a :class:`TimestampedKeyValueStore` for your own processors; options, ``ttl`` (a ``timedelta`` or
    milliseconds) too: :func:`key_value_store`."""
    kind, config, ttl_ms = StoreKind.TIMESTAMPED_KEY_VALUE, dict(logging_config or {}), ttl_ms_of(ttl, name)
    caching = caching and ttl_ms is None
    return StoreBuilder(name, kind, key, value, persistent, logging, caching, config, ttl_ms=ttl_ms, supplier=supplier)


def ttl_ms_of(ttl: Duration | None, store: str) -> int | None:
    """A time to live in ms. TopologyError when it is not positive."""
    return None if ttl is None else duration_ms(ttl, f"time to live of store {store!r}", least_ms=1)


class StateStore(Protocol):
    """What every store has."""

    @property
    def name(self) -> str:
        """As it was declared."""

    @property
    def persistent(self) -> bool:
        """True when it is on disk, False when it is in memory only."""

    @property
    def is_open(self) -> bool:
        """False before its task has opened it, and after its task has closed it."""


class KeyValueStore(StateStore, Protocol[K, V]):
    """Key-value store. Iteration is in unsigned byte order of the serialized keys; iterators are snapshots.

    ``None`` as a value deletes. Ranges include both ends; None is an open end.
    """

    def get(self, key: K) -> V | None:
        """The value, or None."""

    def put(self, key: K, value: V | None) -> None:
        """Store a value in place of the present one; None deletes."""

    def put_if_absent(self, key: K, value: V) -> V | None:
        """The present value, or None after storing."""

    def put_all(self, entries: Iterable[tuple[K, V | None]]) -> None:
        """``put`` each of them, in order."""

    def delete(self, key: K) -> V | None:
        """The deleted value, if there was one."""

    def range(self, first: K | None, last: K | None) -> Iterator[tuple[K, V]]:
        """Entries from ``first`` to ``last``, both included; None is an open end."""

    def reverse_range(self, first: K | None, last: K | None) -> Iterator[tuple[K, V]]:
        """Those of ``range``, the last one first."""

    def all(self) -> Iterator[tuple[K, V]]:
        """Every entry."""

    def reverse_all(self) -> Iterator[tuple[K, V]]:
        """Every entry, the last one first."""

    def prefix_scan(self, prefix: bytes) -> Iterator[tuple[K, V]]:
        """Entries whose *serialized* key starts with ``prefix``."""

    def approximate_num_entries(self) -> int:
        """How many entries there are; on disk an estimate, which counts overwritten ones, too."""


class Eviction(NamedTuple):
    """A change that leaves a suppression buffer, and the context of its latest record."""

    key: Any
    new: Any
    old: Any
    timestamp: int
    offset: int
    topic: str | None
    partition: int
    headers: Headers


FlushListener = Callable[[Any, Any, Any, int], None]
"""listener(key, new value, old value, timestamp_ms): a cached entry leaves the cache."""

Updater = Callable[[Any, Any, int], "tuple[Any, Any, int]"]
"""update(key, value, timestamp_ms) -> new aggregate, old aggregate, timestamp_ms of the new one."""

WindowUpdater = Callable[[Any, Any, int, int], "tuple[Any, Any, int]"]
"""update(key, value, timestamp_ms, window start) -> new aggregate, old aggregate, timestamp_ms of the new one."""


class TimestampedKeyValueStore(KeyValueStore[K, ValueAndTimestamp[V]], Protocol[K, V]):
    """Key-value store whose values carry timestamps: what every table and aggregate of the DSL uses.

    For the record path there are calls without a pair object: ``get`` returns the pair, ``put_value`` takes its parts,
    and an ``updater`` does both.
    """

    @property
    def is_cached(self) -> bool:
        """True when updates are merged in the record cache; then the flush listener forwards, not the operator."""

    def put_value(self, key: K, value: V | None, timestamp_ms: int) -> None:
        """Store (None: delete) a value; ``timestamp_ms`` also is the changelog record's timestamp."""

    def updater(self, initializer: Callable[[], V] | None, aggregator: Callable[[K, Any, V], V | None]) -> Updater:
        """A function that takes one record into the aggregate of its key.

        The old aggregate that it returns is the object which the aggregator was given, and perhaps has changed.
        Without ``initializer`` the first value of a key is its first aggregate. The new timestamp is the larger one of
        the record and the old aggregate; None as the new aggregate deletes, logged with the context's timestamp.
        """

    def set_flush_listener(self, listener: FlushListener, *, send_old_values: bool) -> None:
        """Who forwards when the cache is flushed. While it runs, the record context is that of the cached entry."""
