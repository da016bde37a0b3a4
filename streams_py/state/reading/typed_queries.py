"""Typed interactive queries (KIP-796): the query types, and the answer of one partition of a store.

A query is an object whose type determines which kind of store can answer it. ``KafkaStreams.query`` sends it to every
partition on the instance, and returns for each partition an answer or the reason for a failure.
:meth:`KafkaStreams.store` raises when tasks have moved; ``query`` instead reports which partitions are on the instance,
and their positions. Instances of other subclasses of :class:`Query` are passed to ``CustomStateStore.query``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, TypeAlias, TypeVar, cast

from streams_py.errors import InvalidStateStoreError, StateStoreMigratedError, StreamsError
from streams_py.serdes.windowed import Windowed
from streams_py.state.reading.queryable import QueryableStoreType
from streams_py.state.reading.store_views import ReadOnlyKeyValueStore, ReadOnlyVersionedStore
from streams_py.state.reading.window_views import ReadOnlySessionStore, ReadOnlyWindowStore
from streams_py.state.windowed.session_store import SessionStoreOverEntries
from streams_py.state.windowed.window_store import TimestampedWindowStore
from streams_py.system.printable import named
from streams_py.topology.declare.custom_stores import CustomStateStore
from streams_py.topology.declare.stores import ValueAndTimestamp
from streams_py.topology.declare.versioned_stores import VersionedRecord

__all__ = [
    "FailureReason",
    "KeyQuery",
    "MultiVersionedKeyQuery",
    "Position",
    "Query",
    "QueryResult",
    "RangeQuery",
    "StateQueryResult",
    "TimestampedKeyQuery",
    "TimestampedRangeQuery",
    "VersionedKeyQuery",
    "WindowKeyQuery",
    "WindowRangeQuery",
    "answer_of",
    "is_up_to",
]

R = TypeVar("R")

Position: TypeAlias = Mapping[str, Mapping[int, int]]
"""Input topic -> partition -> offset of the last record whose effects are in the store.

See :attr:`QueryResult.position`.
"""


class Query(Generic[R]):
    """The base class of all queries. ``R`` is the type of one partition's answer."""


@dataclass(frozen=True, slots=True)
class KeyQuery(Query[Any | None]):
    """The value of a key in a key-value store, without its timestamp. The answer is None if the key does not exist."""

    key: Any
    """The key."""


@dataclass(frozen=True, slots=True)
class TimestampedKeyQuery(Query[ValueAndTimestamp[Any] | None]):
    """The value of a key with its timestamp in a timestamped key-value store (KIP-992)."""

    key: Any
    """The key."""


@dataclass(frozen=True, slots=True)
class RangeQuery(Query[Iterator[tuple[Any, Any]]]):
    """The entries of a key-value store from ``first`` to ``last``, ordered by key bytes.

    Both keys are included; None is an open end.
    """

    first: Any = None
    """The first key, or None."""
    last: Any = None
    """The last key, or None."""
    reverse: bool = False
    """Whether the largest key comes first."""


@dataclass(frozen=True, slots=True)
class TimestampedRangeQuery(Query[Iterator[tuple[Any, ValueAndTimestamp[Any]]]]):
    """As :class:`RangeQuery`, with timestamps, for a timestamped key-value store (KIP-992)."""

    first: Any = None
    """The first key, or None."""
    last: Any = None
    """The last key, or None."""
    reverse: bool = False
    """Whether the largest key comes first."""


@dataclass(frozen=True, slots=True)
class WindowKeyQuery(Query[Iterator[tuple[int, Any]]]):
    """The windows of a key that start from ``first`` to ``last``, as pairs (start, value), ordered by start.

    Times are in ms, and both are included. Values in timestamped stores, which windowed aggregations use, are
    ``ValueAndTimestamp`` pairs.
    """

    key: Any
    """The key."""
    first: int
    """The earliest start, in ms."""
    last: int
    """The latest start, in ms."""


@dataclass(frozen=True, slots=True)
class WindowRangeQuery(Query[Iterator[tuple[Windowed[Any], Any]]]):
    """The windows of all keys in a window store, or the sessions of one key in a session store.

    For a window store, give ``first`` and ``last``: the windows that start from ``first`` to ``last`` are returned (ms,
    both included). For a session store, give only ``key``. Values are as for :class:`WindowKeyQuery`.
    """

    key: Any = None
    """The key of the sessions. None for a window store."""
    first: int | None = None
    """The earliest start, in ms. None for a session store."""
    last: int | None = None
    """The latest start, in ms. None for a session store."""


@dataclass(frozen=True, slots=True)
class VersionedKeyQuery(Query[VersionedRecord[Any] | None]):
    """The version of a key that is valid now, or was valid at ``as_of`` (ms), in a versioned store (KIP-960)."""

    key: Any
    """The key."""
    as_of: int | None = None
    """The time, in ms. None: now."""


@dataclass(frozen=True, slots=True)
class MultiVersionedKeyQuery(Query[Iterator[VersionedRecord[Any]]]):
    """The versions of a key that were valid at any time from ``first`` to ``last`` (KIP-968).

    Both times are in ms and included; None is an open end. The oldest version comes first unless ``reverse``.
    """

    key: Any
    """The key."""
    first: int | None = None
    """The start of the interval, in ms, or None."""
    last: int | None = None
    """The end of the interval, in ms, or None."""
    reverse: bool = False
    """Whether the newest version comes first."""


class FailureReason(Enum):
    """The reason why a partition did not answer a query."""

    UNKNOWN_QUERY_TYPE = "unknown query type"
    """A store of this kind does not support this type of query."""
    NOT_ACTIVE = "not active"
    """The query requires a running active task, but this one is a standby or is being restored.

    Retry later, or query the instance with the active task.
    """
    NOT_UP_TO_BOUND = "not up to bound"
    """The partition has not reached the required position, or its position is unknown. Retry later."""
    NOT_PRESENT = "not present"
    """The partition is not on this instance, or has just left it. Query the instance that has it."""
    DOES_NOT_EXIST = "does not exist"
    """The store has no partition with this number."""
    STORE_EXCEPTION = "store exception"
    """The store raised an error, which is in the message."""


# No slots: Python 3.11 cannot call ``QueryResult[int](...)`` of a frozen dataclass that has them.


@dataclass(frozen=True)
class QueryResult(Generic[R]):
    """The answer of one partition, or the reason for a failure."""

    _value: R | None = field(default=None, repr=False)
    failure: FailureReason | None = None
    """The reason for a failure; None if there is an answer."""
    message: str = ""
    """The description of a failure."""
    position: Position = field(default_factory=dict)
    """The position of the partition's task before the store was read; the answer may be newer.

    For each input topic and partition that the task reads, it is the offset of the last record that the task has
    processed, or that the group had committed when the task started. Input topics are source topics and repartition
    topics (with their full names), not changelogs. The position belongs to the task: it includes records that did not
    change this store.

    It need not be committed: after a failure or an aborted transaction, the task may be behind this position for a
    while. With asynchronous functions (``map_values_async``) it is the committed position. Partitions with an unknown
    position are missing. The mapping is empty for standbys, global stores, and partitions that are not on this
    instance.
    """

    @property
    def is_success(self) -> bool:
        """Whether there is an answer."""
        return self.failure is None

    @property
    def value(self) -> R:
        """The answer. Raises InvalidStateStoreError with the reason if the query failed."""
        if self.failure is not None:
            raise InvalidStateStoreError(f"the query has no answer: {self.failure.value}: {self.message}")
        return cast("R", self._value)


@dataclass(frozen=True)
class StateQueryResult(Generic[R]):
    """The results of all partitions of a store, or the one result of a global store."""

    partitions: Mapping[int, QueryResult[R]]
    """Partition -> result. Empty for a global store."""
    global_result: QueryResult[R] | None = None
    """The result of a global store; None for other stores."""

    @property
    def only(self) -> QueryResult[R] | None:
        """The only result with an answer that is not None, or None. For queries by key.

        Raises:
            ValueError: Several partitions have an answer.
        """
        results = [*self.partitions.values()] if self.global_result is None else [self.global_result]
        found = [result for result in results if result.is_success and result.value is not None]
        if len(found) > 1:
            raise ValueError(f"{len(found)} partitions have answers; use result.partitions")
        return found[0] if found else None

    @property
    def position(self) -> Position:
        """The combined position of all partitions, which a later query can use as its bound.

        It maps input topic -> partition -> offset (see :attr:`QueryResult.position`), and includes partitions that had
        not reached the bound or whose store raised an error.
        """
        merged: dict[str, dict[int, int]] = {}
        for result in self.partitions.values():
            for topic, offsets in result.position.items():
                known = merged.setdefault(topic, {})
                for partition, offset in offsets.items():
                    known[partition] = max(offset, known.get(partition, offset))
        return merged


def is_up_to(position: Position, bound: Position, partition: int) -> bool:
    """Whether a store's partition has reached ``bound``.

    Only the bound's offsets for input partitions with the same partition number count.
    """
    return all(
        position.get(topic, {}).get(partition, -1) >= offsets[partition]
        for topic, offsets in bound.items()
        if partition in offsets
    )


def answer_of(query: Query[R], name: str, store: object, find: Callable[[], Sequence[Any]]) -> QueryResult[R]:
    """Return the answer of one open store. Never raises.

    Args:
        query: The query.
        name: Name of the store.
        store: The open store.
        find: Returns the store as long as it may be read. Afterwards it raises, or returns another store.
    """
    try:
        ask = _question(query, name, store, find)
    except InvalidStateStoreError as error:
        return _failed(error, FailureReason.UNKNOWN_QUERY_TYPE)
    if ask is None:
        message = f"store {name!r} ({type(store).__name__}) does not support a {type(query).__name__}"
        return QueryResult(failure=FailureReason.UNKNOWN_QUERY_TYPE, message=message)
    try:
        value = ask()
    except Exception as error:
        return _failed(error, FailureReason.STORE_EXCEPTION)
    if value is NotImplemented:
        message = f"store {name!r} ({type(store).__name__}) does not support a {type(query).__name__}"
        return QueryResult(failure=FailureReason.UNKNOWN_QUERY_TYPE, message=message)
    return QueryResult(value)


def _failed(error: Exception, reason: FailureReason) -> QueryResult[Any]:
    if isinstance(error, StateStoreMigratedError):
        reason = FailureReason.NOT_PRESENT
    message = str(error) if isinstance(error, StreamsError) else named(error)
    return QueryResult(failure=reason, message=message)


def _question(
    query: Query[Any], name: str, store: object, find: Callable[[], Sequence[Any]]
) -> Callable[[], Any] | None:
    """Return a function that returns the answer; None for an unknown query type.

    Raises:
        InvalidStateStoreError: A store of this kind cannot answer this type of query.
    """
    if isinstance(store, CustomStateStore):
        return _own_question(query, store, find)
    match query:
        case KeyQuery(key):
            plain: ReadOnlyKeyValueStore[Any, Any] = ReadOnlyKeyValueStore(name, QueryableStoreType.KEY_VALUE, find)
            return lambda: plain.get(key)
        case TimestampedKeyQuery(key):
            stamped: ReadOnlyKeyValueStore[Any, Any] = _timestamped(name, find)
            return lambda: stamped.get(key)
        case RangeQuery(first, last, reverse):
            return _range(ReadOnlyKeyValueStore(name, QueryableStoreType.KEY_VALUE, find), first, last, reverse=reverse)
        case TimestampedRangeQuery(first, last, reverse):
            return _range(_timestamped(name, find), first, last, reverse=reverse)
        case WindowKeyQuery(key, earliest, latest):
            windows = _windows(name, store, find)
            return lambda: windows.fetch_between(key, earliest, latest)
        case WindowRangeQuery():
            return _window_range(name, store, find, query)
        case VersionedKeyQuery(key, as_of):
            versions: ReadOnlyVersionedStore[Any, Any] = ReadOnlyVersionedStore(name, find)
            return lambda: versions.get(key, as_of)
        case MultiVersionedKeyQuery(key, since, until, reverse):
            history: ReadOnlyVersionedStore[Any, Any] = ReadOnlyVersionedStore(name, find)
            return lambda: history.history(key, since, until, reverse=reverse)
        case _:
            return None


def _own_question(query: Query[Any], store: CustomStateStore, find: Callable[[], object]) -> Callable[[], Any]:
    def ask() -> Any:
        try:
            return store.query(query)
        finally:
            find()  # raises if the store was closed meanwhile, which may have caused any answer or error

    return ask


def _timestamped(name: str, find: Callable[[], Sequence[Any]]) -> ReadOnlyKeyValueStore[Any, Any]:
    return ReadOnlyKeyValueStore(name, QueryableStoreType.TIMESTAMPED_KEY_VALUE, find)


def _range(store: ReadOnlyKeyValueStore[Any, Any], first: Any, last: Any, *, reverse: bool) -> Callable[[], Any]:
    return lambda: store.reverse_range(first, last) if reverse else store.range(first, last)


def _windows(name: str, store: object, find: Callable[[], Sequence[Any]]) -> ReadOnlyWindowStore[Any, Any]:
    return ReadOnlyWindowStore(name, find, with_timestamps=isinstance(store, TimestampedWindowStore))


def _window_range(
    name: str, store: object, find: Callable[[], Sequence[Any]], query: WindowRangeQuery
) -> Callable[[], Any]:
    key, first, last = query.key, query.first, query.last
    if isinstance(store, SessionStoreOverEntries):
        if key is None or first is not None or last is not None:
            raise InvalidStateStoreError(
                f"session store {name!r} requires a WindowRangeQuery with a key, and without first and last"
            )
        sessions: ReadOnlySessionStore[Any, Any] = ReadOnlySessionStore(name, find)
        return lambda: sessions.fetch(key)
    windows = _windows(name, store, find)
    if key is not None or first is None or last is None:
        raise InvalidStateStoreError(
            f"window store {name!r} requires a WindowRangeQuery with first and last, and without a key"
        )
    return lambda: windows.fetch_all(first, last)
