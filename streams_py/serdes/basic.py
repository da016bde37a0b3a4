"""Serdes of the basic types, with the bytes of Kafka's ``org.apache.kafka.common.serialization``.

They never guess or truncate: an integer serde refuses ``bool`` and numbers out of range, and every fixed-size serde
refuses bytes of another length.
"""

from __future__ import annotations

import codecs
import struct
import uuid
from collections.abc import Callable
from operator import index
from typing import TypeVar

from streams_py.serdes.serde import Serde

T = TypeVar("T")

_UUID_TEXT_LENGTH = 36


class _Bytes(Serde[bytes]):
    """Unchanged bytes (Kafka's ByteArraySerializer)."""

    name = "bytes"
    plain_type = bytes

    def is_declared(self, value: object) -> bool:
        return isinstance(value, (bytes, bytearray, memoryview))

    def serializer(self, topic: str, *, is_key: bool) -> Callable[[bytes], bytes]:
        return _checked_bytes

    def deserializer(self, topic: str, *, is_key: bool) -> Callable[[bytes], bytes]:
        return bytes


def _checked_bytes(value: bytes) -> bytes:
    if value.__class__ is bytes:
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise TypeError(f"expected bytes, got {type(value).__name__}")


class _String(Serde[str]):
    """Text (Kafka's StringSerializer).

    In contrast to Kafka, text or bytes that are invalid in the encoding are an error unless ``errors`` is "replace": a
    silently changed key would be written to another partition.
    """

    plain_type = str

    def __init__(self, encoding: str = "utf-8", errors: str = "strict") -> None:
        self._encoding = codecs.lookup(encoding).name
        self._errors = errors
        codecs.lookup_error(errors)
        self._is_default = self._encoding == "utf-8" and errors == "strict"

    @property
    def name(self) -> str:
        return "string" if self._encoding == "utf-8" else f"string ({self._encoding})"

    def serializer(self, topic: str, *, is_key: bool) -> Callable[[str], bytes]:
        if self._is_default:
            return str.encode
        encoding, errors = self._encoding, self._errors
        return lambda value: str.encode(value, encoding, errors)

    def deserializer(self, topic: str, *, is_key: bool) -> Callable[[bytes], str]:
        if self._is_default:
            return bytes.decode
        encoding, errors = self._encoding, self._errors
        return lambda data: bytes.decode(data, encoding, errors)


class _Number(Serde[T]):
    """A big-endian number of a fixed size, packed by :mod:`struct`."""

    def __init__(self, name: str, struct_format: str) -> None:
        self._name = name
        self._format = struct_format
        self._struct = struct.Struct(">" + struct_format)

    def __reduce__(self) -> tuple[type[_Number[T]], tuple[str, str]]:
        """Support pickling, because topologies are sent to Spark's workers, and a compiled format cannot be pickled."""
        return type(self), (self._name, self._format)

    @property
    def name(self) -> str:
        return self._name

    @property
    def struct_format(self) -> str:
        return self._format

    @property
    def fixed_size(self) -> int:
        return self._struct.size

    def deserializer(self, topic: str, *, is_key: bool) -> Callable[[bytes], T]:
        unpack = self._struct.unpack

        def deserialize(data: bytes) -> T:
            number: T = unpack(data)[0]
            return number

        return deserialize


class _Int(_Number[int]):
    """A signed integer. The bytes have the order of the numbers only for numbers that are not negative."""

    plain_type = int

    def serializer(self, topic: str, *, is_key: bool) -> Callable[[int], bytes]:
        pack = self._struct.pack

        def serialize(value: int) -> bytes:
            if value.__class__ is int:
                return pack(value)
            if isinstance(value, bool):
                raise TypeError("expected int, got bool")
            return pack(index(value))

        return serialize


class _Float(_Number[float]):
    """An IEEE 754 number. Integers are accepted too, and are read back as float."""

    @property
    def plain_type(self) -> type[float] | None:
        return float if self.struct_format == "d" else None  # a float32 is rounded by encoding

    def is_declared(self, value: object) -> bool:
        return isinstance(value, (int, float)) and not isinstance(value, bool)

    def serializer(self, topic: str, *, is_key: bool) -> Callable[[float], bytes]:
        pack = self._struct.pack

        def serialize(value: object) -> bytes:
            if value.__class__ is float:
                return pack(value)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise TypeError(f"expected float, got {type(value).__name__}")
            return pack(value)

        return serialize


class _Uuid(Serde[uuid.UUID]):
    """A UUID as its 36-character text in lower case, in UTF-8 (Kafka's UUIDSerializer)."""

    name = "uuid"
    plain_type = uuid.UUID
    fixed_size = _UUID_TEXT_LENGTH

    def serializer(self, topic: str, *, is_key: bool) -> Callable[[uuid.UUID], bytes]:
        return _uuid_text

    def deserializer(self, topic: str, *, is_key: bool) -> Callable[[bytes], uuid.UUID]:
        return _uuid_of


def _uuid_text(value: uuid.UUID) -> bytes:
    if not isinstance(value, uuid.UUID):
        raise TypeError(f"expected uuid.UUID, got {type(value).__name__}")
    return str(value).encode()


def _uuid_of(data: bytes) -> uuid.UUID:
    if len(data) != _UUID_TEXT_LENGTH:  # uuid.UUID() also takes braces, URNs and bare digits
        raise ValueError(f"a UUID must have {_UUID_TEXT_LENGTH} characters of text, got {len(data)} bytes")
    return uuid.UUID(data.decode("ascii"))


class _Bool(Serde[bool]):
    """A boolean as one byte, 01 or 00 (Kafka's BooleanSerializer)."""

    name = "bool"
    plain_type = bool

    def serializer(self, topic: str, *, is_key: bool) -> Callable[[bool], bytes]:
        return _bool_byte

    def deserializer(self, topic: str, *, is_key: bool) -> Callable[[bytes], bool]:
        return _bool_of


def _bool_byte(value: bool) -> bytes:
    if value is True:
        return b"\x01"
    if value is False:
        return b"\x00"
    raise TypeError(f"expected bool, got {type(value).__name__}")


def _bool_of(data: bytes) -> bool:
    if data == b"\x01":
        return True
    if data == b"\x00":
        return False
    raise ValueError("a boolean must be the byte 01 or 00")


class _Void(Serde[None]):
    """Always null. Serdes are never called for null, so every call is an error."""

    name = "void"

    def is_declared(self, value: object) -> bool:
        return value is None

    def serializer(self, topic: str, *, is_key: bool) -> Callable[[None], bytes]:
        return _void_encode

    def deserializer(self, topic: str, *, is_key: bool) -> Callable[[bytes], None]:
        return _void_decode


def _void_encode(value: None) -> bytes:
    raise TypeError(f"only None is allowed, got {type(value).__name__}")


def _void_decode(data: bytes) -> None:
    raise ValueError(f"only null is allowed, got {len(data)} bytes")


def string(encoding: str = "utf-8", *, errors: str = "strict") -> Serde[str]:
    """Return a serde for text in ``encoding`` (Kafka's ``serializer.encoding``).

    ``errors="replace"`` replaces invalid characters by question marks or U+FFFD, as Java does. By default, they are an
    error.
    """
    return _String(encoding, errors)


BYTES: Serde[bytes] = _Bytes()
"""Unchanged bytes."""
STRING: Serde[str] = _String()
"""Text in UTF-8."""
INT16: Serde[int] = _Int("int16", "h")
"""2 bytes, signed."""
INT32: Serde[int] = _Int("int32", "i")
"""4 bytes, signed."""
INT64: Serde[int] = _Int("int64", "q")
"""8 bytes, signed. ``count`` uses this serde."""
FLOAT32: Serde[float] = _Float("float32", "f")
"""4 bytes, IEEE 754."""
FLOAT64: Serde[float] = _Float("float64", "d")
"""8 bytes, IEEE 754."""
UUID: Serde[uuid.UUID] = _Uuid()
"""A UUID as text."""
BOOL: Serde[bool] = _Bool()
"""One byte."""
VOID: Serde[None] = _Void()
"""Always null."""
