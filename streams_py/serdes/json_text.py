"""JSON text of plain values, identical with every library.

If they are installed (extra ``json``), orjson writes and msgspec reads. Otherwise the standard library writes and
pydantic's parser reads. All of them refuse NaN, Infinity, lone surrogates and member names that are not text. All keep
integers of any size exact. Orjson is not used for reading, because it converts integers beyond 64 bits to floats.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import json
import re
import uuid
from collections.abc import Callable
from importlib.util import find_spec
from math import isfinite
from typing import Any, NoReturn

from streams_py.serdes.round_trips import UnfitError

_NOT_FINITE = "NaN and Infinity have no JSON form"
# Strings are matched first, so that only exponents in numbers are found.
_SMALL_EXPONENT = re.compile(rb'"(?:[^"\\]|\\.)*"|(-?)(\d)(?:\.(\d+))?e-0(\d)')
_LARGE_EXPONENT = re.compile(rb"\d[eE]\+?\d\d\d")
_FLOAT_DIGITS = 300
_PARSER_DEPTH = "recursion limit"
_NULL = b"null"


def has_orjson() -> bool:
    """Whether orjson is installed."""
    return find_spec("orjson") is not None


def has_msgspec() -> bool:
    """Whether msgspec is installed."""
    return find_spec("msgspec") is not None


def encoder(*, sort_keys: bool, use_orjson: bool) -> Callable[[Any], bytes]:
    """Return a function that writes compact UTF-8. It raises ValueError or TypeError for values without a JSON form."""
    exact = _exact_encoder(sort_keys)
    if not use_orjson:
        return exact
    import orjson  # an optional dependency; importing it here also keeps `import streams_py` fast

    dumps, loads = orjson.dumps, orjson.loads
    options = orjson.OPT_PASSTHROUGH_DATACLASS | (orjson.OPT_SORT_KEYS if sort_keys else 0)

    def encode(value: Any) -> bytes:
        try:
            data = dumps(value, _plain, options)
        except TypeError:
            return exact(value)  # an integer beyond 64 bits; or raises the error with this library's text
        # Orjson writes NaN and Infinity as null. For bytes, find() is much faster than "in".
        if data.find(_NULL) >= 0 and loads(data) != value:
            refuse_non_finite(value)
        return data

    return encode


def decoder(*, use_msgspec: bool) -> Callable[[bytes], Any]:
    """Return a function that reads JSON.

    It raises ValueError (or RecursionError) for invalid JSON. The message does not contain the text.
    """
    if not use_msgspec:
        return parse
    import msgspec  # as above

    decode: Callable[[bytes], Any] = msgspec.json.Decoder().decode
    return decode


def certain_encoder(*, sort_keys: bool, use_orjson: bool) -> Callable[[Any], bytes]:
    """As :func:`encoder`, for plain values without NaN and Infinity. Raises TypeError or ValueError for others."""
    if not use_orjson:
        return _exact_encoder(sort_keys)
    import orjson  # as above

    if not sort_keys:
        return orjson.dumps
    dumps, options = orjson.dumps, orjson.OPT_SORT_KEYS
    return lambda value: dumps(value, None, options)


def parse(data: bytes) -> Any:
    """Parse JSON text, with integers of any size. ValueError for invalid JSON."""
    from pydantic_core import from_json

    try:
        value = from_json(data, allow_inf_nan=False)
    except ValueError as error:
        if _PARSER_DEPTH not in str(error):
            raise
    else:
        if len(data) > _FLOAT_DIGITS or _LARGE_EXPONENT.search(data):
            refuse_non_finite(value)  # 1e999 becomes Infinity
        return value
    try:
        return json.loads(str(data, "utf-8"), parse_constant=_no_constant)
    except RecursionError:
        raise UnfitError("the JSON text is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise UnfitError(f"{error.msg} at position {error.pos}") from None


def refuse_non_finite(value: object) -> None:
    """Raise UnfitError if ``value`` contains a NaN or Infinity anywhere."""
    kind = value.__class__
    if kind is str or value is None:
        return
    if isinstance(value, float):
        if not isfinite(value):
            raise UnfitError(_NOT_FINITE)
    elif isinstance(value, dict):
        for item in value.values():
            refuse_non_finite(item)
    elif isinstance(value, list | tuple):
        for item in value:
            refuse_non_finite(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        refuse_non_finite(_members_of(value))
    elif isinstance(value, enum.Enum):
        refuse_non_finite(value.value)


def exact_text(value: Any) -> str:
    """Return compact JSON text, written by the standard library."""
    return exact(value, _COMPACT).decode()


def _exact_encoder(sort_keys: bool) -> Callable[[Any], bytes]:
    encode = _COMPACT_SORTED if sort_keys else _COMPACT
    return lambda value: exact(value, encode)


def exact(value: Any, encode: Callable[[Any], str]) -> bytes:
    """Return the UTF-8 of the text that ``encode``, a function of the standard library, writes.

    Raises:
        UnfitError, TypeError: The value has no JSON form. The messages do not show values.
    """
    try:
        _check_names(value)
        data = encode(value).encode()
    except RecursionError:
        raise UnfitError("the value is nested too deeply, or contains itself") from None
    except UnicodeEncodeError:
        raise UnfitError("text with a lone surrogate (half a character) has no UTF-8 form") from None
    except ValueError as error:
        if "Circular" in str(error):
            raise UnfitError("the value contains itself") from None
        raise UnfitError(_NOT_FINITE) from None  # the standard library's message would show the number
    # The standard library writes 1e-05 and 1e-07 where orjson writes 0.00001 and 1e-7.
    return _SMALL_EXPONENT.sub(_short_exponent, data) if b"e-0" in data else data


def _short_exponent(found: re.Match[bytes]) -> bytes:
    if not found[4]:
        return found[0]  # a string
    sign, first, rest = found[1], found[2], found[3] or b""
    if found[4] == b"5":
        return sign + b"0.0000" + first + rest
    return sign + first + (b"." + rest if rest else b"") + b"e-" + found[4]


def _check_names(value: object) -> None:
    """Raise TypeError for member names that are not text.

    The standard library converts numbers to text, which is not read back as a number.
    """
    if isinstance(value, dict):
        for name, item in value.items():
            if not isinstance(name, str):
                raise TypeError(f"names of JSON members must be text, got {type(name).__name__}")
            _check_names(item)
    elif isinstance(value, list | tuple):
        for item in value:
            _check_names(item)


def _plain(value: object) -> Any:
    """Convert a value of another type to a plain value, so that both libraries write the same text."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _members_of(value)
    if isinstance(value, tuple):
        return list(value)  # a named tuple
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, uuid.UUID):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _members_of(value: Any) -> dict[str, Any]:
    """Return all fields of a dataclass. Orjson itself would leave out fields with a leading underscore."""
    members = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    _check_names(members)
    return members


def _no_constant(name: str) -> NoReturn:
    raise UnfitError(_NOT_FINITE)


_COMPACT = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain).encode
_COMPACT_SORTED = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True, default=_plain
).encode
