"""Typed queries of stores (KIP-796): what can be asked, and the answer of one instance of a store.

A query is an object that says what kind of store it is for; ``KafkaStreams.query`` asks every partition on the instance
and gives an answer or the reason for none per partition. Where :meth:`KafkaStreams.store` raises when tasks have moved,
this tells which partitions are there, and how far they are. A class of your own derived from :class:`Query` is passed
to ``CustomStateStore.query``.
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
_TIME_MAX_MS = 2**63 - 1

Position: TypeAlias = Mapping[str, Mapping[int, int]]
"""Input topic -> partition -> offset of the last record whose effects are in the store. See
:attr:`QueryResult.position`."""


class Query(Generic[R]):
    """What is asked; ``R`` is the type of the answer of one partition."""


@dataclass(frozen=True, slots=True)
class KeyQuery(Query[Any | None]):
    """The value of a key in a key-value store; of a timestamped one without its timestamp. None: no such key."""

    key: Any


@dataclass(frozen=True, slots=True)
class TimestampedKeyQuery(Query[ValueAndTimestamp[Any] | None]):
    """The value of a key with its timestamp, in a timestamped key-value store (KIP-992)."""

    key: Any


@dataclass(frozen=True, slots=True)
class RangeQuery(Query[Iterator[tuple[Any, Any]]]):
    """The entries of a key-value store from ``first`` to ``last``, both included (None: open end), by key bytes."""

    first: Any = None
    last: Any = None
    reverse: bool = False


@dataclass(frozen=True, slots=True)
class TimestampedRangeQuery(Query[Iterator[tuple[Any, ValueAndTimestamp[Any]]]]):
    """The same with timestamps, in a timestamped key-value store (KIP-992)."""

    first: Any = None
    last: Any = None
    reverse: bool = False


@dataclass(frozen=True, slots=True)
class WindowKeyQuery(Query[Iterator[tuple[int, Any]]]):
    """(start, value) of a key's windows that start from ``first`` to ``last`` (ms, both included), by start. Values of
    timestamped stores, which windowed aggregations have, are ``ValueAndTimestamp`` pairs."""

    key: Any
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class WindowRangeQuery(Query[Iterator[tuple[Windowed[Any], Any]]]):
    """All keys' windows that start from ``first`` to ``last`` (ms, both included) of a window store; or, with ``key``
    and without them, the sessions of a key in a session store. Values as of :class:`WindowKeyQuery`."""

    key: Any = None
    first: int | None = None
    last: int | None = None


@dataclass(frozen=True, slots=True)
class VersionedKeyQuery(Query[VersionedRecord[Any] | None]):
    """The version of a key that is valid now, or was at ``as_of`` (ms), in a versioned store (KIP-960)."""

    key: Any
    as_of: int | None = None


@dataclass(frozen=True, slots=True)
class MultiVersionedKeyQuery(Query[Iterator[VersionedRecord[Any]]]):
    """The versions of a key that were valid at some time from ``first`` to ``last`` (ms, both included; None: open
    end), oldest first unless ``reverse`` (KIP-968)."""

    key: Any
    first: int | None = None
    last: int | None = None
    reverse: bool = False


class FailureReason(Enum):
    """Why a partition did not answer."""

    UNKNOWN_QUERY_TYPE = "unknown query type"
    """A store of this kind does not answer such queries."""
    NOT_ACTIVE = "not active"
    """A running active was asked for; this is a standby, or is being restored. Ask later, or the active."""
    NOT_UP_TO_BOUND = "not up to bound"
    """The partition has not processed its input up to the position that was asked for, or cannot say. Ask later."""
    NOT_PRESENT = "not present"
    """The partition is not on this instance, or has just left it. Ask the instance that has it."""
    DOES_NOT_EXIST = "does not exist"
    """No store has such a partition."""
    STORE_EXCEPTION = "store exception"
    """The store raised; the message has what."""


# No slots: Python 3.11 cannot call ``QueryResult[int](...)`` of a frozen dataclass that has them.


@dataclass(frozen=True)
class QueryResult(Generic[R]):
    """The answer of one partition, or why there is none: ``failure``, and ``message`` with the words for it."""

    _value: R | None = field(default=None, repr=False)
    failure: FailureReason | None = None
    message: str = ""
    position: Position = field(default_factory=dict)
    """How far the task with this partition was before the store was read, at least: for each input topic (source and
    repartition topics, these by their full names; no changelogs) and partition that the task reads, the offset of the
    last record that it has processed, or that the group had committed when it began. Those of the task, also where a
    record did not touch this store. Not necessarily committed: after a failure, or a transaction that is aborted, the
    task may be behind it for a while. With calls that wait (``map_values_async``) what is committed. A partition of
    which nothing is known is missing; the whole is empty for standbys, global stores and partitions that are not here.
    """

    @property
    def is_success(self) -> bool:
        """Whether there is an answer."""
        return self.failure is None

    @property
    def value(self) -> R:
        """The answer; InvalidStateStoreError with the reason when there is none."""
        if self.failure is not None:
            raise InvalidStateStoreError(f"the query has no answer: {self.failure.value}: {self.message}")
        return cast("R", self._value)


@dataclass(frozen=True)
class StateQueryResult(Generic[R]):
    """Answers by partition; of a global store ``global_result`` alone."""

    partitions: Mapping[int, QueryResult[R]]
    global_result: QueryResult[R] | None = None

    @property
    def only(self) -> QueryResult[R] | None:
        """The one partition's result that has an answer, and one that is not None; None when there is none. For queries
        by key. ValueError when several have one."""
        results = [*self.partitions.values()] if self.global_result is None else [self.global_result]
        found = [result for result in results if result.is_success and result.value is not None]
        if len(found) > 1:
            raise ValueError(f"{len(found)} partitions have answers; look into result.partitions")
        return found[0] if found else None

    @property
    def position(self) -> Position:
        """Those of all partitions together, input topic -> partition -> offset (see :attr:`QueryResult.position`):
        what a later query can be bound to. Also of partitions that were not up to the bound, or whose store raised."""
        merged: dict[str, dict[int, int]] = {}
        for result in self.partitions.values():
            for topic, offsets in result.position.items():
                known = merged.setdefault(topic, {})
                for partition, offset in offsets.items():
                    known[partition] = max(offset, known.get(partition, offset))
        return merged


def is_up_to(position: Position, bound: Position, partition: int) -> bool:
    """Whether a store's partition has seen what ``bound`` says of its own partition number; of others it says
    nothing."""
    return all(
        position.get(topic, {}).get(partition, -1) >= offsets[partition]
        for topic, offsets in bound.items()
        if partition in offsets
    )


def answer_of(query: Query[R], name: str, store: object, find: Callable[[], Sequence[Any]]) -> QueryResult[R]:
    """The answer of one open store. ``find`` gives it as long as it may be read, and raises or gives another one after
    that. Raises nothing."""
    try:
        ask = _question(query, name, store, find)
    except InvalidStateStoreError as error:
        return _failed(error, FailureReason.UNKNOWN_QUERY_TYPE)
    if ask is None:
        message = f"store {name!r} ({type(store).__name__}) does not answer a {type(query).__name__}"
        return QueryResult(failure=FailureReason.UNKNOWN_QUERY_TYPE, message=message)
    try:
        value = ask()
    except Exception as error:
        return _failed(error, FailureReason.STORE_EXCEPTION)
    if value is NotImplemented:
        message = f"store {name!r} ({type(store).__name__}) does not know a {type(query).__name__}"
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
    """What to call for the answer, None when nothing is known. InvalidStateStoreError when the kinds do not fit."""
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
            find()  # whatever it says, or raises, may come of being closed meanwhile

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
            raise InvalidStateStoreError(f"session store {name!r} answers a WindowRangeQuery with a key and no times")
        sessions: ReadOnlySessionStore[Any, Any] = ReadOnlySessionStore(name, find)
        return lambda: sessions.fetch(key)
    windows = _windows(name, store, find)
    if key is not None or first is None or last is None:
        raise InvalidStateStoreError(
            f"window store {name!r} answers a WindowRangeQuery with first and last, and no key"
        )
    return lambda: windows.fetch_all(first, last)
