"""Read-only views of stores for interactive queries. A view combines the local partitions of a store, one per task.

Corresponds to Kafka Streams' ``CompositeReadOnlyKeyValueStore`` and ``QueryableStoreTypes``. Readers run concurrently
with the stream thread. They also see the content of the record caches, that is, values that are not committed yet.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, Mapping, Sequence, ValuesView
from typing import Any, Generic, TypeAlias, TypeVar, cast, overload

from streams_py.errors import InvalidStateStoreError, StateStoreNotAvailableError
from streams_py.state.buffers.join_buffer import JoinBuffer
from streams_py.state.buffers.suppress_buffer import SuppressionBuffer
from streams_py.state.caching.cached_plain import CachedPlainStore
from streams_py.state.custom.store_adapter import CustomStoreAdapter
from streams_py.state.opening.stores import AnyKeyValueStore, Store
from streams_py.state.reading.queryable import QueryableStoreType
from streams_py.state.reading.window_views import (
    ReadOnlySessionStore,
    ReadOnlyWindowStore,
    converted,
    not_here,
    scans,
    unchanged,
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
"""A read-only view of a store of any kind."""


def read_only(name: str, kind: QueryableStoreType, find: Callable[[], Sequence[Store]]) -> ReadOnlyStore:
    """Return a view of type ``kind``.

    Args:
        name: Name of the store.
        kind: Type of the view.
        find: Returns the stores that may be read now, one per partition.

    Raises:
        InvalidStateStoreError: The store does not support this type of view.
    """
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
    """A mapping of all local partitions of a key-value store: ``store[key]``, ``key in store``, ``store.items()``.

    Ranges are ordered by key bytes. ``len()`` iterates over all entries to count them;
    :meth:`approximate_num_entries` does not. The values that a reader gets are copies: changing them does not change
    the store.

    ``find`` returns the stores that may be read now, one per partition. It raises InvalidStateStoreError when there are
    none, or when the tasks have moved since the view was created. It is called for every read. So a KeyError always
    means that no local partition has the key, never that no partition could be read.
    """

    def __init__(self, name: str, kind: QueryableStoreType, find: Callable[[], Sequence[Store]]) -> None:
        self._name = name
        self._kind = kind
        self._find = find
        self._stores()  # raises for a store of the wrong type now, not at the first read

    @overload
    def get(self, key: K, /) -> S | None: ...
    @overload
    def get(self, key: K, /, default: S | D) -> S | D: ...
    def get(self, key: K, /, default: object = None) -> object:
        """Return the value of ``key``, from the first partition that has it."""
        for store in self._stores():
            found = store.peek(key)
            if found is not None:
                return self._converter(store)(found)
        self._find()  # raises if the store has moved meanwhile; the key may not be absent then
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
        """Return all entries, read in one pass like :meth:`all`."""
        return _Items(self)

    def values(self) -> ValuesView[S]:
        """Return all values, read in one pass."""
        return _Values(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name!r}, {self._kind.value}>"

    def range(self, first: K | None, last: K | None) -> Iterator[tuple[K, S]]:
        """Return the entries from ``first`` to ``last``, both included, sorted by key bytes within each partition."""
        return self._each(lambda store: store.range(first, last))

    def reverse_range(self, first: K | None, last: K | None) -> Iterator[tuple[K, S]]:
        """As :meth:`range`, in reverse order."""
        return self._each(lambda store: store.reverse_range(first, last))

    def all(self) -> Iterator[tuple[K, S]]:
        """Return all entries, sorted by key bytes within each partition."""
        return self._each(lambda store: store.all())

    def reverse_all(self) -> Iterator[tuple[K, S]]:
        """As :meth:`all`, in reverse order."""
        return self._each(lambda store: store.reverse_all())

    def prefix_scan(self, prefix: bytes) -> Iterator[tuple[K, S]]:
        """Return the entries whose serialized key starts with ``prefix``."""
        return self._each(lambda store: store.prefix_scan(prefix))

    def approximate_num_entries(self) -> int:
        """Return the sum of the partitions' approximate numbers of entries."""
        return sum(store.approximate_num_entries() for store in self._stores())

    def _stores(self) -> Sequence[AnyKeyValueStore]:
        stores = self._find()
        if not stores:
            raise StateStoreNotAvailableError(not_here(self._name))
        other = (WindowedEntries, SuppressionBuffer, JoinBuffer, VersionedStore, CustomStoreAdapter, CustomStateStore)
        windowed = next((store for store in stores if isinstance(store, other)), None)
        if windowed is not None:
            raise InvalidStateStoreError(f"store {self._name!r} is not a key-value store: it is {windowed!r}")
        if self._kind is QueryableStoreType.TIMESTAMPED_KEY_VALUE and any(map(_is_plain, stores)):
            raise InvalidStateStoreError(
                f"store {self._name!r} keeps no timestamps: query it as {QueryableStoreType.KEY_VALUE}"
            )
        return [store for store in stores if not isinstance(store, other)]

    def _each(self, entries: Callable[[AnyKeyValueStore], Iterator[tuple[Any, Any]]]) -> Iterator[tuple[K, S]]:
        # Every scan is opened here, so that all partitions are read as of nearly the same moment.
        return scans(
            [(store, converted(entries(store), self._converter(store))) for store in self._stores()], self._find
        )

    def _converter(self, store: Store) -> Callable[[Any], Any]:
        """Return the conversion from stored values to the type that the reader requested."""
        if self._kind is QueryableStoreType.TIMESTAMPED_KEY_VALUE or _is_plain(store):
            return unchanged
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
    """A view of all local partitions of a versioned store (KIP-960, KIP-968).

    A table with a ``history`` is kept in such a store. ``find`` is as in :class:`ReadOnlyKeyValueStore`.
    """

    def __init__(self, name: str, find: Callable[[], Sequence[Store]]) -> None:
        self._name = name
        self._find = find
        self._stores()  # raises for a store of the wrong type now, not at the first read

    def get(self, key: K, as_of: int | None = None) -> VersionedRecord[V] | None:
        """Return the version of ``key`` that is valid now, or was valid at the time ``as_of`` (ms).

        None when the key had no version, or when the time is before the start of the history.
        """
        found = (store.get(key, as_of) for store in self._stores())
        version = next((version for version in found if version is not None), None)
        if version is None:
            self._find()  # raises if the store has moved meanwhile; the key may not be absent then
        return version

    def history(
        self, key: K, first: int | None = None, last: int | None = None, *, reverse: bool = False
    ) -> Iterator[VersionedRecord[V]]:
        """Return the versions of ``key`` that were valid at any time from ``first`` to ``last``.

        Both times are in ms and included; None is an open end. The oldest version comes first unless ``reverse``.
        Versions that the store no longer has are missing.
        """
        return scans(
            [(store, store.history(key, first, last, reverse=reverse)) for store in self._stores()], self._find
        )

    def _stores(self) -> list[VersionedStore[K, V]]:
        stores = self._find()
        found: list[VersionedStore[K, V]] = [store for store in stores if isinstance(store, VersionedStore)]
        if not stores:
            raise StateStoreNotAvailableError(not_here(self._name))
        if len(found) < len(stores):
            raise InvalidStateStoreError(f"store {self._name!r} is not a versioned store: it is {stores[0]!r}")
        return found


def _is_plain(store: Store) -> bool:
    return isinstance(store, (PlainStore, ExpiringPlainStore, CachedPlainStore))
