"""A table in a versioned store (KIP-889, KIP-914), for the operator that writes it.

An update that is older than the row is also a version of the row, and is forwarded as a :class:`LateChange`. An update
that is older than the history is neither stored nor forwarded. Source: Kafka Streams' ``KeyValueStoreWrapper``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from streams_py.topology.declare.nodes import Change, LateChange, Process
from streams_py.topology.declare.stores import Updater
from streams_py.topology.declare.versioned_stores import NOT_PUT, VALID_TO_UNDEFINED, VersionedKeyValueStore

_TOO_OLD: Final = "older than the history of the table"


class VersionedTable:
    """A versioned store with the interface of a timestamped store.

    Like a cached store it forwards updates itself, because it knows which updates are late.
    """

    is_cached = True

    def __init__(self, store: VersionedKeyValueStore[Any, Any], dropped: Callable[[str], None]) -> None:
        self._store = store
        self._dropped = dropped
        self._sends_old_values = False
        self._forward: Process = _ignore

    @property
    def codec(self) -> Any:
        """The store's serdes."""
        store: Any = self._store
        return store.codec

    def forward_to(self, forward: Process, *, send_old_values: bool) -> None:
        """Forward updates to ``forward``, with the old value if ``send_old_values``."""
        self._forward = forward
        self._sends_old_values = send_old_values

    def get(self, key: Any) -> tuple[Any, int] | None:
        """Return value and timestamp of the current row."""
        found = self._store.get(key)
        return None if found is None else (found.value, found.timestamp)

    def get_as_of(self, key: Any, timestamp_ms: int) -> tuple[Any, int] | None:
        """Return value and timestamp of the row at that time."""
        found = self._store.get(key, timestamp_ms)
        return None if found is None else (found.value, found.timestamp)

    def put_value(self, key: Any, value: Any, timestamp_ms: int) -> None:
        """Add a version of the row and forward it."""
        self._put(key, value, self._old(key), timestamp_ms)

    def updater(self, initializer: Callable[[], Any] | None, aggregator: Callable[[Any, Any, Any], Any]) -> Updater:
        """Return an update function as for a timestamped store.

        The aggregator gets the latest aggregate, even for a late record.
        """

        def update(key: Any, value: Any, timestamp_ms: int) -> tuple[Any, Any, int]:
            row = self.get(key)
            if row is not None:
                current, stored_ms = row
                timestamp_ms = max(timestamp_ms, stored_ms)
                old = self._old(key)  # read again, because the aggregator may change its argument
                new = aggregator(key, value, current)
            elif initializer is None:
                old, new = None, value
            else:
                old = initializer() if self._sends_old_values else None
                new = aggregator(key, value, initializer())
            self._put(key, new, old, timestamp_ms)
            return new, old, timestamp_ms

        return update

    def _old(self, key: Any) -> Any:
        row = self.get(key) if self._sends_old_values else None
        return None if row is None else row[0]

    def _put(self, key: Any, new: Any, old: Any, timestamp_ms: int) -> None:
        valid_to = self._store.put(key, new, timestamp_ms)
        if valid_to == NOT_PUT:
            self._dropped(_TOO_OLD)
            return
        kind = Change if valid_to == VALID_TO_UNDEFINED else LateChange
        self._forward(key, kind(new, old), timestamp_ms)


def _ignore(key: Any, change: Any, timestamp_ms: int) -> None:
    """Do nothing, before ``forward_to`` is called."""
