"""Read-only views of window and session stores for queries; see :mod:`streams_py.state.reading.store_views`.

Corresponds to Kafka Streams' ``CompositeReadOnlyWindowStore`` and ``CompositeReadOnlySessionStore``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Generic, TypeVar

from streams_py.errors import InvalidStateStoreError, StateStoreMigratedError, StateStoreNotAvailableError
from streams_py.serdes.windowed import Windowed
from streams_py.state.windowed.session_store import SessionStoreOverEntries
from streams_py.state.windowed.window_store import TimestampedWindowStore, WindowStoreOverEntries

__all__ = ["ReadOnlySessionStore", "ReadOnlyWindowStore", "converted", "not_here", "scans", "unchanged", "value_only"]

K = TypeVar("K")
S = TypeVar("S")


class ReadOnlyWindowStore(Generic[K, S]):
    """A view of all local partitions of a window store. Times are in ms, ranges include both ends.

    Entries are ordered within each partition.

    Args:
        name: Name of the store.
        find: Returns the stores that may be read now, one per partition. Called for every read.
        with_timestamps: Whether values of a timestamped store are returned with their timestamps.
    """

    def __init__(self, name: str, find: Callable[[], Sequence[Any]], *, with_timestamps: bool) -> None:
        self._name = name
        self._find = find
        self._with_timestamps = with_timestamps
        self._stores()  # raises for a store of the wrong type now, not at the first read

    def fetch(self, key: K, start: int) -> S | None:
        """Return the value of a key in the window that starts at ``start``, from the first partition that has it."""
        for store in self._stores():
            found = store.peek(key, start)
            if found is not None:
                value: S = self._converter(store)(found)
                return value
        self._find()  # raises if the store has moved meanwhile; the key may not be absent then
        return None

    def fetch_between(self, key: K, first: int, last: int, *, reverse: bool = False) -> Iterator[tuple[int, S]]:
        """Return (start, value) of a key's windows that start from ``first`` to ``last``, ordered by start."""
        return self._each(lambda store: store.fetch_between(key, first, last, reverse=reverse))

    def fetch_keys(
        self, first_key: K | None, last_key: K | None, first: int, last: int, *, reverse: bool = False
    ) -> Iterator[tuple[Windowed[K], S]]:
        """Return the windows of the keys from ``first_key`` to ``last_key`` (None: open end).

        They start from ``first`` to ``last``, and are ordered by start, then by key bytes.
        """
        return self._each(lambda store: store.fetch_keys(first_key, last_key, first, last, reverse=reverse))

    def fetch_all(self, first: int, last: int, *, reverse: bool = False) -> Iterator[tuple[Windowed[K], S]]:
        """Return the windows of all keys that start from ``first`` to ``last``, ordered by start, then by key bytes."""
        return self._each(lambda store: store.fetch_all(first, last, reverse=reverse))

    def all(self, *, reverse: bool = False) -> Iterator[tuple[Windowed[K], S]]:
        """Return all windows, ordered by start, then by key bytes."""
        return self._each(lambda store: store.all(reverse=reverse))

    def _stores(self) -> list[WindowStoreOverEntries[Any, Any, Any]]:
        stores: list[WindowStoreOverEntries[Any, Any, Any]] = _of_kind(
            self._name, self._find(), WindowStoreOverEntries, "window"
        )
        if self._with_timestamps and not all(isinstance(store, TimestampedWindowStore) for store in stores):
            raise InvalidStateStoreError(f"store {self._name!r} keeps no timestamps: query it as a plain window store")
        return stores

    def _converter(self, store: WindowStoreOverEntries[Any, Any, Any]) -> Callable[[Any], Any]:
        if self._with_timestamps or not isinstance(store, TimestampedWindowStore):
            return unchanged
        return value_only

    def _each(
        self, entries: Callable[[WindowStoreOverEntries[Any, Any, Any]], Iterator[tuple[Any, Any]]]
    ) -> Iterator[tuple[Any, S]]:
        return scans(
            [(store, converted(entries(store), self._converter(store))) for store in self._stores()], self._find
        )


class ReadOnlySessionStore(Generic[K, S]):
    """A view of all local partitions of a session store; see :class:`ReadOnlyWindowStore`."""

    def __init__(self, name: str, find: Callable[[], Sequence[Any]]) -> None:
        self._name = name
        self._find = find
        self._stores()  # raises for a store of the wrong type now, not at the first read

    def fetch_session(self, key: K, start: int, end: int) -> S | None:
        """Return the aggregate of one session, from the first partition that has it."""
        found = (store.peek(key, start, end) for store in self._stores())
        value = next((value for value in found if value is not None), None)
        if value is None:
            self._find()  # raises if the store has moved meanwhile; the key may not be absent then
        return value

    def find_sessions(
        self, key: K, earliest_end: int, latest_start: int, *, reverse: bool = False
    ) -> Iterator[tuple[Windowed[K], S]]:
        """Return the sessions of a key that end at ``earliest_end`` or later and start at ``latest_start`` or earlier.

        They are ordered by end.
        """
        return self._each(lambda store: store.find_sessions(key, earliest_end, latest_start, reverse=reverse))

    def fetch(self, key: K, *, reverse: bool = False) -> Iterator[tuple[Windowed[K], S]]:
        """Return all sessions of a key, ordered by end."""
        return self._each(lambda store: store.fetch(key, reverse=reverse))

    def fetch_keys(
        self, first_key: K | None, last_key: K | None, *, reverse: bool = False
    ) -> Iterator[tuple[Windowed[K], S]]:
        """Return all sessions of the keys from ``first_key`` to ``last_key`` (None: open end), ordered by end."""
        return self._each(lambda store: store.fetch_keys(first_key, last_key, reverse=reverse))

    def all(self, *, reverse: bool = False) -> Iterator[tuple[Windowed[K], S]]:
        """Return all sessions, ordered by end."""
        return self._each(lambda store: store.all(reverse=reverse))

    def _stores(self) -> list[SessionStoreOverEntries[Any, Any]]:
        return _of_kind(self._name, self._find(), SessionStoreOverEntries, "session")

    def _each(
        self, entries: Callable[[SessionStoreOverEntries[Any, Any]], Iterator[tuple[Any, Any]]]
    ) -> Iterator[tuple[Any, S]]:
        return scans([(store, entries(store)) for store in self._stores()], self._find)


def _of_kind(name: str, stores: Sequence[Any], kind: type[Any], what: str) -> list[Any]:
    if not stores:
        raise StateStoreNotAvailableError(not_here(name))
    other = next((store for store in stores if not isinstance(store, kind)), None)
    if other is not None:
        raise InvalidStateStoreError(f"store {name!r} is not a {what} store: it is {other!r}")
    return list(stores)


def not_here(name: str) -> str:
    """Return the error message for a store that cannot be read now."""
    return (
        f"store {name!r} is not available on this instance now: its tasks have moved, or are being restored; retry "
        "later, or query another instance"
    )


def scans(opened: Sequence[tuple[Any, Iterable[Any]]], check: Callable[[], object]) -> Iterator[Any]:
    """Return the entries of several scans, one scan after the other.

    Args:
        opened: Stores with their open scans. All scans are open already, so all partitions are read as of nearly the
            same moment.
        check: Raises if these stores may no longer be read.

    Raises:
        StateStoreMigratedError: During the iteration, when a store was closed.
    """
    check()

    def complete(store: Any, entries: Iterable[Any]) -> Iterator[Any]:
        yield from entries
        if not store.is_open:
            raise StateStoreMigratedError(
                f"store {store.name!r} was closed during the iteration; call KafkaStreams.store() again"
            )

    return chain.from_iterable([complete(store, entries) for store, entries in opened])


def converted(entries: Iterator[tuple[Any, Any]], convert: Callable[[Any], Any]) -> Iterator[tuple[Any, Any]]:
    """Convert the stored values of entries for the reader."""
    return ((key, convert(stored)) for key, stored in entries)


def unchanged(stored: Any) -> Any:
    """Return a stored value without conversion."""
    return stored


def value_only(stored: Any) -> Any:
    """Return the value of a value with its timestamp."""
    return stored[0]
