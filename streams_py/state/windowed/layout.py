"""Where a window or a session lies: the bytes it is kept under.

======  =======================================================================
bytes   content
======  =======================================================================
8       number of the segment
n       key
12      window: i64 start, i32 sequence number (0 unless duplicates are kept)
16      session: i64 end, i64 start
======  =======================================================================

Behind the segment stands exactly what Kafka Streams' changelog has as key (``WindowKeySchema``, ``SessionKeySchema``).
A segment is all that starts (sessions: ends) within some milliseconds; it is scanned for one key in the order of time,
and removed as a whole. How long a segment is, is our own business.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final

from streams_py.serdes.windowed import Windowed
from streams_py.topology.declare.stores import WindowRetention

__all__ = ["SEGMENT_BYTES", "SESSION_LAYOUT", "WINDOW_LAYOUT", "Layout", "segment_prefix"]

_I64 = struct.Struct(">q")
_WINDOW = struct.Struct(">qi")
_SESSION = struct.Struct(">qq")
_SEQUENCE_MAX = 2**31 - 1

SEGMENT_BYTES: Final = _I64.size

segment_prefix: Callable[[int], bytes] = _I64.pack
"""The first bytes of all that lies in a segment."""


class Layout(ABC):
    """Times and bytes of one kind of store. ``time`` is what decides about the segment and about expiry."""

    suffix_bytes: int

    @abstractmethod
    def time_of(self, at: bytes) -> int:
        """The deciding time of a place (or of a changelog key)."""

    @abstractmethod
    def windowed(self, key: Any, at: bytes, retention: WindowRetention) -> Windowed[Any]:
        """The key with its window."""

    def key_of(self, at: bytes) -> bytes:
        """The bytes of the key."""
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
        """The bytes behind the record's key in a stored key."""
        return _WINDOW.pack(start, sequence)

    @staticmethod
    def last_suffix(start: int) -> bytes:
        """The greatest one of a window."""
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
        """The bytes behind the record's key in a stored key."""
        return _SESSION.pack(end, start)


WINDOW_LAYOUT: Final = _WindowLayout()
SESSION_LAYOUT: Final = _SessionLayout()
