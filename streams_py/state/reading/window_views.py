"""Reading window and session stores from outside; see :mod:`streams_py.state.reading.store_views`.

Answers to Kafka Streams' ``CompositeReadOnlyWindowStore`` and ``CompositeReadOnlySessionStore``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Generic, TypeVar

from streams_py.errors import InvalidStateStoreError, StateStoreMigratedError, StateStoreNotAvailableError
from streams_py.serdes.windowed import Windowed
from streams_py.state.windowed.session_store import SessionStoreOverEntries
from streams_py.state.windowed.window_store import TimestampedWindowStore, WindowStoreOverEntries

__all__ = ["ReadOnlySessionStore", "ReadOnlyWindowStore", "as_it_is", "faced", "not_here", "scans", "value_only"]

K = TypeVar("K")
S = TypeVar("S")


class ReadOnlyWindowStore(Generic[K, S]):
    """All local instances of a window store as one; times in ms, ranges include both ends.

    ``find`` gives the instances that may be read now, and is asked at every call. Of a timestamped store the values
    come with their timestamps if ``with_timestamps``. Entries are ordered within each partition.
    """

    def __init__(self, name: str, find: Callable[[], Sequence[Any]], *, with_timestamps: bool) -> None:
        self._name = name
        self._find = find
        self._with_timestamps = with_timestamps
        self._instances()  # a wrong type is said now, not at the first read

    def fetch(self, key: K, start: int) -> S | None:
        """The value of a key in the window that starts at ``start``, from the first instance that has it."""
        for store in self._instances():
            found = store.peek(key, start)
            if found is not None:
                faced: S = self._face(store)(found)
                return faced
        self._find()  # was it absent, or has its store gone meanwhile?
        return None

    def fetch_between(self, key: K, first: int, last: int, *, reverse: bool = False) -> Iterator[tuple[int, S]]:
        """(start, value) of a key's windows that start from ``first`` to ``last``, by start."""
        return self._each(lambda store: store.fetch_between(key, first, last, reverse=reverse))

    def fetch_keys(
        self, first_key: K | None, last_key: K | None, first: int, last: int, *, reverse: bool = False
    ) -> Iterator[tuple[Windowed[K], S]]:
        """Windows of the keys from ``first_key`` to ``last_key`` (None: open end), by start, then by key bytes."""
        return self._each(lambda store: store.fetch_keys(first_key, last_key, first, last, reverse=reverse))

    def fetch_all(self, first: int, last: int, *, reverse: bool = False) -> Iterator[tuple[Windowed[K], S]]:
        """Windows of all keys that start from ``first`` to ``last``, by start, then by key bytes."""
        return self._each(lambda store: store.fetch_all(first, last, reverse=reverse))

    def all(self, *, reverse: bool = False) -> Iterator[tuple[Windowed[K], S]]:
        """Every window, by start, then by key bytes."""
        return self._each(lambda store: store.all(reverse=reverse))

    def _instances(self) -> list[WindowStoreOverEntries[Any, Any, Any]]:
        stores: list[WindowStoreOverEntries[Any, Any, Any]] = _of_kind(
            self._name, self._find(), WindowStoreOverEntries, "window"
        )
        if self._with_timestamps and not all(isinstance(store, TimestampedWindowStore) for store in stores):
            raise InvalidStateStoreError(
                f"store {self._name!r} keeps no timestamps: ask for it as a plain window store"
            )
        return stores

    def _face(self, store: WindowStoreOverEntries[Any, Any, Any]) -> Callable[[Any], Any]:
        if self._with_timestamps or not isinstance(store, TimestampedWindowStore):
            return as_it_is
        return value_only

    def _each(
        self, entries: Callable[[WindowStoreOverEntries[Any, Any, Any]], Iterator[tuple[Any, Any]]]
    ) -> Iterator[tuple[Any, S]]:
        return scans([(store, faced(entries(store), self._face(store))) for store in self._instances()], self._find)


class ReadOnlySessionStore(Generic[K, S]):
    """All local instances of a session store as one; see :class:`ReadOnlyWindowStore`."""

    def __init__(self, name: str, find: Callable[[], Sequence[Any]]) -> None:
        self._name = name
        self._find = find
        self._instances()

    def fetch_session(self, key: K, start: int, end: int) -> S | None:
        """The aggregate of one session, from the first instance that has it."""
        found = (store.peek(key, start, end) for store in self._instances())
        value = next((value for value in found if value is not None), None)
        if value is None:
            self._find()  # was it absent, or has its store gone meanwhile?
        return value

    def find_sessions(
        self, key: K, earliest_end: int, latest_start: int, *, reverse: bool = False
    ) -> Iterator[tuple[Windowed[K], S]]:
        """Sessions of a key that end at ``earliest_end`` or later and start at ``latest_start`` or earlier, by end."""
        return self._each(lambda store: store.find_sessions(key, earliest_end, latest_start, reverse=reverse))

    def fetch(self, key: K, *, reverse: bool = False) -> Iterator[tuple[Windowed[K], S]]:
        """All sessions of a key, by end."""
        return self._each(lambda store: store.fetch(key, reverse=reverse))

    def fetch_keys(
        self, first_key: K | None, last_key: K | None, *, reverse: bool = False
    ) -> Iterator[tuple[Windowed[K], S]]:
        """All sessions of the keys from ``first_key`` to ``last_key`` (None: open end), by end."""
        return self._each(lambda store: store.fetch_keys(first_key, last_key, reverse=reverse))

    def all(self, *, reverse: bool = False) -> Iterator[tuple[Windowed[K], S]]:
        """Every session, by end."""
        return self._each(lambda store: store.all(reverse=reverse))

    def _instances(self) -> list[SessionStoreOverEntries[Any, Any]]:
        return _of_kind(self._name, self._find(), SessionStoreOverEntries, "session")

    def _each(
        self, entries: Callable[[SessionStoreOverEntries[Any, Any]], Iterator[tuple[Any, Any]]]
    ) -> Iterator[tuple[Any, S]]:
        return scans([(store, entries(store)) for store in self._instances()], self._find)


def _of_kind(name: str, stores: Sequence[Any], kind: type[Any], what: str) -> list[Any]:
    if not stores:
        raise StateStoreNotAvailableError(not_here(name))
    other = next((store for store in stores if not isinstance(store, kind)), None)
    if other is not None:
        raise InvalidStateStoreError(f"store {name!r} is no {what} store: it is {other!r}")
    return list(stores)


def not_here(name: str) -> str:
    """Why a store cannot be read now, and what to do."""
    return (
        f"store {name!r} is not on this instance now: its tasks have moved, or are being restored; ask again later, or "
        "another instance"
    )


def scans(opened: Sequence[tuple[Any, Iterable[Any]]], check: Callable[[], object]) -> Iterator[Any]:
    """The entries of open scans, each with its store, one after the other. Every scan is open already, so that all
    partitions are seen as of the same moment, nearly. ``check`` raises when these are not the instances any more."""
    check()

    def complete(store: Any, entries: Iterable[Any]) -> Iterator[Any]:
        yield from entries
        if not store.is_open:
            raise StateStoreMigratedError(
                f"store {store.name!r} was closed while it was iterated over; ask for a new view"
            )

    return chain.from_iterable([complete(store, entries) for store, entries in opened])


def faced(entries: Iterator[tuple[Any, Any]], face: Callable[[Any], Any]) -> Iterator[tuple[Any, Any]]:
    """The entries as the reader sees them."""
    return ((key, face(stored)) for key, stored in entries)


def as_it_is(stored: Any) -> Any:
    """What the reader sees is what the store holds."""
    return stored


def value_only(stored: Any) -> Any:
    """What the reader sees, of a value with its timestamp."""
    return stored[0]
