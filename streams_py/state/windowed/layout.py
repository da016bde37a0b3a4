"""Stored keys: the keys under which windows and sessions are stored.

======  =======================================================================
bytes   content
======  =======================================================================
8       number of the segment
n       key
12      window: i64 start, i32 sequence number (0 unless duplicates are kept)
16      session: i64 end, i64 start
======  =======================================================================

The bytes after the segment are exactly the key in Kafka Streams' changelog (``WindowKeySchema``, ``SessionKeySchema``).
A segment contains the windows that start, or the sessions that end, within a fixed period. Within a segment, the
entries of a key are in time order. An expired segment is removed as a whole. The length of a segment need not be Kafka
Streams'.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final

from streams_py.serdes.windowed import Windowed
from streams_py.topology.declare.stores import WindowRetention

_I64 = struct.Struct(">q")
_WINDOW = struct.Struct(">qi")
_SESSION = struct.Struct(">qq")
_SEQUENCE_MAX = 2**31 - 1

SEGMENT_BYTES: Final = _I64.size

segment_prefix: Callable[[int], bytes] = _I64.pack
"""Return the first bytes of all stored keys in a segment."""


class Layout(ABC):
    """The format of the stored keys of one kind of store."""

    suffix_bytes: int
    """Number of bytes after the key."""

    @abstractmethod
    def time_of(self, at: bytes) -> int:
        """Return the time that determines segment and expiry, in ms. ``at``: a stored key or a changelog key."""

    @abstractmethod
    def windowed(self, key: Any, at: bytes, retention: WindowRetention) -> Windowed[Any]:
        """Return ``key`` with the window in a stored key."""

    def key_of(self, at: bytes) -> bytes:
        """Return the serialized key in a stored key."""
        return at[SEGMENT_BYTES : -self.suffix_bytes]


class _WindowLayout(Layout):
    suffix_bytes = _WINDOW.size

    def time_of(self, at: bytes) -> int:
        start: int = _I64.unpack_from(at, len(at) - 12)[0]
        return start

    def windowed(self, key: Any, at: bytes, retention: WindowRetention) -> Windowed[Any]:
        start = self.time_of(at)
        return Windowed(key, start, start + retention.span_ms)

    @staticmethod
    def suffix(start: int, sequence: int = 0) -> bytes:
        """Return the bytes after the key in a stored key."""
        return _WINDOW.pack(start, sequence)

    @staticmethod
    def last_suffix(start: int) -> bytes:
        """Return the highest suffix of a window."""
        return _WINDOW.pack(start, _SEQUENCE_MAX)


class _SessionLayout(Layout):
    suffix_bytes = _SESSION.size

    def time_of(self, at: bytes) -> int:
        end: int = _I64.unpack_from(at, len(at) - 16)[0]
        return end

    def windowed(self, key: Any, at: bytes, retention: WindowRetention) -> Windowed[Any]:
        end, start = _SESSION.unpack_from(at, len(at) - 16)
        return Windowed(key, start, end)

    @staticmethod
    def suffix(end: int, start: int) -> bytes:
        """Return the bytes after the key in a stored key."""
        return _SESSION.pack(end, start)


WINDOW_LAYOUT: Final = _WindowLayout()
SESSION_LAYOUT: Final = _SessionLayout()
