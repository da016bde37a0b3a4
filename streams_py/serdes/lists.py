"""Lists, in the format of Kafka's ListSerializer (KIP-466).

* First byte 01: ``i32 count``, then for each element ``i32 length`` and its bytes. A null element has length -1.
* First byte 00, for elements of one fixed size: ``i32 number of nulls``, their indexes as i32, ``i32 count`` (including
  nulls), then the bytes of the other elements.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TypeVar

from streams_py.serdes.serde import Serde, SerdeDefaults

T = TypeVar("T")

_FIXED_SIZE = 0
_VARIABLE_SIZE = 1
_NULL_LENGTH = -1
_I32 = struct.Struct(">i")


class _List(Serde[list["T | None"]]):
    def __init__(self, inner: Serde[T]) -> None:
        self._inner = inner

    def with_defaults(self, defaults: SerdeDefaults) -> Serde[list[T | None]]:
        return _List(self._inner.with_defaults(defaults))

    @property
    def name(self) -> str:
        return f"list of {self._inner.name}"

    def is_declared(self, value: object) -> bool:
        if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
            return False
        return all(item is None or self._inner.is_declared(item) for item in value)

    def serializer(self, topic: str, *, is_key: bool) -> Callable[[list[T | None]], bytes]:
        encode = self._inner.serializer(topic, is_key=is_key)
        layout = _encode_variable if self._inner.fixed_size is None else _encode_fixed

        def serialize(value: object) -> bytes:
            if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
                raise TypeError(f"expected a list, got {type(value).__name__}")
            return layout([None if item is None else encode(item) for item in value])

        return serialize

    def deserializer(self, topic: str, *, is_key: bool) -> Callable[[bytes], list[T | None]]:
        decode = self._inner.deserializer(topic, is_key=is_key)
        size = self._inner.fixed_size

        def deserialize(data: bytes) -> list[T | None]:
            items = _decode_variable(data) if size is None else _decode_fixed(data, size)
            return [None if item is None else decode(item) for item in items]

        return deserialize


def _encode_variable(items: list[bytes | None]) -> bytes:
    parts = [bytes((_VARIABLE_SIZE,)), _I32.pack(len(items))]
    for item in items:
        if item is None:
            parts.append(_I32.pack(_NULL_LENGTH))
        else:
            parts.append(_I32.pack(len(item)))
            parts.append(item)
    return b"".join(parts)


def _encode_fixed(items: list[bytes | None]) -> bytes:
    nulls = [i for i, item in enumerate(items) if item is None]
    head = struct.pack(f">bi{len(nulls)}ii", _FIXED_SIZE, len(nulls), *nulls, len(items))
    return head + b"".join(item for item in items if item is not None)


def _decode_variable(data: bytes) -> list[bytes | None]:
    _check_layout(data, _VARIABLE_SIZE)
    count, at = _count_at(data, 1, least_bytes_each=_I32.size)
    items: list[bytes | None] = []
    for _ in range(count):
        (length,) = _I32.unpack_from(data, at)
        at += _I32.size
        if length == _NULL_LENGTH:
            items.append(None)
            continue
        if length < 0 or length > len(data) - at:
            raise ValueError(f"an element has {length} bytes, but only {len(data) - at} bytes are left")
        items.append(data[at : at + length])
        at += length
    _check_end(data, at)
    return items


def _decode_fixed(data: bytes, size: int) -> list[bytes | None]:
    _check_layout(data, _FIXED_SIZE)
    null_count, at = _count_at(data, 1, least_bytes_each=_I32.size)
    nulls = set(struct.unpack_from(f">{null_count}i", data, at))
    at += null_count * _I32.size
    (count,) = _I32.unpack_from(data, at)
    at += _I32.size
    if count < len(nulls) or (count - len(nulls)) * size != len(data) - at:
        raise ValueError(f"{count} elements ({len(nulls)} null) of {size} bytes do not fill {len(data) - at} bytes")
    items: list[bytes | None] = []
    for i in range(count):
        if i in nulls:
            items.append(None)
        else:
            items.append(data[at : at + size])
            at += size
    _check_end(data, at)
    return items


def _check_layout(data: bytes, expected: int) -> None:
    if not data or data[0] != expected:
        raise ValueError(f"the first byte must be {expected:02x}: the list was written with another inner serde")


def _count_at(data: bytes, at: int, *, least_bytes_each: int) -> tuple[int, int]:
    (count,) = _I32.unpack_from(data, at)
    left = len(data) - at - _I32.size
    if count < 0 or count * least_bytes_each > left:  # check before memory is allocated
        raise ValueError(f"the list declares {count} elements, but only {left} bytes are left")
    return count, at + _I32.size


def _check_end(data: bytes, at: int) -> None:
    if at != len(data):
        raise ValueError(f"{len(data) - at} unexpected bytes at the end")


def list_of(inner: Serde[T]) -> Serde[list[T | None]]:
    """Return a serde for lists. ``inner`` encodes the elements, which may also be None."""
    return _List(inner)
