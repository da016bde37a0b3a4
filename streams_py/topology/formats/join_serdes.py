"""Encoding of records that wait for a partner in an outer join of streams.

This is the format of Kafka Streams' shared outer store.

===========  =====================================================
key          i64 timestamp, side (``01`` left, ``00`` right), key
value        a list (``serdes.list_of``) of: side, value
===========  =====================================================

Keys begin with the time, so a scan returns the records with closed windows first.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from streams_py.errors import ConfigError, SerializationError
from streams_py.serdes import Serde, SerdeDefaults, serde_or_default

_HEAD = struct.Struct(">q?")


class JoinSideKey(NamedTuple):
    """Time (ms), side and key of a record."""

    timestamp: int
    is_left: bool
    key: Any


class JoinSideValue(NamedTuple):
    """Side and value of a record."""

    is_left: bool
    value: Any


class JoinSideKeySerde(Serde[JoinSideKey]):
    """Serde of :class:`JoinSideKey`; ``inner`` None stands for the configured default key serde."""

    def __init__(self, inner: Serde[Any] | None) -> None:
        self.inner = inner

    def with_defaults(self, defaults: SerdeDefaults) -> JoinSideKeySerde:
        return JoinSideKeySerde(serde_or_default(self.inner, defaults, is_key=True))

    def serializer(self, topic: str, *, is_key: bool) -> Callable[[JoinSideKey], bytes]:
        encode, pack = _known(self.inner, topic, "key").serializer(topic, is_key=is_key), _HEAD.pack
        return lambda side_key: pack(side_key[0], side_key[1]) + encode(side_key[2])

    def deserializer(self, topic: str, *, is_key: bool) -> Callable[[bytes], JoinSideKey]:
        decode = _known(self.inner, topic, "key").deserializer(topic, is_key=is_key)
        unpack, size = _HEAD.unpack_from, _HEAD.size

        def deserialize(data: bytes) -> JoinSideKey:
            timestamp, is_left = unpack(data)
            return JoinSideKey(timestamp, is_left, decode(data[size:]))

        return deserialize


class JoinSideValueSerde(Serde[JoinSideValue]):
    """Serde of :class:`JoinSideValue`; None stands for the configured default value serde."""

    def __init__(self, left: Serde[Any] | None, right: Serde[Any] | None) -> None:
        self.left = left
        self.right = right

    def with_defaults(self, defaults: SerdeDefaults) -> JoinSideValueSerde:
        left, right = (serde_or_default(serde, defaults, is_key=False) for serde in (self.left, self.right))
        return JoinSideValueSerde(left, right)

    def serializer(self, topic: str, *, is_key: bool) -> Callable[[JoinSideValue], bytes]:
        left = _known(self.left, topic, "value").serializer(topic, is_key=is_key)
        right = _known(self.right, topic, "value").serializer(topic, is_key=is_key)
        return lambda side: b"\x01" + left(side[1]) if side[0] else b"\x00" + right(side[1])

    def deserializer(self, topic: str, *, is_key: bool) -> Callable[[bytes], JoinSideValue]:
        left = _known(self.left, topic, "value").deserializer(topic, is_key=is_key)
        right = _known(self.right, topic, "value").deserializer(topic, is_key=is_key)

        def deserialize(data: bytes) -> JoinSideValue:
            if not data or data[0] > 1:
                raise SerializationError(f"{len(data)} bytes do not start with the side of a join, 00 or 01")
            return JoinSideValue(True, left(data[1:])) if data[0] else JoinSideValue(False, right(data[1:]))

        return deserialize


def _known(serde: Serde[Any] | None, topic: str, what: str) -> Serde[Any]:
    if serde is None:
        raise ConfigError(
            f"no {what} serde for topic {topic}: pass one to the join, or set default.{what}.serde",
            key=f"default.{what}.serde",
        )
    return serde
