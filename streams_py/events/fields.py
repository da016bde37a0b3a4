"""Checked conversion between dataclasses and JSON.

Each field of an event record has a :class:`Form`, which defines its JSON representation and which values a reader
refuses. So each field is defined in one place, and writer and reader cannot differ. Only values from :mod:`json` are
read, so checking types is enough: no code runs, and no class is looked up by name.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from streams_protocol import DecodeError
from streams_protocol.types import TaskId
from streams_py.events.taskset import format_task_set, parse_task_set

T = TypeVar("T")

_INT64: Final = 1 << 63
_INT32: Final = 1 << 31
_TIME: Final = 1 << 53
"""Limit of times in ms or us. No clock exceeds it, and sums and differences of a few times stay within 64 bits."""


class Form(NamedTuple):
    """The JSON representation of a kind of value."""

    write: Callable[[Any], Any]
    """Converts a value to JSON."""
    read: Callable[[Any, str], Any]
    """Converts a value from JSON. Raises DecodeError. The second argument names the field in messages."""


def refused(where: str, value: object, expected: str) -> DecodeError:
    """Return the error for a value that is not valid."""
    return DecodeError(
        f"event field {where} is {_shown(value)}, expected {expected}",
        offset=0,
        remedy="another program wrote this record, or it is damaged",
    )


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _same(value: Any) -> Any:
    return value


def _int(value: Any, where: str) -> int:
    if type(value) is not int or not -_INT64 <= value < _INT64:
        raise refused(where, value, "a 64-bit integer")
    return value


def _int32(value: Any, where: str) -> int:
    if not -_INT32 <= _int(value, where) < _INT32:
        raise refused(where, value, "a 32-bit integer")
    return int(value)


def _time(value: Any, where: str) -> int:
    if not -_TIME < _int(value, where) < _TIME:
        raise refused(where, value, "a time")
    return int(value)


def _float(value: Any, where: str) -> float:
    try:
        if type(value) in (int, float) and math.isfinite(value):
            return float(value)
    except OverflowError:  # an integer with hundreds of digits
        pass
    raise refused(where, value, "a number")


def _bool(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise refused(where, value, "true or false")
    return value


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise refused(where, value, "text")
    return value


def _tasks(value: Any, where: str) -> Sequence[TaskId]:
    return parse_task_set(_text(value, where))


def _task(value: Any, where: str) -> TaskId:
    try:
        return TaskId.parse(_text(value, where))
    except ValueError as error:
        if isinstance(error, DecodeError):
            raise
        raise refused(where, value, "a task id such as 0_3") from None


def _setting(value: Any, where: str) -> int | str | list[str] | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return value
    return _int(value, where)


INT: Final = Form(_same, _int)
INT32: Final = Form(_same, _int32)
TIME: Final = Form(_same, _time)
"""A time: milliseconds since the epoch, or microseconds of a monotonic clock."""
FLOAT: Final = Form(float, _float)
BOOL: Final = Form(_same, _bool)
TEXT: Final = Form(_same, _text)
TASKS: Final = Form(format_task_set, _tasks)
TASK: Final = Form(str, _task)
SETTING: Final = Form(_same, _setting)
"""The value of a setting: an integer, text, a list of texts, or null for "not set"."""


def optional(inner: Form) -> Form:
    """Return a form for ``inner`` or None, which is null in JSON."""
    return Form(
        lambda value: None if value is None else inner.write(value),
        lambda value, where: None if value is None else inner.read(value, where),
    )


def list_of(inner: Form) -> Form:
    """Return a form for a tuple, which is a list in JSON."""

    def read(value: Any, where: str) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise refused(where, value, "a list")
        return tuple(inner.read(item, f"{where}[{number}]") for number, item in enumerate(value))

    if inner.write is _same:
        return Form(list, read)
    return Form(lambda value: [inner.write(item) for item in value], read)


def map_of(inner: Form) -> Form:
    """Return a form for a mapping with text keys, which is an object in JSON. Keys are sorted when written."""

    def read(value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise refused(where, value, "an object")
        return {key: inner.read(item, f"{where}.{key}") for key, item in value.items()}

    return Form(lambda value: {key: inner.write(value[key]) for key in sorted(value)}, read)


def record(kind: type[Any]) -> Form:
    """Return a form for a nested dataclass with fields made by :func:`form`. Unknown fields are ignored when read."""
    return Form(write_record, lambda value, where: read_record(kind, _object(value, where), where))


def form(of: Form, *, key: str | None = None, absent_when_none: bool = False, **options: Any) -> Any:
    """Return a dataclass field with a form. A field with a default may be missing in JSON; other fields must exist.

    Args:
        of: The form of the value.
        key: Name of the field in JSON, if it is not a valid Python name.
        absent_when_none: Whether None is not written at all, instead of as null.
        **options: Options of :func:`dataclasses.field`.
    """
    return dataclasses.field(metadata={"form": of, "key": key, "absent_when_none": absent_when_none}, **options)


def _object(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise refused(where, value, "an object")
    return value


class _Field(NamedTuple):
    name: str
    key: str
    form: Form
    required: bool
    absent_when_none: bool


_FIELDS: dict[type[Any], tuple[_Field, ...]] = {}


def _fields(kind: type[Any]) -> tuple[_Field, ...]:
    known = _FIELDS.get(kind)
    if known is None:
        known = _FIELDS[kind] = tuple(
            _Field(
                field.name,
                field.metadata["key"] or field.name,
                field.metadata["form"],
                field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING,
                field.metadata["absent_when_none"],
            )
            for field in dataclasses.fields(kind)
            if "form" in field.metadata
        )
    return known


def keys_of(kind: type[Any]) -> frozenset[str]:
    """Return the JSON names of a dataclass's fields."""
    return frozenset(field.key for field in _fields(kind))


def write_record(value: Any) -> dict[str, Any]:
    """Convert a dataclass to a JSON object, with fields in the order of the class."""
    written = {}
    for field in _fields(type(value)):
        item = getattr(value, field.name)
        if item is not None or not field.absent_when_none:
            written[field.key] = field.form.write(item)
    return written


def read_record(kind: type[T], value: Mapping[str, Any], where: str) -> T:
    """Convert a JSON object to a dataclass. DecodeError if a field is missing or has the wrong type."""
    given = {}
    for field in _fields(kind):
        if field.key in value:
            given[field.name] = field.form.read(value[field.key], f"{where}.{field.key}")
        elif field.required:
            raise refused(f"{where}.{field.key}", None, "a value, but the field is missing")
    return kind(**given)
