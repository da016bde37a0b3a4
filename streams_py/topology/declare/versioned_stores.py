"""Versioned key-value stores (KIP-889): the history of each key, for looking things up as they were at some time."""

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
"""What ``put`` returns for the latest version of a key."""
NOT_PUT: Final = -(2**63)
"""What ``put`` returns for a version older than the history."""


class VersionedRecord(NamedTuple, Generic[V]):
    """A version of a key, in ms: valid from ``timestamp`` on, until ``valid_to`` (not included; None: until now)."""

    value: V
    timestamp: int
    valid_to: int | None = None


class VersionedKeyValueStore(StateStore, Protocol[K_contra, V]):
    """Versions of each key by timestamp (ms). None as a value is a deletion, which is a version, too.

    Versions older than the history are forgotten and no longer accepted; the latest one of a key stays.
    """

    def put(self, key: K_contra, value: V | None, timestamp: int) -> int:
        """Add a version, or replace the one of the same timestamp. Returns the timestamp until which it is valid,
        VALID_TO_UNDEFINED for the latest one, NOT_PUT when it is too old."""

    def get(self, key: K_contra, as_of: int | None = None) -> VersionedRecord[V] | None:
        """The version that is valid now, or that was at the time ``as_of``; None when there is none, or when that time
        is before the history."""

    def delete(self, key: K_contra, timestamp: int) -> VersionedRecord[V] | None:
        """Delete from ``timestamp`` on; what was valid then. None also when that time is before the history."""


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
    """Declare a :class:`VersionedKeyValueStore` that can be asked about the last ``history``, a ``timedelta`` or
    milliseconds; other options: ``StoreBuilder``. There is no record cache for it."""
    history_ms = duration_ms(history, f"history of store {name!r}")
    kind, config = StoreKind.VERSIONED_KEY_VALUE, dict(logging_config or {})
    return StoreBuilder(name, kind, key, value, persistent, logging, False, config, history_ms=history_ms)
