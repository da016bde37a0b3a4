"""Encoding of a grouped table's changes in its repartition topic (``ChangedSerializer``).

======  ======================================================
flag    bytes before it
======  ======================================================
``00``  old value, to subtract
``01``  new value, to add
``02``  varint(length of new), new value, old value
``03``  as ``00``, then one byte "is latest"
``04``  as ``01``, then one byte "is latest"
``05``  as ``02``, then one byte "is latest"
======  ======================================================

The flag is the last byte, so the bytes of a value come first, as in releases without flag ``02`` (KIP-904). Flags 3 to
5 (KIP-914) are read but never written. The varint is a signed int, zig-zag encoded, in groups of 7 bits, low groups
first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from streams_py.errors import ConfigError, SerializationError
from streams_py.serdes import Serde, SerdeDefaults, serde_or_default
from streams_py.topology.declare.nodes import Change

_OLD: Final = 0
_NEW: Final = 1
_BOTH: Final = 2
_LATEST: Final = 3  # added to the flag when the byte "is latest" precedes it
_VARINT_BYTES_MAX: Final = 5


class ChangeSerde(Serde[Change]):
    """Serde of :class:`Change` with the serde of the values; ``inner`` None: configured default."""

    def __init__(self, inner: Serde[Any] | None) -> None:
        self.inner = inner

    @property
    def name(self) -> str:
        return f"change of {'the default serde' if self.inner is None else self.inner.name}"

    def with_defaults(self, defaults: SerdeDefaults) -> ChangeSerde:
        return ChangeSerde(serde_or_default(self.inner, defaults, is_key=False))

    def is_declared(self, value: object) -> bool:
        parts = value if isinstance(value, Change) else (value,)
        return self.inner is None or all(part is None or self.inner.is_declared(part) for part in parts)

    def serializer(self, topic: str, *, is_key: bool) -> Callable[[Change], bytes]:
        encode = self._known_inner(topic).serializer(topic, is_key=is_key)

        def serialize(change: Change) -> bytes:
            new, old = change
            if old is None:
                if new is None:
                    raise SerializationError("a change without an old and a new value cannot be sent")
                return encode(new) + b"\x01"
            if new is None:
                return encode(old) + b"\x00"
            encoded = encode(new)
            return b"".join((_varint(len(encoded)), encoded, encode(old), b"\x02"))

        return serialize

    def deserializer(self, topic: str, *, is_key: bool) -> Callable[[bytes], Change]:
        decode = self._known_inner(topic).deserializer(topic, is_key=is_key)

        def deserialize(data: bytes) -> Change:
            flag, end = data[-1] if data else -1, len(data) - 1
            if _LATEST <= flag <= _LATEST + _BOTH:
                flag, end = flag - _LATEST, end - 1
            if flag == _NEW and end >= 0:
                return Change(decode(data[:end]), None)
            if flag == _OLD and end >= 0:
                return Change(None, decode(data[:end]))
            if flag == _BOTH:
                length, start = _read_varint(data, end)
                if 0 <= length <= end - start:
                    return Change(decode(data[start : start + length]), decode(data[start + length : end]))
            raise SerializationError(f"{len(data)} bytes ending in flag {flag} are not a change of a table")

        return deserialize

    def _known_inner(self, topic: str) -> Serde[Any]:
        if self.inner is None:
            raise ConfigError(
                f"no serde for the values of topic {topic}: pass a value serde to group_by, or set default.value.serde",
                key="default.value.serde",
            )
        return self.inner


def _varint(number: int) -> bytes:
    rest = number << 1  # zig-zag encoding of a non-negative number
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _read_varint(data: bytes, end: int) -> tuple[int, int]:
    """Return the value and the position after it; (-1, 0) if it is not complete before ``end``."""
    rest = 0
    for position in range(min(end, _VARINT_BYTES_MAX)):
        rest |= (data[position] & 0x7F) << 7 * position
        if data[position] < 0x80:
            return (rest >> 1) ^ -(rest & 1), position + 1
    return -1, 0
