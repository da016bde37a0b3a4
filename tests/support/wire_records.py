"""Writes and reads records byte by byte, as a client in another language may: any header name, any timestamp.

Shares no code with the product or with a client library.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from typing import NamedTuple

NO_TIMESTAMP = -1

_PRODUCE, _VERSION = 0, 7
_ACKS_ALL = -1
_TIMEOUT_MS = 30_000
_POLYNOMIAL = 0x82F63B78  # of CRC-32C, reflected


class WireRecord(NamedTuple):
    """A record to write."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int = 1_000
    headers: Sequence[tuple[bytes, bytes | None]] = ()


class RefusedError(Exception):
    """The broker rejected a batch with this error code."""


def write_records(bootstrap: str, topic: str, records: Sequence[WireRecord], *, partition: int = 0) -> int:
    """Write one batch; return the offset of its first record."""
    batch = _batch(records)
    name = topic.encode()
    body = struct.pack(">hhiih", -1, _ACKS_ALL, _TIMEOUT_MS, 1, len(name)) + name
    body += struct.pack(">iii", 1, partition, len(batch)) + batch
    request = struct.pack(">hhih", _PRODUCE, _VERSION, 1, 4) + b"wire" + body
    host, port = bootstrap.split(",")[0].rsplit(":", 1)
    with socket.create_connection((host, int(port)), _TIMEOUT_MS / 1000) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        answer = _received(connection, struct.unpack(">i", _received(connection, 4))[0])
    # correlation id, one topic: its name, one partition: number, error code, first offset
    code, offset = struct.unpack_from(">hq", answer, 4 + 4 + 2 + len(name) + 4 + 4)
    if code:
        raise RefusedError(f"{topic}-{partition}: error code {code}")
    return int(offset)


def _received(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionError("the broker has closed the connection")
        data += more
    return data


def _batch(records: Sequence[WireRecord]) -> bytes:
    first_ms = records[0].timestamp_ms
    body = b"".join(_record(number, record, first_ms) for number, record in enumerate(records))
    last_ms = max(record.timestamp_ms for record in records)
    count = len(records)
    content = struct.pack(">hiqqqhii", 0, count - 1, first_ms, last_ms, -1, -1, -1, count) + body
    content = struct.pack(">ibI", -1, 2, _crc32c(content)) + content
    return struct.pack(">qi", 0, len(content)) + content


def _record(number: int, record: WireRecord, first_ms: int) -> bytes:
    content = b"\0" + _varint(record.timestamp_ms - first_ms) + _varint(number)
    content += _blob(record.key) + _blob(record.value) + _varint(len(record.headers))
    content += b"".join(_blob(name) + _blob(value) for name, value in record.headers)
    return _varint(len(content)) + content


def _blob(data: bytes | None) -> bytes:
    return _varint(-1) if data is None else _varint(len(data)) + data


def _varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63) if number < 0 else number << 1
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ _POLYNOMIAL if byte & 1 else byte >> 1
        table.append(byte)
    return table


_CRC_TABLE = _table()


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC_TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


class ReadRecord(NamedTuple):
    """A record as the broker stores it."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[bytes, bytes | None], ...]


_FETCH, _FETCH_VERSION = 1, 4
_FETCH_BYTES = 8 << 20
_CODECS, _APPEND_TIME, _CONTROL = 0x07, 0x08, 0x20


def read_records(bootstrap: str, topic: str, *, partition: int = 0, start: int = 0) -> list[ReadRecord]:
    """Return all records of a partition, including records of aborted transactions. Only for uncompressed batches."""
    host, port = bootstrap.split(",")[0].rsplit(":", 1)
    name = topic.encode()
    found: list[ReadRecord] = []
    with socket.create_connection((host, int(port)), _TIMEOUT_MS / 1000) as connection:
        while True:
            body = struct.pack(">iiiib", -1, 100, 0, _FETCH_BYTES, 0) + struct.pack(">ih", 1, len(name)) + name
            body += struct.pack(">iiqi", 1, partition, start, _FETCH_BYTES)
            request = struct.pack(">hhih", _FETCH, _FETCH_VERSION, 2, 4) + b"wire" + body
            connection.sendall(struct.pack(">i", len(request)) + request)
            answer = _received(connection, struct.unpack(">i", _received(connection, 4))[0])
            # correlation id, throttle time, one topic: its name, one partition: number, error code, ...
            at = 4 + 4 + 4 + 2 + len(name) + 4 + 4
            code, _, _, aborted = struct.unpack_from(">hqqi", answer, at)
            if code:
                raise RefusedError(f"{topic}-{partition}: error code {code}")
            at += 22 + 16 * max(0, aborted)
            size = struct.unpack_from(">i", answer, at)[0]
            records, end = _read_batches(answer[at + 4 : at + 4 + size], start)
            found += records
            if end == start:
                return found
            start = end


def _read_batches(data: bytes, start: int) -> tuple[list[ReadRecord], int]:
    records: list[ReadRecord] = []
    at = 0
    while at + 61 <= len(data):
        base, length = struct.unpack_from(">qi", data, at)
        if at + 12 + length > len(data):
            break
        attributes, last_delta, first_ms, last_ms = struct.unpack_from(">hiqq", data, at + 21)
        count = struct.unpack_from(">i", data, at + 57)[0]
        if attributes & _CODECS:
            raise ValueError("compressed batches cannot be read here")
        place = at + 61
        for _ in range(0 if attributes & _CONTROL else count):
            size, place = _read_varint(data, place)
            record = _read_record(
                data[place : place + size], base, last_ms if attributes & _APPEND_TIME else None, first_ms
            )
            place += size
            if record.offset >= start:
                records.append(record)
        at += 12 + length
        start = max(start, base + last_delta + 1)
    return records, start


def _read_record(data: bytes, base: int, append_ms: int | None, first_ms: int) -> ReadRecord:
    delta_ms, at = _read_varint(data, 1)
    delta, at = _read_varint(data, at)
    key, at = _read_blob(data, at)
    value, at = _read_blob(data, at)
    count, at = _read_varint(data, at)
    headers = []
    for _ in range(count):
        name, at = _read_blob(data, at)
        content, at = _read_blob(data, at)
        headers.append((name or b"", content))
    return ReadRecord(base + delta, key, value, first_ms + delta_ms if append_ms is None else append_ms, tuple(headers))


def _read_blob(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = _read_varint(data, at)
    return (None, at) if size < 0 else (data[at : at + size], at + size)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7
