"""Serdes by name, for configuration files (``default.key.serde`` and ``default.value.serde``)."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any, Final

from streams_py.config.user_objects import user_object
from streams_py.errors import ConfigError
from streams_py.serdes.basic import BOOL, BYTES, FLOAT32, FLOAT64, INT16, INT32, INT64, STRING, UUID, VOID
from streams_py.serdes.json import JSON
from streams_py.serdes.serde import Serde
from streams_py.system.printable import text_of

_BY_NAME: dict[str, Serde[Any]] = {
    "bool": BOOL,
    "bytes": BYTES,
    "float32": FLOAT32,
    "float64": FLOAT64,
    "int16": INT16,
    "int32": INT32,
    "int64": INT64,
    "json": JSON,
    "string": STRING,
    "uuid": UUID,
    "void": VOID,
}
SERDE_NAMES: Final = ", ".join(sorted(_BY_NAME))
"""All names, for messages and help texts."""

_JAVA = "org.apache.kafka.common.serialization.Serdes$"
_BY_JAVA_CLASS: dict[str, Serde[Any]] = {
    f"{_JAVA}BooleanSerde": BOOL,
    f"{_JAVA}ByteArraySerde": BYTES,
    f"{_JAVA}DoubleSerde": FLOAT64,
    f"{_JAVA}FloatSerde": FLOAT32,
    f"{_JAVA}IntegerSerde": INT32,
    f"{_JAVA}LongSerde": INT64,
    f"{_JAVA}ShortSerde": INT16,
    f"{_JAVA}StringSerde": STRING,
    f"{_JAVA}UUIDSerde": UUID,
    f"{_JAVA}VoidSerde": VOID,
}


def resolve_serde(value: object, *, setting: str) -> Serde[Any]:
    """Return the serde that a setting refers to.

    Args:
        value: A serde, a Serde class without arguments, a name such as ``"string"``, the class name of one of Kafka's
            serdes, or ``"package.module:NAME"``.
        setting: Name of the setting, for messages.

    Raises:
        ConfigError: ``value`` has none of these forms.
    """
    found = _import(value, setting) if isinstance(value, str) else value
    if isinstance(found, type) and issubclass(found, Serde):
        try:
            found = found()
        except Exception as error:
            raise ConfigError(f"{setting}: cannot create {value!r}: {text_of(error)}", key=setting) from error
    if not isinstance(found, Serde):
        raise ConfigError(f"{setting}: {value!r} is {type(found).__name__}, not a serde", key=setting)
    return found


def _import(text: str, setting: str) -> object:
    known = _BY_NAME.get(text) or _BY_JAVA_CLASS.get(text)
    if known is not None:
        return known
    if ":" not in text:
        near = get_close_matches(text, _BY_NAME, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise ConfigError(
            f"{setting}: unknown serde {text!r}{hint}; use one of {SERDE_NAMES}, or 'package.module:NAME'", key=setting
        )
    try:
        return user_object(text)
    except ImportError as error:
        raise ConfigError(f"{setting}: cannot import {text!r}: {error}", key=setting) from error
