"""The ways in which a store can be asked for; what then reads it is in :mod:`streams_py.state.reading.store_views`."""

from __future__ import annotations

from enum import Enum

__all__ = ["QueryableStoreType"]


class QueryableStoreType(Enum):
    """How a store is to be read."""

    KEY_VALUE = "key-value"
    """Values; of a timestamped store, without their timestamps."""
    TIMESTAMPED_KEY_VALUE = "timestamped key-value"
    """``ValueAndTimestamp`` pairs; only timestamped stores."""
    WINDOW = "window"
    """Values by key and window; of a timestamped store, without their timestamps."""
    TIMESTAMPED_WINDOW = "timestamped window"
    """``ValueAndTimestamp`` pairs by key and window; only timestamped stores."""
    SESSION = "session"
    """Aggregates by key and session."""
    VERSIONED = "versioned"
    """Versions by key and time."""
