"""Session stores: an aggregate per key, start and end (Kafka Streams' ``SessionStore``)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from streams_py.serdes.windowed import Windowed
from streams_py.state.windowed.entries import WindowedEntries
from streams_py.state.windowed.layout import SESSION_LAYOUT

K = TypeVar("K")
V = TypeVar("V")

_LATEST = 2**63 - 1
_suffix = SESSION_LAYOUT.suffix


class SessionStoreOverEntries(WindowedEntries[K, V, V]):
    """Sessions by key. Times in ms; sessions are ordered by end, then by start."""

    def put(self, session: Windowed[K], value: V | None) -> None:
        """Store the aggregate of a session; None removes it."""
        end, start = session.end, session.start
        self._entries.put(self._key_to_write(self.key_bytes(session.key), end, _suffix(end, start)), value)

    def remove(self, session: Windowed[K]) -> None:
        """Remove a session."""
        self.put(session, None)

    def fetch_session(self, key: K, start: int, end: int) -> V | None:
        """Return the aggregate of one session."""
        found: V | None = self._entries.get(self._key_to_read(self.key_bytes(key), end, _suffix(end, start)))
        return found

    def value_data(self, session: Windowed[K]) -> bytes | None:
        """Return the serialized aggregate of a session, as stored."""
        start, end = session.start, session.end
        return self._entries.value_data(self._key_to_read(self.key_bytes(session.key), end, _suffix(end, start)))

    def peek(self, key: K, start: int, end: int) -> V | None:
        """As :meth:`fetch_session`, for any thread."""
        found: V | None = self._entries.peek(self._key_to_read(self.key_bytes(key), end, _suffix(end, start)))
        return found

    def find_sessions(
        self, key: K, earliest_end: int, latest_start: int, *, reverse: bool = False
    ) -> Iterator[tuple[Windowed[K], V]]:
        """Return the sessions of a key that end at ``earliest_end`` or later and start by ``latest_start``."""
        return self._listed(self.sessions(key, earliest_end, latest_start, reverse=reverse))

    def sessions(
        self, key: K, earliest_end: int, latest_start: int, *, reverse: bool = False
    ) -> Iterator[tuple[Windowed[K], V]]:
        """As :meth:`find_sessions`, for operators. They consume it immediately, so it is not tracked as open."""
        self.check_open()
        low, high = _suffix(max(earliest_end, 0), 0), _suffix(_LATEST, _LATEST)
        found = [
            (session, stored)
            for at, stored in self._entries_of(self.key_bytes(key), earliest_end, _LATEST, low, high)
            if (session := self._layout.windowed(key, at, self.retention)).start <= latest_start
        ]
        return iter(found[::-1] if reverse else found)

    def fetch(self, key: K, *, reverse: bool = False) -> Iterator[tuple[Windowed[K], V]]:
        """Return all sessions of a key."""
        return self.find_sessions(key, 0, _LATEST, reverse=reverse)

    def fetch_keys(
        self, first_key: K | None, last_key: K | None, *, reverse: bool = False
    ) -> Iterator[tuple[Windowed[K], V]]:
        """Return all sessions of the keys from ``first_key`` to ``last_key`` (None: open end), ordered by end."""
        return self._listed(self._scan_time(0, _LATEST, self._between_keys(first_key, last_key), reverse=reverse))

    def sessions_ended(self, first: int, last: int) -> Iterator[tuple[Windowed[K], V]]:
        """Return the sessions of all keys that end from ``first`` to ``last``, both included.

        The order is by end, key bytes, start. For stores on disk it is by end, start, key bytes, as in Kafka Streams.
        """
        keys_last = self.persistent
        return self._listed(self._scan_time(max(first, 0), last, None, reverse=False, keys_last=keys_last))

    def _timestamp_of(self, windowed: Windowed[K], timestamp_ms: int) -> int:
        return windowed.end
