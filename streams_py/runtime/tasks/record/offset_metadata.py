"""Metadata of committed offsets, which carries stream time when a task moves.

Kafka Streams stores with every committed offset the partition time (largest timestamp of the processed records) and
numbers of processors that must survive a move (e.g. the time of the last window emission). Without it, a task that
moves would start with unknown stream time and accept late records that its former owner had dropped. Java members write
and read the same text (``TopicPartitionMetadata`` and ``ProcessorMetadata``): Base64 of

    02, partition time i64, and unless empty: i32 count, then per entry i32 name length, name (UTF-8), i64 value

Version 01 ends after the partition time. Any other text counts as no metadata, so a damaged text costs stream time but
never stops the task.
"""

from __future__ import annotations

import base64
import binascii
import logging
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

UNKNOWN_TIME = -1
"""Partition or stream time before the first record."""

_log = logging.getLogger(__name__)
_VERSION = 2
_HEAD = struct.Struct(">bq")
_LENGTH = struct.Struct(">i")
_VALUE = struct.Struct(">q")


@dataclass(frozen=True, slots=True)
class OffsetMetadata:
    """Decoded metadata: partition time in ms (-1: unknown) and the processors' numbers by store name."""

    partition_time_ms: int = UNKNOWN_TIME
    processors: Mapping[str, int] = field(default_factory=dict)


NO_METADATA = OffsetMetadata()


def encode_offset_metadata(metadata: OffsetMetadata) -> str:
    """Return the text for an offset commit."""
    parts = [_HEAD.pack(_VERSION, metadata.partition_time_ms)]
    if metadata.processors:
        parts.append(_LENGTH.pack(len(metadata.processors)))
        for name, value in metadata.processors.items():
            encoded = name.encode()
            parts += (_LENGTH.pack(len(encoded)), encoded, _VALUE.pack(value))
    return base64.b64encode(b"".join(parts)).decode("ascii")


def decode_offset_metadata(text: str) -> OffsetMetadata:
    """Return the metadata in ``text``; NO_METADATA, with a warning, if it is not valid.

    Trailing NUL characters are ignored: confluent-kafka appends one to committed texts.
    """
    text = text.rstrip("\0")
    if not text:
        return NO_METADATA
    try:
        return _decode(base64.b64decode(text, validate=True))
    except (ValueError, binascii.Error, struct.error) as error:
        _log.warning("ignoring metadata %r of a committed offset (%s); stream time starts unknown", text, error)
        return NO_METADATA


def _decode(data: bytes) -> OffsetMetadata:
    version, partition_time_ms = _HEAD.unpack_from(data)
    if version == 1 or (version == _VERSION and len(data) == _HEAD.size):
        return OffsetMetadata(partition_time_ms)
    if version != _VERSION:
        raise ValueError(f"unknown version {version}")
    processors: dict[str, int] = {}
    (count,) = _LENGTH.unpack_from(data, _HEAD.size)
    at = _HEAD.size + _LENGTH.size
    for _ in range(count):
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if not 0 <= length <= len(data) - at:
            raise ValueError(f"name of {length} bytes where {len(data) - at} are left")
        name = data[at : at + length].decode()
        at += length
        (processors[name],) = _VALUE.unpack_from(data, at)
        at += _VALUE.size
    return OffsetMetadata(partition_time_ms, processors)
