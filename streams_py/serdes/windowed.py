"""Keys of windowed tables, and their serdes.

A time-windowed key is the serialized key followed by the start of the window (i64). Its end is not written, so a reader
must know the window size. A session key is the serialized key followed by the *end* of the session and its start. The
bytes are those of Kafka's ``TimeWindowedSerializer`` and ``SessionWindowedSerializer``.
"""

from __future__ import annotations

import struct
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from streams_py.errors import ConfigError
from streams_py.serdes.serde import Serde, SerdeDefaults, serde_or_default

__all__ = [
    "SessionWindowedSerde",
    "TimeWindowedSerde",
    "Windowed",
    "WindowedSerde",
    "session_windowed",
    "time_windowed",
]

K = TypeVar("K")

_MAX_TIME_MS = 2**63 - 1
_TIME = struct.Struct(">q")
_SESSION = struct.Struct(">qq")


class Windowed(NamedTuple, Generic[K]):
    """A key with a window. Times are in ms.

    ``end`` is exclusive for time windows, and inclusive for sliding windows and sessions.
    """

    key: K
    """The key."""
    start: int
    """Start of the window, in ms. Included."""
    end: int
    """End of the window, in ms."""


class WindowedSerde(Serde[Windowed[Any]]):
    """The common base of both kinds. ``inner``: the serde of the key; None: the configured default."""

    window_bytes = 0
    """Number of bytes after the key."""

    def __init__(self, inner: Serde[Any] | None) -> None:
        self.inner = inner

    @abstractmethod
    def with_inner(self, inner: Serde[Any] | None) -> WindowedSerde:
        """Return a copy with another serde of the key."""

    def with_defaults(self, defaults: SerdeDefaults) -> WindowedSerde:
        return self.with_inner(serde_or_default(self.inner, defaults, is_key=True))

    def is_declared(self, value: object) -> bool:
        return isinstance(value, Windowed) and (self.inner is None or self.inner.is_declared(value.key))

    @property
    def _inner_name(self) -> str:
        return "the default serde" if self.inner is None else self.inner.name

    def _known_inner(self, topic: str) -> Serde[Any]:
        if self.inner is None:
            raise ConfigError(
                f"no serde for the keys within windowed keys of {topic}: specify one where the stream is grouped, "
                "or set default.key.serde",
                key="default.key.serde",
            )
        return self.inner


class TimeWindowedSerde(WindowedSerde):
    """A serde for keys of time and sliding windows.

    ``size_ms``: the time from start to end of a window. None: the serde can only write.
    """

    window_bytes = _TIME.size

    def __init__(self, inner: Serde[Any] | None, size_ms: int | None) -> None:
        super().__init__(inner)
        self.size_ms = size_ms

    @property
    def name(self) -> str:
        return f"time-windowed {self._inner_name}"

    def with_inner(self, inner: Serde[Any] | None) -> TimeWindowedSerde:
        return TimeWindowedSerde(inner, self.size_ms)

    def serializer(self, topic: str, *, is_key: bool) -> Callable[[Windowed[Any]], bytes]:
        encode = self._known_inner(topic).serializer(topic, is_key=is_key)
        pack = _TIME.pack
        return lambda windowed: encode(windowed[0]) + pack(windowed[1])

    def deserializer(self, topic: str, *, is_key: bool) -> Callable[[bytes], Windowed[Any]]:
        decode = self._known_inner(topic).deserializer(topic, is_key=is_key)
        size_ms = self.size_ms
        if size_ms is None:
            raise ConfigError(
                f"windowed keys of {topic} do not contain the end of a window: pass the window size to time_windowed()",
                key="window.size.ms",
            )

        def deserialize(data: bytes) -> Windowed[Any]:
            (start,) = _TIME.unpack_from(data, len(data) - _TIME.size)
            return Windowed(decode(data[: -_TIME.size]), start, min(start + size_ms, _MAX_TIME_MS))

        return deserialize


class SessionWindowedSerde(WindowedSerde):
    """A serde for keys of sessions."""

    window_bytes = _SESSION.size

    @property
    def name(self) -> str:
        return f"session-windowed {self._inner_name}"

    def with_inner(self, inner: Serde[Any] | None) -> SessionWindowedSerde:
        return SessionWindowedSerde(inner)

    def serializer(self, topic: str, *, is_key: bool) -> Callable[[Windowed[Any]], bytes]:
        encode = self._known_inner(topic).serializer(topic, is_key=is_key)
        pack = _SESSION.pack
        return lambda windowed: encode(windowed[0]) + pack(windowed[2], windowed[1])

    def deserializer(self, topic: str, *, is_key: bool) -> Callable[[bytes], Windowed[Any]]:
        decode = self._known_inner(topic).deserializer(topic, is_key=is_key)

        def deserialize(data: bytes) -> Windowed[Any]:
            end, start = _SESSION.unpack_from(data, len(data) - _SESSION.size)
            return Windowed(decode(data[: -_SESSION.size]), start, end)

        return deserialize


def time_windowed(inner: Serde[K], size_ms: int | None = None) -> Serde[Windowed[K]]:
    """Return a serde for keys of time windows.

    ``size_ms`` is required for reading. For sliding windows it is the time difference.
    """
    return TimeWindowedSerde(inner, size_ms)


def session_windowed(inner: Serde[K]) -> Serde[Windowed[K]]:
    """Return a serde for keys of sessions."""
    return SessionWindowedSerde(inner)
