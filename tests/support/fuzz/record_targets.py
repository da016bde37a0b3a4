"""Fuzz targets for records: serdes, change values, metadata of committed offsets, assignment events."""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Mapping
from typing import Any, Final

from streams_protocol import DecodeError
from streams_protocol.types import TaskId
from streams_py.errors import SerializationError
from streams_py.events.codec import decode_event, encode_value
from streams_py.events.model import Envelope, Event, Sample, TaskEvent
from streams_py.runtime.tasks.record.offset_metadata import (
    OffsetMetadata,
    decode_offset_metadata,
    encode_offset_metadata,
)
from streams_py.serdes import Serde
from streams_py.serdes.basic import BOOL, FLOAT32, FLOAT64, INT16, INT32, INT64, STRING, UUID, VOID
from streams_py.serdes.json import JSON
from streams_py.serdes.lists import list_of
from streams_py.topology.declare.nodes import Change
from streams_py.topology.formats.change_serde import ChangeSerde
from tests.support.fuzz.target import Target, from_bytes, from_text

_TOPIC: Final = "fuzz"
_REFUSALS: Final = (ValueError, struct.error, RecursionError, SerializationError)
"""Errors that serdes raise for invalid bytes. The runtime wraps them in an error with topic and offset."""
_WIDE_BYTES: Final = 64 << 20
"""Allowed memory: one rare character makes a text use four bytes per character; JSON values need even more."""
_MANY_TASKS_BYTES: Final = 64 << 20
"""Allowed memory: a few characters may name 100,000 tasks, the limit for one record."""


def _serde(serde: Serde[Any], *values: object, memory_bytes_max: int = 0) -> Target:
    encode = serde.serializer(_TOPIC, is_key=False)
    return Target(
        from_bytes(serde.deserializer(_TOPIC, is_key=False)),
        _REFUSALS,
        lambda folder: [encode(value) for value in values] or [b"\x00"],
        write=encode,
        same=_alike,
        memory_bytes_max=memory_bytes_max,
    )


def _alike(a: object, b: object) -> bool:
    return a == b or str(a) == str(b)  # NaN is not equal to itself


def _text(value: object) -> bytes | None:
    assert isinstance(value, OffsetMetadata)
    return encode_offset_metadata(value).encode()


def _event_bytes(value: object) -> bytes | None:
    return encode_value(value) if isinstance(value, Event) else None  # events of other versions are not decoded


def _events() -> list[bytes]:
    envelope = Envelope(group="app", process=str(uuid.UUID(int=7)), run="01", seq=4, at_ms=17, mono_us=23, dropped=0)
    two, one = (TaskId(0, 0), TaskId(0, 1)), (1, None)
    bodies = (
        Sample(tasks=two, input_lag=one, records=one, busy_us=one, commit_age_ms=one),
        TaskEvent(task=TaskId(1, 2), role="active", member="m", generation=3, event="running", took_us=5),
    )
    found = [encode_value(Event(envelope, body)) for body in bodies]
    return [*found, json.dumps({**json.loads(found[0]), "more": [1, {"x": "\u20ac"}]}).encode()]


RECORD_TARGETS: Final[Mapping[str, Target]] = {
    "serde_int16": _serde(INT16, 0, -1, 32_767),
    "serde_int32": _serde(INT32, 0, -1, 2**31 - 1),
    "serde_int64": _serde(INT64, 0, -1, 2**63 - 1),
    "serde_float32": _serde(FLOAT32, 0.0, -1.5),
    "serde_float64": _serde(FLOAT64, 0.0, 1e300),
    "serde_bool": _serde(BOOL, True, False),
    "serde_uuid": _serde(UUID, uuid.UUID(int=0x1234567890ABCDEF1234567890ABCDEF)),
    "serde_string": _serde(STRING, "", "orders", "Gr\u00f6\u00dfe \U0001f600", memory_bytes_max=_WIDE_BYTES),
    "serde_void": _serde(VOID),
    "serde_json": _serde(JSON, {"a": [1, 2.5, None, "x"]}, [], 17, memory_bytes_max=_WIDE_BYTES),
    "serde_list_fixed": _serde(list_of(INT32), [], [1, None, 3], [None]),
    "serde_list_variable": _serde(list_of(STRING), [], ["a", None, "bcd"]),
    "serde_change": _serde(ChangeSerde(INT64), Change(1, 2), Change(1, None), Change(None, 2)),
    "offset_metadata": Target(
        from_text(decode_offset_metadata),
        (UnicodeDecodeError,),
        lambda folder: [
            encode_offset_metadata(OffsetMetadata(17)).encode(),
            encode_offset_metadata(OffsetMetadata(-1, {"windows": 5, "s": -7})).encode(),
        ],
        write=_text,
    ),
    "event": Target(
        from_bytes(decode_event),
        (DecodeError,),
        lambda folder: _events(),
        write=_event_bytes,
        memory_bytes_max=_MANY_TASKS_BYTES,
    ),
}
"""All decoders of records and of the metadata of committed offsets."""
