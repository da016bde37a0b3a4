"""Versioned key-value stores (KIP-889): the history of each key, for lookups at an earlier time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from streams_py.serdes import Serde
from streams_py.topology.declare.checks import checked_function
from streams_py.topology.declare.durations import Duration, duration_ms
from streams_py.topology.declare.stores import StateStore, StoreBuilder, StoreKind

__all__ = ["NOT_PUT", "VALID_TO_UNDEFINED", "VersionedKeyValueStore", "VersionedRecord", "versioned_key_value_store"]

K_contra = TypeVar("K_contra", contravariant=True)
V = TypeVar("V")

VALID_TO_UNDEFINED: Final = -1
"""Result of ``put`` for the latest version of a key."""
NOT_PUT: Final = -(2**63)
"""Result of ``put`` for a version older than the history."""


class VersionedRecord(NamedTuple, Generic[V]):
    """A version of a key, valid from ``timestamp`` until ``valid_to`` (excluded), in ms.

    ``valid_to`` is None for the current version.
    """

    value: V
    """The value."""
    timestamp: int
    """Start of its validity, in ms."""
    valid_to: int | None = None
    """End of its validity, in ms, excluded. None for the current version."""


class VersionedKeyValueStore(StateStore, Protocol[K_contra, V]):
    """Versions of each key by timestamp (ms). A value of None is a deletion, which is a version, too.

    Versions older than the history are removed and no longer accepted. The latest version of a key stays.
    """

    def put(self, key: K_contra, value: V | None, timestamp: int) -> int:
        """Add a version, or replace the version with the same timestamp.

        Returns the timestamp until which it is valid, VALID_TO_UNDEFINED for the latest version, or NOT_PUT if it is
        too old.
        """

    def get(self, key: K_contra, as_of: int | None = None) -> VersionedRecord[V] | None:
        """Return the version that is valid now, or at the time ``as_of``, or None.

        The result is also None if that time is before the history.
        """

    def delete(self, key: K_contra, timestamp: int) -> VersionedRecord[V] | None:
        """Delete the key from ``timestamp`` on and return the version that was valid then, or None.

        The result is also None if that time is before the history.
        """


@checked_function
def versioned_key_value_store(
    name: str,
    *,
    history: Duration,
    key: Serde[Any] | None = None,
    value: Serde[Any] | None = None,
    persistent: bool | None = None,
    logging: bool = True,
    logging_config: Mapping[str, str] | None = None,
) -> StoreBuilder:
    """Declare a :class:`VersionedKeyValueStore` with versions of the last ``history``.

    ``history`` is a ``timedelta`` or milliseconds. The other options are described in ``StoreBuilder``. The store has
    no record cache.
    """
    history_ms = duration_ms(history, f"history of store {name!r}")
    kind, config = StoreKind.VERSIONED_KEY_VALUE, dict(logging_config or {})
    return StoreBuilder(name, kind, key, value, persistent, logging, False, config, history_ms=history_ms)
