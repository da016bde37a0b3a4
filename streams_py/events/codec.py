"""The encoding of event records: a compact JSON value in UTF-8, a key, and two headers.

The key puts related events into one partition. ``v`` is the first field of every value. A reader reads its own version
and keeps unknown fields. A record of another version is not an error: it becomes :class:`OtherVersion`, so that it can
be set aside for a newer program. Damaged bytes of any kind raise DecodeError.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from dataclasses import fields as fields_of
from typing import Any, Final, NamedTuple

from streams_protocol import DecodeError
from streams_py.events.consistency import check_body
from streams_py.events.fields import keys_of, read_record, refused, write_record
from streams_py.events.model import (
    VERSION,
    Body,
    ClientEvent,
    ClientPart,
    Envelope,
    Event,
    Eviction,
    RebalanceHeader,
    Sample,
    TaskEvent,
    TasksPart,
)
from streams_py.events.taskset import RECORD_TASKS_MAX, TaskRanges

VALUE_BYTES_READ_MAX: Final = 1 << 20
"""Size limit in bytes: larger values are refused without parsing.

It is Kafka's default of ``max.message.bytes``. Writers stay below an eighth of it.
"""

_DEPTH_MAX: Final = 24
_BODIES: Final[Mapping[str, type[Body]]] = {
    kind.KIND: kind for kind in (RebalanceHeader, TasksPart, ClientPart, TaskEvent, Sample, ClientEvent, Eviction)
}
_KNOWN: Final = {kind: keys_of(Envelope) | keys_of(body) | {"v", "kind"} for kind, body in _BODIES.items()}


class EventRecord(NamedTuple):
    """Key, value and headers of an event record in Kafka."""

    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class OtherVersion:
    """A record with a version or kind that this program cannot read."""

    version: int
    kind: str


def encode_value(event: Event) -> bytes:
    """Encode the value. Fields in ``extra`` are written again. Equal events have equal bytes."""
    fields: dict[str, Any] = {
        "v": VERSION,
        "kind": event.kind,
        **write_record(event.envelope),
        **write_record(event.body),
    }
    if event.extra:
        fields |= json.loads(event.extra)
    return _json(fields).encode("utf-8", "replace")


def encode_event(event: Event) -> EventRecord:
    """Encode key, value and headers.

    The key puts all parts of a rebalance into the same partition, also all events of a task, and all other events
    of a process.
    """
    body = event.body
    match body:
        case RebalanceHeader() | TasksPart() | ClientPart():
            key = f"r/{body.rebalance_id}"
        case TaskEvent():
            key = f"t/{body.task}"
        case Sample() | ClientEvent() | Eviction():
            key = f"m/{event.envelope.process}"
    headers = (("v", b"%d" % VERSION), ("kind", event.kind.encode()))
    return EventRecord(key.encode("utf-8", "replace"), encode_value(event), headers)


def decode_event(value: bytes | None) -> Event | OtherVersion:
    """Decode the value of an event record.

    Raises:
        DecodeError: The value is not a valid event. No bytes raise any other error.
    """
    if value is None:
        raise _damaged("is empty")
    if len(value) > VALUE_BYTES_READ_MAX:
        raise _damaged(f"has {len(value)} bytes, more than the limit of {VALUE_BYTES_READ_MAX}")
    fields = _parsed(value)
    version, kind = fields.get("v"), fields.get("kind")
    if type(version) is not int:
        raise refused("v", version, "a version number")
    if not isinstance(kind, str):
        raise refused("kind", kind, "text")
    body_class = _BODIES.get(kind)
    if version != VERSION or body_class is None:
        return OtherVersion(version, kind)
    envelope = read_record(Envelope, fields, kind)
    body = read_record(body_class, fields, kind)
    if _tasks_in(body) > RECORD_TASKS_MAX:
        raise _damaged(f"names more than {RECORD_TASKS_MAX} tasks")
    check_body(body)
    known = _KNOWN[kind]
    unknown = {key: item for key, item in fields.items() if key not in known}
    try:
        extra = _json(unknown) if unknown else ""
    except ValueError:  # json reads 1e999 as an infinite number
        raise _damaged("contains a number that is too large") from None
    return Event(envelope, body, extra)


def _tasks_in(part: object) -> int:
    """Return the number of tasks in all sets of a body, without creating the tasks."""
    if isinstance(part, TaskRanges):
        return len(part)
    if isinstance(part, str | bytes | int | float) or part is None:
        return 0
    if isinstance(part, Mapping):
        return sum(map(_tasks_in, part.values()))
    if isinstance(part, list | tuple):
        return sum(_tasks_in(each) for each in part if each.__class__ is not int)
    if is_dataclass(part) and not isinstance(part, type):
        return sum(_tasks_in(getattr(part, field.name)) for field in fields_of(part))
    return 0


def _parsed(value: bytes) -> dict[str, Any]:
    try:
        text = value.decode("utf-8")
        if text.count("[") + text.count("{") > _DEPTH_MAX and _depth(text) > _DEPTH_MAX:
            raise _damaged("is nested too deeply")
        parsed = json.loads(text, parse_constant=_no_constant)
        if "\\u" in text:  # half of a surrogate pair is not a character, and could not be encoded again
            _json(parsed).encode("utf-8")
    except UnicodeError as error:
        raise _damaged("is not UTF-8", getattr(error, "start", 0)) from None
    except json.JSONDecodeError as error:
        raise _damaged(f"is not JSON: {error.msg}", error.pos) from None
    except DecodeError:
        raise
    except ValueError as error:  # a number with thousands of digits
        raise _damaged(f"cannot be parsed: {error}") from None
    if not isinstance(parsed, dict):
        raise _damaged("is not a JSON object")
    return parsed


def _depth(text: str) -> int:
    """Return an upper limit of the nesting depth. Brackets within strings count too."""
    depth = deepest = 0
    for char in text:
        if char in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif char in "]}":
            depth -= 1
    return deepest


def _no_constant(name: str) -> float:
    raise _damaged(f"contains {name}")


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _damaged(what: str, at: int = 0) -> DecodeError:
    return DecodeError(f"the value {what}", offset=at, remedy="it is not an event record, or it is damaged")
