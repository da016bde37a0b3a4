"""The changelog format of suppress buffers: all versions of Kafka Streams' ``BufferValue``.

======  =====================================================================================
``v``   value
======  =====================================================================================
none    i64 buffer time, change
``01``  i64 buffer time, context, i32 length, change
``02``  context, i32 length, change, prior, i64 buffer time; some releases wrongly wrote ``03``
``03``  context, prior, old, new, i64 buffer time; old has length -2 when it equals prior
======  =====================================================================================

``v`` is the record header with the version. New records have version 03. A *change* is old and new. Each of old, new
and prior is an i32 length (-1: null) followed by the bytes. The context is i64 timestamp, i64 offset, topic (i32
length, UTF-8), i32 partition, i32 number of headers, and the name and value of each header, both with i32 lengths.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from streams_py.errors import SerializationError
from streams_py.ports import Headers, RawRecord
from streams_py.ports.record_headers import headers_of

CHANGELOG_HEADERS: Final[list[tuple[str, bytes | None]]] = [("v", b"\x03")]

_NULL: Final = -1
_SAME_AS_PRIOR: Final = -2
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_CONTEXT = struct.Struct(">qqi")


class Buffered(NamedTuple):
    """A waiting change. The fields after ``new`` are the context of the latest record of its key."""

    prior: bytes | None
    """The value that downstream nodes know: the old value at the time when the key entered the buffer."""
    old: bytes | None
    new: bytes | None
    timestamp: int
    offset: int
    topic: str | None
    partition: int
    headers: Headers

    def size(self, key: bytes) -> int:
        """Return the size in bytes, counted as in Kafka Streams."""
        size = 8 + len(key) + 20 + len(self.topic or "")
        size += sum(len(name) + len(value or b"") for name, value in self.headers)
        size += len(self.prior or b"") + len(self.new or b"")
        return size if self.old == self.prior else size + len(self.old or b"")


def encode(entry: Buffered, buffer_time_ms: int) -> bytes:
    """Encode a changelog value."""
    topic = (entry.topic or "").encode()  # records of punctuators have no topic, which the format cannot express
    parts = [_CONTEXT.pack(entry.timestamp, entry.offset, len(topic)), topic, _I32.pack(entry.partition)]
    parts.append(_I32.pack(len(entry.headers)))
    for name, value in entry.headers:
        parts += _sized(name.encode())
        parts += _sized(value)
    parts += _sized(entry.prior)
    if entry.old is not None and entry.old == entry.prior:
        parts.append(_I32.pack(_SAME_AS_PRIOR))
    else:
        parts += _sized(entry.old)
    parts += _sized(entry.new)
    parts.append(_I64.pack(buffer_time_ms))
    return b"".join(parts)


def decode_buffered(value: bytes) -> Buffered:
    """Decode a value made by :func:`encode`.

    Raises:
        SerializationError: The value is damaged.
    """
    try:
        return _decode_3(value)[0]
    except (ValueError, struct.error) as error:
        raise SerializationError(
            f"cannot decode a buffered record: {error}; restore the buffer from its changelog"
        ) from error


def _sized(data: bytes | None) -> tuple[bytes, ...]:
    return (_I32.pack(_NULL),) if data is None else (_I32.pack(len(data)), data)


def decode_record(record: RawRecord, value: bytes, prior: bytes | None) -> tuple[Buffered, int]:
    """Decode a changelog record of any version.

    Args:
        record: The record.
        value: Its value.
        prior: The ``prior`` of the entry that is already buffered for this key. Old versions do not contain it.

    Returns:
        The entry, and its buffer time in ms.

    Raises:
        SerializationError: The version is unknown, or the value is damaged.
    """
    versions = [data for name, data in headers_of(record) or () if name == "v"]
    try:
        match versions[-1] if versions else None:
            case None:
                return _decode_0(record, value, prior)
            case b"\x01":
                return _decode_1(value, prior)
            case b"\x02":
                try:
                    return _decode_2(value)
                except (ValueError, struct.error):
                    return _decode_3(value)
            case b"\x03":
                return _decode_3(value)
            case unknown:
                raise ValueError(f"unknown version {unknown!r}")
    except (ValueError, struct.error) as error:
        raise SerializationError(
            f"cannot restore the record at offset {record.offset()} of suppress changelog "
            f"{record.topic()}-{record.partition()}: {error}. A newer release, or another program, has written it"
        ) from error


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def i32(self) -> int:
        (number,) = _I32.unpack_from(self._data, self._at)
        self._at += _I32.size
        return int(number)

    def i64(self) -> int:
        (number,) = _I64.unpack_from(self._data, self._at)
        self._at += _I64.size
        return int(number)

    def take(self, length: int) -> bytes | None:
        if length == _NULL:
            return None
        if not 0 <= length <= len(self._data) - self._at:
            raise ValueError(f"a length of {length} bytes where only {len(self._data) - self._at} bytes are left")
        data = self._data[self._at : self._at + length]
        self._at += length
        return data

    def sized(self) -> bytes | None:
        return self.take(self.i32())

    def text(self) -> str:
        data = self.sized()
        if data is None:
            raise ValueError("a name is missing")
        return data.decode()

    def context(self) -> tuple[int, int, str | None, int, Headers]:
        timestamp, offset = self.i64(), self.i64()
        topic = self.text() or None
        partition, count = self.i32(), self.i32()
        headers = tuple((self.text(), self.sized()) for _ in range(max(count, 0)))
        return timestamp, offset, topic, partition, headers

    def end(self) -> None:
        if self._at != len(self._data):
            raise ValueError(f"{len(self._data) - self._at} unexpected bytes at the end")


def _decode_0(record: RawRecord, value: bytes, prior: bytes | None) -> tuple[Buffered, int]:
    reader = _Reader(value)
    time_ms, old, new = reader.i64(), reader.sized(), reader.sized()
    reader.end()
    context = (
        record.timestamp()[1],
        record.offset(),
        record.topic(),
        record.partition(),
        tuple(headers_of(record) or ()),
    )
    return Buffered(old if prior is None else prior, old, new, *context), time_ms


def _decode_1(value: bytes, prior: bytes | None) -> tuple[Buffered, int]:
    reader = _Reader(value)
    time_ms, context = reader.i64(), reader.context()
    old, new = _change(reader)
    reader.end()
    return Buffered(old if prior is None else prior, old, new, *context), time_ms


def _decode_2(value: bytes) -> tuple[Buffered, int]:
    reader = _Reader(value)
    context = reader.context()
    old, new = _change(reader)
    prior, time_ms = reader.sized(), reader.i64()
    reader.end()
    return Buffered(prior, old, new, *context), time_ms


def _change(reader: _Reader) -> tuple[bytes | None, bytes | None]:
    change = reader.sized()
    if change is None:
        raise ValueError("the change is missing")
    inner = _Reader(change)
    old, new = inner.sized(), inner.sized()
    inner.end()
    return old, new


def _decode_3(value: bytes) -> tuple[Buffered, int]:
    reader = _Reader(value)
    context, prior = reader.context(), reader.sized()
    length = reader.i32()
    old = prior if length == _SAME_AS_PRIOR else reader.take(length)
    new, time_ms = reader.sized(), reader.i64()
    reader.end()
    return Buffered(prior, old, new, *context), time_ms
