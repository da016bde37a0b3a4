"""Parse keys from URLs, and write answers as JSON."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import json
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from streams_py.errors import BrokerUnavailableError
from streams_py.query.errors import BadQueryError, QueryError, safe_text
from streams_py.serdes import Serde


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
    """Parse a key.

    Args:
        text: The key in the URL.
        named: Name of a serde; None means the store's serde. ``bytes`` means URL-safe base64. If the store has another
            serde, it is the serialized key.
        serde: The store's key serde.
        topic: The topic passed to the serde.

    Raises:
        BadQueryError: The text is not a valid key.
    """
    name = named or serde.name
    reader = _READERS.get(name)
    if reader is None:
        raise BadQueryError(
            f"a key with serde {name!r} cannot be written in a URL; set key_serde= to one of "
            f"{', '.join(sorted(_READERS))} (bytes: the serialized key as base64)"
        )
    try:
        key = reader(text)
        if name == "bytes" and serde.name != "bytes":
            key = serde.deserializer(topic, is_key=True)(key)
        serde.serializer(topic, is_key=True)(key)  # reports an invalid key now, with its text
    except BrokerUnavailableError:  # a registry is unreachable: the key may be valid
        raise
    except Exception as error:
        raise BadQueryError(f"{text!r:.100} is not a valid key for serde {name}: {safe_text(error)}") from error
    return key


def key_text_bytes(text: str, named: str | None) -> bytes:
    """Return a prefix of serialized keys: the encoded text, or decoded base64 if ``named`` is ``bytes``."""
    if named != "bytes":
        return text.encode()
    try:
        return _from_base64(text)
    except binascii.Error as error:
        raise BadQueryError(f"{text!r:.100} is not base64: {error}") from error


def json_text(body: Mapping[str, Any]) -> str:
    """Encode an answer, or a part of it, as JSON. Raises QueryError if a value cannot be encoded."""
    try:
        try:
            return json.dumps(body, default=_to_json, allow_nan=False)
        except ValueError:  # JSON lacks NaN and Infinity: write them as text, like Java's libraries
            return json.dumps(json.loads(json.dumps(body, default=_to_json), parse_constant=str))
    except Exception as error:  # includes errors of the application's models
        raise QueryError(f"the stored data cannot be written as JSON: {safe_text(error)}") from error


def _to_json(value: Any) -> Any:
    """Convert a value for ``json.dumps``: bytes to base64, data classes and models to objects, others to text."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.urlsafe_b64encode(value).decode("ascii")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if hasattr(value, "model_dump"):
        return value.model_dump()
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=repr)
    return str(value)
