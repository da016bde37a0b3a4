"""Reading a store from outside: one read-only face over the local instances of a store, one per task.

Answers to Kafka Streams' ``CompositeReadOnlyKeyValueStore`` and ``QueryableStoreTypes``. Readers run beside the stream
thread and see what is in the record caches, that is, values that are not committed yet.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, Mapping, Sequence, ValuesView
from typing import Any, Generic, TypeAlias, TypeVar, cast, overload

from streams_py.errors import InvalidStateStoreError, StateStoreNotAvailableError
from streams_py.state.buffers.join_buffer import JoinBuffer
from streams_py.state.buffers.suppress_buffer import SuppressionBuffer
from streams_py.state.caching.cached_plain import CachedPlainStore
from streams_py.state.custom.own_store import OwnStore
from streams_py.state.opening.stores import AnyKeyValueStore, Store
from streams_py.state.reading.queryable import QueryableStoreType
from streams_py.state.reading.window_views import (
    ReadOnlySessionStore,
    ReadOnlyWindowStore,
    as_it_is,
    faced,
    not_here,
    scans,
    value_only,
)
from streams_py.state.stores.key_value import ExpiringPlainStore, PlainStore
from streams_py.state.stores.versioned import VersionedStore
from streams_py.state.windowed.entries import WindowedEntries
from streams_py.topology.declare.custom_stores import CustomStateStore
from streams_py.topology.declare.versioned_stores import VersionedRecord

__all__ = ["ReadOnlyKeyValueStore", "ReadOnlyStore", "ReadOnlyVersionedStore", "read_only"]

D = TypeVar("D")
K = TypeVar("K")
S = TypeVar("S")
V = TypeVar("V")


ReadOnlyStore: TypeAlias = (
    "ReadOnlyKeyValueStore[Any, Any] | ReadOnlyWindowStore[Any, Any] | ReadOnlySessionStore[Any, Any]"
    " | ReadOnlyVersionedStore[Any, Any]"
)
"""The face of a store of any kind."""


def read_only(name: str, kind: QueryableStoreType, find: Callable[[], Sequence[Store]]) -> ReadOnlyStore:
    """The face that ``kind`` asks for; InvalidStateStoreError when the store is of another kind."""
    match kind:
        case QueryableStoreType.SESSION:
            return ReadOnlySessionStore(name, find)
        case QueryableStoreType.VERSIONED:
            return ReadOnlyVersionedStore(name, find)
        case QueryableStoreType.WINDOW | QueryableStoreType.TIMESTAMPED_WINDOW:
            with_timestamps = kind is QueryableStoreType.TIMESTAMPED_WINDOW
            return ReadOnlyWindowStore(name, find, with_timestamps=with_timestamps)
        case _:
            return ReadOnlyKeyValueStore(name, kind, find)


class ReadOnlyKeyValueStore(Mapping[K, S]):
    """All local instances of a key-value store as one mapping: ``store[key]``, ``key in store``, ``store.items()``; and
    ranges by key bytes. ``len`` counts every entry; :meth:`approximate_num_entries` does not.

    ``find`` gives the instances that may be read now, and raises InvalidStateStoreError when that is none of them or
    when the tasks have moved since the store was asked for. It is asked at every call; so a KeyError means that the
    key is in no instance here, never that there is none. Values are objects of the reader: changing them changes
    nothing in the store.
    """

    def __init__(self, name: str, kind: QueryableStoreType, find: Callable[[], Sequence[Store]]) -> None:
        self._name = name
        self._kind = kind
        self._find = find
        self._instances()  # a wrong type is said now, not at the first read

    @overload
    def get(self, key: K, /) -> S | None: ...
    @overload
    def get(self, key: K, /, default: S | D) -> S | D: ...
    def get(self, key: K, /, default: object = None) -> object:
        """The value of ``key``, from the first instance that has it."""
        for store in self._instances():
            found = store.peek(key)
            if found is not None:
                return self._face(store)(found)
        self._find()  # was it absent, or has its store gone meanwhile?
        return default

    def __getitem__(self, key: K) -> S:
        found = self.get(key)
        if found is None:
            raise KeyError(f"store {self._name!r} has no key {key!r} on this instance")
        return found

    def __contains__(self, key: object) -> bool:
        return self.get(cast("K", key)) is not None

    def __iter__(self) -> Iterator[K]:
        return (key for key, _ in self.all())

    def __len__(self) -> int:
        return sum(1 for _ in self.all())

    def __bool__(self) -> bool:
        return next(self.all(), None) is not None

    def items(self) -> ItemsView[K, S]:
        """Every entry, read in one pass, as :meth:`all` does."""
        return _Items(self)

    def values(self) -> ValuesView[S]:
        """Every value, read in one pass."""
        return _Values(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name!r}, {self._kind.value}>"

    def range(self, first: K | None, last: K | None) -> Iterator[tuple[K, S]]:
        """Entries from ``first`` to ``last``, both included; sorted by key bytes within each partition."""
        return self._each(lambda store: store.range(first, last))

    def reverse_range(self, first: K | None, last: K | None) -> Iterator[tuple[K, S]]:
        """As :meth:`range`, backwards."""
        return self._each(lambda store: store.reverse_range(first, last))

    def all(self) -> Iterator[tuple[K, S]]:
        """Every entry; sorted by key bytes within each partition."""
        return self._each(lambda store: store.all())

    def reverse_all(self) -> Iterator[tuple[K, S]]:
        """As :meth:`all`, backwards."""
        return self._each(lambda store: store.reverse_all())

    def prefix_scan(self, prefix: bytes) -> Iterator[tuple[K, S]]:
        """Entries whose serialized key starts with ``prefix``."""
        return self._each(lambda store: store.prefix_scan(prefix))

    def approximate_num_entries(self) -> int:
        """Sum over the instances."""
        return sum(store.approximate_num_entries() for store in self._instances())

    def _instances(self) -> Sequence[AnyKeyValueStore]:
        stores = self._find()
        if not stores:
            raise StateStoreNotAvailableError(not_here(self._name))
        other = (WindowedEntries, SuppressionBuffer, JoinBuffer, VersionedStore, OwnStore, CustomStateStore)
        windowed = next((store for store in stores if isinstance(store, other)), None)
        if windowed is not None:
            raise InvalidStateStoreError(f"store {self._name!r} is no key-value store: {windowed!r}")
        if self._kind is QueryableStoreType.TIMESTAMPED_KEY_VALUE and any(map(_is_plain, stores)):
            raise InvalidStateStoreError(
                f"store {self._name!r} keeps no timestamps: ask for it as {QueryableStoreType.KEY_VALUE}"
            )
        return [store for store in stores if not isinstance(store, other)]

    def _each(self, entries: Callable[[AnyKeyValueStore], Iterator[tuple[Any, Any]]]) -> Iterator[tuple[K, S]]:
        # Every scan is opened here, so that all partitions are seen as of the same moment, nearly.
        return scans([(store, faced(entries(store), self._face(store))) for store in self._instances()], self._find)

    def _face(self, store: Store) -> Callable[[Any], Any]:
        """From what the store holds to what the reader asked for."""
        if self._kind is QueryableStoreType.TIMESTAMPED_KEY_VALUE or _is_plain(store):
            return as_it_is
        return value_only


class _Items(ItemsView[K, S]):
    _mapping: ReadOnlyKeyValueStore[K, S]

    def __iter__(self) -> Iterator[tuple[K, S]]:
        return self._mapping.all()


class _Values(ValuesView[S]):
    _mapping: ReadOnlyKeyValueStore[Any, S]

    def __iter__(self) -> Iterator[S]:
        return (value for _, value in self._mapping.all())


class ReadOnlyVersionedStore(Generic[K, V]):
    """All local instances of a versioned store as one (KIP-960, KIP-968); ``find`` is that of
    :class:`ReadOnlyKeyValueStore`.

    A table is kept in such a store when it has a ``history``.
    """

    def __init__(self, name: str, find: Callable[[], Sequence[Store]]) -> None:
        self._name = name
        self._find = find
        self._instances()  # a wrong type is said now, not at the first read

    def get(self, key: K, as_of: int | None = None) -> VersionedRecord[V] | None:
        """The version of ``key`` that is valid now, or that was at the time ``as_of`` (ms); None when there is none, or
        when that time is before the history."""
        found = (store.get(key, as_of) for store in self._instances())
        version = next((version for version in found if version is not None), None)
        if version is None:
            self._find()  # was it absent, or has its store gone meanwhile?
        return version

    def history(
        self, key: K, first: int | None = None, last: int | None = None, *, reverse: bool = False
    ) -> Iterator[VersionedRecord[V]]:
        """The versions of ``key`` that were valid at some time from ``first`` to ``last`` (ms, both included; None:
        open end), oldest first. Only those that the store still has."""
        return scans(
            [(store, store.history(key, first, last, reverse=reverse)) for store in self._instances()], self._find
        )

    def _instances(self) -> list[VersionedStore[K, V]]:
        stores = self._find()
        found: list[VersionedStore[K, V]] = [store for store in stores if isinstance(store, VersionedStore)]
        if not stores:
            raise StateStoreNotAvailableError(not_here(self._name))
        if len(found) < len(stores):
            raise InvalidStateStoreError(f"store {self._name!r} is no versioned store: {stores[0]!r}")
        return found


def _is_plain(store: Store) -> bool:
    return isinstance(store, (PlainStore, ExpiringPlainStore, CachedPlainStore))
