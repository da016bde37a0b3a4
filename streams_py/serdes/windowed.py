"""Keys of windowed tables, and their bytes.

A time-windowed key is the key's bytes and the window's start (i64); its end is not written, so a reader must know the
window size. A session key is the key's bytes, the session's *end* and its start (Kafka's ``TimeWindowedSerializer`` and
``SessionWindowedSerializer``).
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
    """A key within one window, times in ms. ``end`` is after the window for time windows, and the last instant of it
    for sliding windows and sessions."""

    key: K
    start: int
    end: int


class WindowedSerde(Serde[Windowed[Any]]):
    """What both kinds have in common. ``inner``: the serde of the key; None stands for the configured default."""

    window_bytes = 0
    """Bytes behind those of the key."""

    def __init__(self, inner: Serde[Any] | None) -> None:
        self.inner = inner

    @abstractmethod
    def with_inner(self, inner: Serde[Any] | None) -> WindowedSerde:
        """The same for other keys."""

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
                f"no serde for the keys inside of windowed keys of {topic}: give one where the stream is grouped, "
                "or set default.key.serde",
                key="default.key.serde",
            )
        return self.inner


class TimeWindowedSerde(WindowedSerde):
    """Keys of time and sliding windows. ``size_ms``: from start to end; None: only good for writing."""

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
                f"windowed keys of {topic} do not say where a window ends: give time_windowed() the window size",
                key="window.size.ms",
            )

        def deserialize(data: bytes) -> Windowed[Any]:
            (start,) = _TIME.unpack_from(data, len(data) - _TIME.size)
            return Windowed(decode(data[: -_TIME.size]), start, min(start + size_ms, _MAX_TIME_MS))

        return deserialize


class SessionWindowedSerde(WindowedSerde):
    """Keys of sessions."""

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
    """Keys of time windows of ``size_ms`` (for sliding windows: the time difference), which reading needs."""
    return TimeWindowedSerde(inner, size_ms)


def session_windowed(inner: Serde[K]) -> Serde[Windowed[K]]:
    """Keys of sessions."""
    return SessionWindowedSerde(inner)
