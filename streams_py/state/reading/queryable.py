"""The types of read-only views of a store. The views themselves are in :mod:`streams_py.state.reading.store_views`."""

from __future__ import annotations

from enum import Enum

__all__ = ["QueryableStoreType"]


class QueryableStoreType(Enum):
    """The type of a read-only view of a store."""

    KEY_VALUE = "key-value"
    """Values by key. Timestamps of a timestamped store are left out."""
    TIMESTAMPED_KEY_VALUE = "timestamped key-value"
    """``ValueAndTimestamp`` pairs by key. Only for timestamped stores."""
    WINDOW = "window"
    """Values by key and window. Timestamps of a timestamped store are left out."""
    TIMESTAMPED_WINDOW = "timestamped window"
    """``ValueAndTimestamp`` pairs by key and window. Only for timestamped stores."""
    SESSION = "session"
    """Aggregates by key and session."""
    VERSIONED = "versioned"
    """Versions by key and time."""
