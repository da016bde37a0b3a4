"""What configurations name: classes of connectors and tasks, and converters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

import orjson

from streams_py.connect.api import Connector
from streams_py.errors import ConfigError, SerializationError
from streams_py.user_objects import user_object

__all__ = ["Converter", "class_name", "converter_of", "load", "new_connector"]


class Converter(Protocol):
    """Between Python objects and the bytes of a record."""

    def encode(self, topic: str, value: Any) -> bytes | None: ...
    def decode(self, topic: str, data: bytes | None) -> Any: ...


_encode_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode  # json.dumps makes one each time
# Only what JSON has, as the standard library sees it.
_STRICT = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS


class _Json:
    """Written by orjson, many times faster; read by the standard library, since orjson rounds large integers."""

    def encode(self, topic: str, value: Any) -> bytes | None:
        if value is None:
            return None
        try:
            return orjson.dumps(value, None, _STRICT)
        except TypeError:  # integers beyond 64 bits, subclasses, keys that are no text; or nothing that JSON has
            return _encode_json(value).encode()

    def decode(self, topic: str, data: bytes | None) -> Any:
        return None if data is None else json.loads(data)


class _String:
    def encode(self, topic: str, value: Any) -> bytes | None:
        return None if value is None else str(value).encode()

    def decode(self, topic: str, data: bytes | None) -> Any:
        return None if data is None else data.decode()


class _Bytes:
    def encode(self, topic: str, value: Any) -> bytes | None:
        if value is None or isinstance(value, bytes):
            return value
        raise SerializationError(
            f"{topic}: the converter `bytes` takes bytes, not {type(value).__name__}; return bytes, or use `json`"
        )

    def decode(self, topic: str, data: bytes | None) -> Any:
        return data


_BUILT_IN: Mapping[str, type[Any]] = {"json": _Json, "string": _String, "bytes": _Bytes}


def converter_of(key: str, name: str) -> Converter:
    """A converter by its setting: ``json``, ``string``, ``bytes``, or ``package.module:Class``. Raises ConfigError."""
    made: Converter = (_BUILT_IN.get(name.lower()) or load(key, name))()
    return made


def load(key: str, path: str) -> type[Any]:
    """The class that ``package.module:Class`` names. Raises ConfigError with the reason."""
    module_name, _, name = path.partition(":")
    if not module_name or not name:
        raise ConfigError(f"{key} = {path!r} names no class; write package.module:Class", key=key)
    try:
        found = user_object(path)
    except ImportError as error:
        raise ConfigError(f"{key} = {path!r} cannot be imported: {error}", key=key) from error
    if not isinstance(found, type):
        raise ConfigError(f"{key} = {path!r} is no class", key=key)
    return found


def new_connector(props: Mapping[str, str]) -> Connector:
    """An instance of ``connector.class``. Raises ConfigError."""
    path = props.get("connector.class", "")
    found = load("connector.class", path)
    if not issubclass(found, Connector):
        raise ConfigError(
            f"connector.class = {path!r} is no Connector of streams_py.connect.api", key="connector.class"
        )
    return found()


def class_name(found: type[Any]) -> str:
    """What :func:`load` finds the class by."""
    return f"{found.__module__}:{found.__qualname__}"
