"""Window and session stores for your own processors: declarations and interfaces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol, TypeVar

from streams_py.serdes import Serde
from streams_py.serdes.windowed import Windowed
from streams_py.topology.declare.checks import checked_function
from streams_py.topology.declare.durations import Duration, duration_ms
from streams_py.topology.declare.stores import StateStore, StoreBuilder, StoreKind, ValueAndTimestamp, WindowRetention

__all__ = [
    "SessionStore",
    "TimestampedWindowStore",
    "WindowStore",
    "session_store",
    "timestamped_window_store",
    "window_store",
]

K = TypeVar("K")
V = TypeVar("V")


class WindowStore(StateStore, Protocol[K, V]):
    """A value per key and window start. Times are in ms, ranges include both ends, None deletes.

    A window that started ``retention`` or longer before the latest start ever put is expired: it is neither stored nor
    read.
    """

    def put(self, key: K, value: V | None, start: int) -> None:
        """Store the value of the window that starts at ``start``; None deletes."""

    def fetch(self, key: K, start: int) -> V | None:
        """Return the value of the window that starts at ``start``, or None."""

    def fetch_between(self, key: K, first: int, last: int, *, reverse: bool = False) -> Iterator[tuple[int, V]]:
        """Return (start, value) of one key, by start."""

    def fetch_keys(
        self, first_key: K | None, last_key: K | None, first: int, last: int, *, reverse: bool = False
    ) -> Iterator[tuple[Windowed[K], V]]:
        """Return windows of a range of keys (None: no bound), by start, then by key bytes."""

    def fetch_all(self, first: int, last: int, *, reverse: bool = False) -> Iterator[tuple[Windowed[K], V]]:
        """Return windows of all keys, by start, then by key bytes."""

    def all(self, *, reverse: bool = False) -> Iterator[tuple[Windowed[K], V]]:
        """Return every window, by start, then by key bytes."""


class TimestampedWindowStore(WindowStore[K, ValueAndTimestamp[V]], Protocol[K, V]):
    """Window store with timestamped values, as used by windowed aggregations."""


class SessionStore(StateStore, Protocol[K, V]):
    """A value per key, start and end of a session. Times are in ms, None removes.

    A session that ended ``retention`` or longer before the latest end ever put is expired.
    """

    def put(self, session: Windowed[K], value: V | None) -> None:
        """Store the value of a session; None removes it."""

    def remove(self, session: Windowed[K]) -> None:
        """Remove a session if it exists."""

    def fetch_session(self, key: K, start: int, end: int) -> V | None:
        """Return the value of the session with exactly this start and end, or None."""

    def find_sessions(
        self, key: K, earliest_end: int, latest_start: int, *, reverse: bool = False
    ) -> Iterator[tuple[Windowed[K], V]]:
        """Return sessions that end at ``earliest_end`` or later and start at ``latest_start`` or earlier.

        They are ordered by end.
        """

    def fetch(self, key: K, *, reverse: bool = False) -> Iterator[tuple[Windowed[K], V]]:
        """Return all sessions of a key, by end."""

    def fetch_keys(
        self, first_key: K | None, last_key: K | None, *, reverse: bool = False
    ) -> Iterator[tuple[Windowed[K], V]]:
        """Return all sessions of a range of keys (None: no bound)."""

    def all(self, *, reverse: bool = False) -> Iterator[tuple[Windowed[K], V]]:
        """Return every session."""


@checked_function
def window_store(
    name: str,
    *,
    retention: Duration,
    size: Duration,
    key: Serde[Any] | None = None,
    value: Serde[Any] | None = None,
    keep_duplicates: bool = False,
    persistent: bool | None = None,
    logging: bool = True,
    caching: bool = False,
    logging_config: Mapping[str, str] | None = None,
) -> StoreBuilder:
    """Declare a :class:`WindowStore`.

    ``retention`` and ``size`` (of the windows) are a ``timedelta`` or milliseconds. ``keep_duplicates``: every put adds
    a value, and no value is replaced or deleted. The other options are described in ``StoreBuilder``.
    """
    kind = StoreKind.WINDOW
    windows = _windows(name, retention, size, keep_duplicates=keep_duplicates)
    config = dict(logging_config or {})
    return StoreBuilder(
        name, kind, key, value, persistent, logging, caching and not keep_duplicates, config, windows=windows
    )


@checked_function
def timestamped_window_store(
    name: str,
    *,
    retention: Duration,
    size: Duration,
    key: Serde[Any] | None = None,
    value: Serde[Any] | None = None,
    persistent: bool | None = None,
    logging: bool = True,
    caching: bool = False,
    logging_config: Mapping[str, str] | None = None,
) -> StoreBuilder:
    """Declare a :class:`TimestampedWindowStore`.

    The options are the same as of :func:`window_store`; durations are a ``timedelta`` or milliseconds.
    """
    kind = StoreKind.TIMESTAMPED_WINDOW
    windows, config = _windows(name, retention, size, keep_duplicates=False), dict(logging_config or {})
    return StoreBuilder(name, kind, key, value, persistent, logging, caching, config, windows=windows)


@checked_function
def session_store(
    name: str,
    *,
    retention: Duration,
    key: Serde[Any] | None = None,
    value: Serde[Any] | None = None,
    persistent: bool | None = None,
    logging: bool = True,
    caching: bool = False,
    logging_config: Mapping[str, str] | None = None,
) -> StoreBuilder:
    """Declare a :class:`SessionStore`.

    ``retention`` is a ``timedelta`` or milliseconds. The other options are described in ``StoreBuilder``.
    """
    kind = StoreKind.SESSION
    retention_ms = duration_ms(retention, f"retention of store {name!r}", least_ms=1)
    windows, config = WindowRetention.of(retention_ms, 0, step_ms=retention_ms // 4), dict(logging_config or {})
    return StoreBuilder(name, kind, key, value, persistent, logging, caching, config, windows=windows)


def _windows(name: str, retention: Duration, size: Duration, *, keep_duplicates: bool) -> WindowRetention:
    size_ms = duration_ms(size, f"size of windows in store {name!r}")
    retention_ms = duration_ms(retention, f"retention of store {name!r}", least_ms=max(size_ms, 1))
    return WindowRetention.of(retention_ms, size_ms, step_ms=size_ms, keeps_duplicates=keep_duplicates)
