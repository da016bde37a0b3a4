"""Reader and Writer: the only code that handles offsets and lengths.

A :class:`Reader` guarantees three things for all bytes. It compares every length with the remaining bytes before it
allocates memory. It raises only :class:`~streams_protocol.errors.DecodeError`. The error names the field and the byte.
A :class:`Writer` guarantees that a value either fits its field exactly or raises
:class:`~streams_protocol.errors.EncodeError`.

Both implement Kafka's generated, non-flexible encoding (``string``, ``blob``, counts) and Java's data-stream encoding
(``mutf``, ``chars``). All integers are big-endian and signed. The struct letters ``b h i q`` stand for 1, 2, 4 and 8
bytes.

Long lists of fixed-size rows are processed by column: slices with a stride (copied in C) collect the bytes of one
column, and one ``struct`` call converts the whole column. So a row costs about as much as its Python objects, which
makes 10,000 tasks cheaper than JSON.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import cache
from typing import Final

from .errors import (
    DecodeError,
    InvalidLengthDecodeError,
    MalformedTextDecodeError,
    NotAllowedDecodeError,
    TruncatedDecodeError,
    ValueEncodeError,
)
from .limits import INT16_STRING_BYTES_MAX, MUTF_BYTES_MAX, USER_DATA_BYTES_MAX, check_decoded, check_encoded
from .mutf import decode_mutf, encode_mutf

__all__ = ["Reader", "Writer"]

_INT8: Final = struct.Struct(">b")
_INT16: Final = struct.Struct(">h")
_UINT16: Final = struct.Struct(">H")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_WIDTH: Final = {"b": 1, "h": 2, "i": 4, "q": 8}

_INT_MAX: Final = 2**31 - 1
_FEW_ROWS: Final = 16
"""Maximum number of rows that are unpacked number by number.

For more rows, collecting columns byte by byte is faster. The module struct caches its last hundred layouts, which is
enough for these.
"""


class Reader:
    """Reads bytes from offset 0 on. Errors begin with the name ``message``."""

    __slots__ = ("_at", "_data", "_message", "_texts")

    def __init__(self, data: bytes | bytearray | memoryview, message: str) -> None:
        check_decoded(len(data), USER_DATA_BYTES_MAX, f"{message}: bytes", 0)
        self._data = bytes(data)
        self._at = 0
        self._message = message
        self._texts: dict[bytes, str] = {}

    @property
    def offset(self) -> int:
        """Offset of the next read."""
        return self._at

    @property
    def remaining(self) -> int:
        """Number of bytes not read yet."""
        return len(self._data) - self._at

    # -- errors ----------------------------------------------------------------------------------------------

    def truncated(self, field: str, needed: int) -> DecodeError:
        return TruncatedDecodeError(
            f"{self._message}: {field} needs {needed} bytes, {self.remaining} are left",
            offset=self._at,
            remedy="the sender wrote another layout, or the bytes were cut on the way; check its version",
        )

    def invalid_length(self, field: str, length: int, at: int) -> DecodeError:
        return InvalidLengthDecodeError(
            f"{self._message}: length {length} of {field} is impossible, {len(self._data) - at} bytes are left",
            offset=at,
            remedy="the sender wrote another layout; check which program and version it runs",
        )

    def not_allowed(self, fault: str, at: int) -> DecodeError:
        return NotAllowedDecodeError(
            f"{self._message}: {fault}", offset=at, remedy="no Kafka writer sends this; check which program wrote it"
        )

    # -- numbers ---------------------------------------------------------------------------------------------

    def _number(self, layout: struct.Struct, field: str) -> int:
        try:
            value: int = layout.unpack_from(self._data, self._at)[0]
        except struct.error:
            raise self.truncated(field, layout.size) from None
        self._at += layout.size
        return value

    def int8(self, field: str) -> int:
        return self._number(_INT8, field)

    def int16(self, field: str) -> int:
        return self._number(_INT16, field)

    def int32(self, field: str) -> int:
        return self._number(_INT32, field)

    def int64(self, field: str) -> int:
        return self._number(_INT64, field)

    def count(self, field: str, *, row_bytes_min: int, most: int = USER_DATA_BYTES_MAX) -> int:
        """Read the length of an array with at most ``most`` rows of at least ``row_bytes_min`` bytes."""
        at = self._at
        count = self.int32(f"length of {field}")
        self._check_count(count, field, at, row_bytes_min, most)
        return count

    def nullable_count(self, field: str, *, row_bytes_min: int) -> int | None:
        """Read a length like :meth:`count`; any negative length is None."""
        at = self._at
        count = self.int32(f"length of {field}")
        if count < 0:
            return None
        self._check_count(count, field, at, row_bytes_min, USER_DATA_BYTES_MAX)
        return count

    def _check_count(self, count: int, field: str, at: int, row_bytes_min: int, most: int) -> None:
        if count < 0 or count > self.remaining:
            raise self.invalid_length(field, count, at)
        if count * row_bytes_min > self.remaining:
            raise self.truncated(f"{field} with {count} entries", count * row_bytes_min)
        check_decoded(count, most, f"{self._message}: number of {field}", at)

    def columns(self, codes: str, count: int, field: str) -> list[tuple[int, ...]]:
        """Read ``count`` rows of fixed-size integers, one tuple per column.

        ``codes`` are struct letters.
        """
        row_bytes = _row_bytes(codes)
        if count * row_bytes > self.remaining:
            raise self.truncated(f"{field} with {count} entries", count * row_bytes)
        return self._columns(codes, count, row_bytes)

    def columns_if_ending(self, codes: str, count: int, row_end: bytes) -> list[tuple[int, ...]] | None:
        """Read rows like :meth:`columns` if every row ends with the bytes ``row_end``.

        ``row_end`` is, for example, the length of an absent string. If a row ends differently, or if there are not
        enough bytes, the method reads nothing and returns None: the rows differ in size.
        """
        end_shift = _row_bytes(codes)
        row_bytes = end_shift + len(row_end)
        end = self._at + count * row_bytes
        if end > len(self._data):
            return None
        for shift, byte in enumerate(row_end, end_shift):
            if self._data[self._at + shift : end : row_bytes].count(byte) != count:
                return None
        return self._columns(codes, count, row_bytes)

    def _columns(self, codes: str, count: int, row_bytes: int) -> list[tuple[int, ...]]:
        if count <= _FEW_ROWS and row_bytes == _row_bytes(codes):
            flat = struct.unpack_from(">" + codes * count, self._data, self._at)
            self._at += count * row_bytes
            return [flat[number :: len(codes)] for number in range(len(codes))]
        end = self._at + count * row_bytes
        columns: list[tuple[int, ...]] = []
        for shift, code in _shifts(codes):
            width = _WIDTH[code]
            gathered = bytearray(width * count)
            for byte in range(width):
                gathered[byte::width] = self._data[self._at + shift + byte : end : row_bytes]
            columns.append(struct.unpack(f">{count}{code}", gathered))
        self._at = end
        return columns

    # -- bytes and text ----------------------------------------------------------------------------------------

    def raw(self, length: int, field: str) -> bytes:
        """Read ``length`` bytes; the caller has checked that ``length`` is not negative."""
        if length > self.remaining:
            raise self.truncated(field, length)
        start = self._at
        self._at += length
        return self._data[start : self._at]

    def _sized(self, length: int, field: str, at: int) -> bytes:
        if length < 0 or length > self.remaining:
            raise self.invalid_length(field, length, at)
        return self.raw(length, field)

    def blob(self, field: str) -> bytes:
        at = self._at
        return self._sized(self.int32(f"length of {field}"), field, at)

    def nullable_blob(self, field: str) -> bytes | None:
        at = self._at
        length = self.int32(f"length of {field}")
        return None if length < 0 else self._sized(length, field, at)

    def string(self, field: str) -> str:
        at = self._at
        return self._sized(self.int16(f"length of {field}"), field, at).decode("utf-8", "replace")

    def nullable_string(self, field: str) -> str | None:
        at = self._at
        length = self.int16(f"length of {field}")
        return None if length < 0 else self._sized(length, field, at).decode("utf-8", "replace")

    def mutf(self, field: str) -> str:
        """Read text in modified UTF-8, preceded by its number of bytes."""
        at = self._at
        encoded = self.raw(self._number(_UINT16, f"length of {field}"), field)
        text = self._texts.get(encoded)
        if text is None:
            try:
                text = self._texts[encoded] = decode_mutf(encoded)
            except ValueError as error:
                raise MalformedTextDecodeError(
                    f"{self._message}: {field} is not modified UTF-8: {error}",
                    offset=at,
                    remedy="the sender wrote another layout; check which program and version it runs",
                ) from None
        return text

    def chars(self, field: str) -> str:
        """Read UTF-16 text, preceded by its number of code units."""
        at = self._at
        units = self.int32(f"length of {field}")
        if units < 0:
            raise self.not_allowed(f"length {units} of {field} is negative", at)
        return self.raw(2 * units, field).decode("utf-16-be", "surrogatepass")


@cache  # there are few layouts
def _row_bytes(codes: str) -> int:
    return sum(_WIDTH[code] for code in codes)


@cache
def _shifts(codes: str) -> list[tuple[int, str]]:
    shifts, shift = [], 0
    for code in codes:
        shifts.append((shift, code))
        shift += _WIDTH[code]
    return shifts


class Writer:
    """Collects the bytes of one message. Errors begin with the name ``message``."""

    __slots__ = ("_message", "_mutf", "_out")

    def __init__(self, message: str) -> None:
        self._out = bytearray()
        self._message = message
        self._mutf: dict[str, bytes] = {}

    def finish(self) -> bytes:
        """Return the whole message."""
        check_encoded(len(self._out), USER_DATA_BYTES_MAX, f"{self._message}: bytes")
        return bytes(self._out)

    def _refuse(self, field: str, fault: str) -> ValueEncodeError:
        return ValueEncodeError(
            f"{self._message}: {field} {fault}", remedy="shorten or correct the value before it is sent"
        )

    # -- numbers ---------------------------------------------------------------------------------------------

    def _number(self, layout: struct.Struct, value: int, field: str) -> None:
        try:
            self._out += layout.pack(value)
        except struct.error:
            raise self._refuse(field, f"is {value!r:.60}, which does not fit into {layout.size} bytes") from None

    def int8(self, value: int, field: str) -> None:
        self._number(_INT8, value, field)

    def int16(self, value: int, field: str) -> None:
        self._number(_INT16, value, field)

    def int32(self, value: int, field: str) -> None:
        self._number(_INT32, value, field)

    def int64(self, value: int, field: str) -> None:
        self._number(_INT64, value, field)

    def count(self, value: int, field: str, *, most: int = _INT_MAX) -> None:
        """Write the length of an array."""
        check_encoded(value, most, f"{self._message}: number of {field}")
        self._out += _INT32.pack(value)

    def columns(
        self, codes: str, columns: Iterable[Iterable[int]], count: int, field: str, *, row_end: bytes = b""
    ) -> None:
        """Write ``count`` rows of fixed-size integers, given by column.

        ``codes`` are struct letters. Each row ends with ``row_end``.
        """
        row = bytes(_row_bytes(codes)) + row_end
        rows = bytearray(row) * count
        for (shift, code), column in zip(_shifts(codes), columns, strict=True):
            try:
                packed = struct.pack(f">{count}{code}", *column)
            except struct.error:
                raise self._refuse(field, f"contain a number that does not fit into {_WIDTH[code]} bytes") from None
            width = _WIDTH[code]
            for byte in range(width):
                rows[shift + byte :: len(row)] = packed[byte::width]
        self._out += rows

    # -- bytes and text ----------------------------------------------------------------------------------------

    def raw(self, value: bytes) -> None:
        self._out += value

    def blob(self, value: bytes, field: str) -> None:
        check_encoded(len(value), USER_DATA_BYTES_MAX, f"{self._message}: bytes of {field}")
        self._out += _INT32.pack(len(value))
        self._out += value

    def nullable_blob(self, value: bytes | None, field: str) -> None:
        if value is None:
            self._out += b"\xff\xff\xff\xff"
        else:
            self.blob(value, field)

    def text_blob(self, value: str, field: str) -> None:
        """Write text as UTF-8 in a blob."""
        self.blob(self._utf8(value, field), field)

    def string(self, value: str, field: str) -> None:
        encoded = self._utf8(value, field)
        if len(encoded) > INT16_STRING_BYTES_MAX:
            raise self._refuse(field, f"has {len(encoded)} bytes; at most {INT16_STRING_BYTES_MAX} fit")
        self._out += _INT16.pack(len(encoded))
        self._out += encoded

    def nullable_string(self, value: str | None, field: str) -> None:
        if value is None:
            self._out += b"\xff\xff"
        else:
            self.string(value, field)

    def _utf8(self, value: str, field: str) -> bytes:
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise self._refuse(field, "contains half of a surrogate pair, which UTF-8 cannot express") from None

    def mutf(self, value: str, field: str) -> None:
        """Write text in modified UTF-8, preceded by its number of bytes."""
        sized = self._mutf.get(value)
        if sized is None:
            encoded = encode_mutf(value)
            if len(encoded) > MUTF_BYTES_MAX:
                raise self._refuse(field, f"has {len(encoded)} bytes; at most {MUTF_BYTES_MAX} fit")
            sized = self._mutf[value] = _UINT16.pack(len(encoded)) + encoded
        self._out += sized

    def chars(self, value: str, field: str) -> None:
        """Write UTF-16 text, preceded by its number of code units."""
        encoded = value.encode("utf-16-be", "surrogatepass")
        check_encoded(len(encoded), USER_DATA_BYTES_MAX, f"{self._message}: bytes of {field}")
        self._out += _INT32.pack(len(encoded) // 2)
        self._out += encoded
