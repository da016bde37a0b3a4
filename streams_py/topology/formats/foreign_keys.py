"""Messages between the two sides of a foreign-key join, and their bytes (KIP-213).

The left table *subscribes* to a key of the right table. The right table stores the subscriptions and *responds* with
the row of that key whenever the row or the subscription changes. A response has the hash of the left value of its
subscription. If the left value has changed since then, the response is outdated and dropped. Source: Kafka Streams'
package ``foreignkeyjoin``.

============  =============================================================================================
subscription  version (``80`` is added without a hash), instruction, 16 bytes of hash, primary key,
              i32 partition of the left table (from version 1 on)
stored under  i32 length of the foreign key, foreign key, primary key
response      version (as above), 16 bytes of hash, value of the right row (absent without a row)
============  =============================================================================================
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum
from typing import Any, Final, NamedTuple

from streams_py.errors import ConfigError, SerializationError
from streams_py.serdes import Serde, SerdeDefaults, serde_or_default

_HASH_BYTES: Final = 16
_NO_HASH: Final = 0x80
_PARTITION = struct.Struct(">i")
_VERSION_MAX: Final = 1


class Instruction(IntEnum):
    """The right side's reaction to a subscription."""

    DELETE_KEY_NO_PROPAGATE = 0
    DELETE_KEY_AND_PROPAGATE = 1
    PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE = 2
    PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE = 3


class Subscription(NamedTuple):
    """A request for the row of a foreign key.

    ``hash`` is the hash of the left value, None if that was deleted.
    """

    hash: bytes | None
    instruction: int
    primary_key: Any
    partition: int | None
    version: int = _VERSION_MAX


class Response(NamedTuple):
    """The row that a subscription requested. ``partition``, its destination, is not encoded."""

    hash: bytes | None
    value: Any
    partition: int | None = None


class SubscriptionSerde(Serde[Subscription]):
    """Serde of subscriptions.

    ``inner`` is the serde of primary keys; None stands for the default *key* serde, although subscriptions are values.
    Wherever primary keys are written, their serde gets the same topic name: ``topic`` with the suffix ``-pk``.
    ``changelog`` is the short name of the changelog of subscriptions.
    """

    def __init__(self, inner: Serde[Any] | None, topic: str, changelog: str) -> None:
        self._inner = inner
        self._topic = topic
        self._changelog = changelog

    def with_defaults(self, defaults: SerdeDefaults) -> SubscriptionSerde:
        return SubscriptionSerde(serde_or_default(self._inner, defaults, is_key=True), self._topic, self._changelog)

    def _key_topic(self, topic: str) -> str:
        application = topic.removesuffix(self._topic).removesuffix(self._changelog)
        return f"{application}{self._topic}-pk"

    def serializer(self, topic: str, *, is_key: bool) -> Callable[[Subscription], bytes]:
        encode = _known(self._inner, topic, "key").serializer(self._key_topic(topic), is_key=True)

        def serialize(subscription: Subscription) -> bytes:
            found, instruction, primary_key, partition, version = subscription
            head = bytes((version if found is not None else version | _NO_HASH, instruction))
            data = head + (found or b"") + encode(primary_key)
            return data if version == 0 else data + _PARTITION.pack(partition or 0)

        return serialize

    def deserializer(self, topic: str, *, is_key: bool) -> Callable[[bytes], Subscription]:
        decode = _known(self._inner, topic, "key").deserializer(self._key_topic(topic), is_key=True)

        def deserialize(data: bytes) -> Subscription:
            version, found, start = _read_head(data, 2, _VERSION_MAX, "subscription")
            end = len(data) - (_PARTITION.size if version > 0 else 0)
            if data[1] > max(Instruction) or end < start:
                raise SerializationError(f"{len(data)} bytes with instruction {data[1]} are not a subscription")
            partition = _PARTITION.unpack_from(data, end)[0] if version > 0 else None
            return Subscription(found, data[1], decode(data[start:end]), partition, version)

        return deserialize


class ResponseSerde(Serde[Response]):
    """Serde of responses. ``inner``: serde of the right table's values; None: configured default."""

    def __init__(self, inner: Serde[Any] | None) -> None:
        self.inner = inner

    def with_defaults(self, defaults: SerdeDefaults) -> ResponseSerde:
        return ResponseSerde(serde_or_default(self.inner, defaults, is_key=False))

    def serializer(self, topic: str, *, is_key: bool) -> Callable[[Response], bytes]:
        encode = _known(self.inner, topic, "value").serializer(topic, is_key=False)

        def serialize(response: Response) -> bytes:
            found, value, _ = response
            head = bytes((_NO_HASH,)) if found is None else b"\0" + found
            return head if value is None else head + encode(value)

        return serialize

    def deserializer(self, topic: str, *, is_key: bool) -> Callable[[bytes], Response]:
        decode = _known(self.inner, topic, "value").deserializer(topic, is_key=False)

        def deserialize(data: bytes) -> Response:
            _, found, start = _read_head(data, 1, 0, "response")
            return Response(found, decode(data[start:]) if len(data) > start else None)

        return deserialize


def subscription_prefix(foreign_key: bytes) -> bytes:
    """Return the common prefix of the stored subscriptions of a foreign key."""
    return _PARTITION.pack(len(foreign_key)) + foreign_key


def subscription_key(foreign_key: bytes, primary_key: bytes) -> bytes:
    """Return the key under which a subscription is stored."""
    return subscription_prefix(foreign_key) + primary_key


def _read_head(data: bytes, size: int, version_max: int, what: str) -> tuple[int, bytes | None, int]:
    """Return version, hash, and the offset of the rest."""
    version = data[0] & ~_NO_HASH if data else -1
    start = size if data and data[0] & _NO_HASH else size + _HASH_BYTES
    if not 0 <= version <= version_max or len(data) < start:
        raise SerializationError(f"{len(data)} bytes of version {version} are not a {what} of a foreign-key join")
    return version, None if data[0] & _NO_HASH else data[size:start], start


def _known(serde: Serde[Any] | None, topic: str, what: str) -> Serde[Any]:
    if serde is None:
        raise ConfigError(
            f"no {what} serde for topic {topic} of a foreign-key join: give the tables one, or set "
            f"default.{what}.serde",
            key=f"default.{what}.serde",
        )
    return serde


# -- hash ---------------------------------------------------------------------------------------------------------

_SEED: Final = 104729
_MASK: Final = 2**64 - 1
_C1: Final = 0x87C37B91114253D5
_C2: Final = 0x4CF5AD432745937F
_BLOCK = struct.Struct("<QQ")
_TWO = struct.Struct(">QQ")


def murmur3_128(data: bytes) -> bytes:
    """Return MurmurHash3 (x64, 128 bits) with Kafka's seed: both halves, big-endian."""
    first = second = _SEED
    whole = len(data) & ~15
    for low, high in _BLOCK.iter_unpack(data[:whole]):
        first ^= _mixed_low(low)
        first = ((_rotated(first, 27) + second) * 5 + 0x52DCE729) & _MASK
        second ^= _mixed_high(high)
        second = ((_rotated(second, 31) + first) * 5 + 0x38495AB5) & _MASK
    tail = data[whole:]
    if len(tail) > 8:
        second ^= _mixed_high(int.from_bytes(tail[8:], "little"))
    if tail:
        first ^= _mixed_low(int.from_bytes(tail[:8], "little"))
    first ^= len(data)
    second ^= len(data)
    first = (first + second) & _MASK
    second = (second + first) & _MASK
    first, second = _finished(first), _finished(second)
    first = (first + second) & _MASK
    return _TWO.pack(first, (second + first) & _MASK)


def _mixed_low(block: int) -> int:
    return _rotated(block * _C1 & _MASK, 31) * _C2 & _MASK


def _mixed_high(block: int) -> int:
    return _rotated(block * _C2 & _MASK, 33) * _C1 & _MASK


def _rotated(number: int, bits: int) -> int:
    return (number << bits | number >> (64 - bits)) & _MASK


def _finished(number: int) -> int:
    number = (number ^ number >> 33) * 0xFF51AFD7ED558CCD & _MASK
    number = (number ^ number >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return number ^ number >> 33
