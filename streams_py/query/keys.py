"""Keys as they are written in an address, and values as JSON."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import json
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from streams_py.errors import BrokerUnavailableError
from streams_py.query.errors import BadQueryError, QueryError, told
from streams_py.serdes import Serde

__all__ = ["json_text", "key_from", "key_text_bytes"]


def _from_base64(text: str) -> bytes:
    return base64.b64decode(text, altchars=b"-_", validate=True)


def _flag(text: str) -> bool:
    return {"true": True, "false": False}[text]


_READERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "string": str,
    **dict.fromkeys(("int16", "int32", "int64"), int),
    **dict.fromkeys(("float32", "float64"), float),
    "uuid": uuid.UUID,
    "bool": _flag,
    "json": json.loads,
    "bytes": _from_base64,
}


def key_from(text: str, named: str | None, serde: Serde[Any], topic: str) -> Any:
    """The key that ``text`` stands for. ``named`` is a serde's name, that of the store's own serde unless given.

    ``bytes`` means base64 (URL-safe): for a store with another serde, the bytes of the serialized key.
    """
    name = named or serde.name
    reader = _READERS.get(name)
    if reader is None:
        raise BadQueryError(
            f"a key of {name!r} cannot be written in an address; say key_serde= with one of "
            f"{', '.join(sorted(_READERS))} (bytes: the serialized key as base64)"
        )
    try:
        key = reader(text)
        if name == "bytes" and serde.name != "bytes":
            key = serde.deserializer(topic, is_key=True)(key)
        serde.serializer(topic, is_key=True)(key)  # said now and by name, not by the store
    except BrokerUnavailableError:  # a registry is away: nothing is wrong with the key
        raise
    except Exception as error:
        raise BadQueryError(f"{text!r:.100} is no key of {name}: {told(error)}") from error
    return key


def key_text_bytes(text: str, named: str | None) -> bytes:
    """The first bytes of serialized keys: of text, or base64 with ``bytes``."""
    if named != "bytes":
        return text.encode()
    try:
        return _from_base64(text)
    except binascii.Error as error:
        raise BadQueryError(f"{text!r:.100} is not base64: {error}") from error


def json_text(body: Mapping[str, Any]) -> str:
    """An answer, or a part of one, as it is sent. QueryError when something in it cannot be written."""
    try:
        try:
            return json.dumps(body, default=_to_json, allow_nan=False)
        except ValueError:  # JSON has no NaN and Infinity: they are text, as Java's libraries write them
            return json.dumps(json.loads(json.dumps(body, default=_to_json), parse_constant=str))
    except Exception as error:  # also what a model of the application raises
        raise QueryError(f"what is stored cannot be written as JSON: {told(error)}") from error


def _to_json(value: Any) -> Any:
    """For ``json.dumps``: bytes as base64, data classes and models as objects, what is left as text."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.urlsafe_b64encode(value).decode("ascii")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if hasattr(value, "model_dump"):
        return value.model_dump()
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=repr)
    return str(value)
