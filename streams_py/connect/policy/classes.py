"""The classes that configurations name: connectors, tasks and converters."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from importlib.metadata import entry_points
from typing import Any, Final, Protocol

import orjson

from streams_py.config.user_objects import user_object
from streams_py.connect.api import Connector, SinkTask, SourceTask
from streams_py.connect.policy.limits import AllowedPaths
from streams_py.errors import ConfigError, SerializationError
from streams_py.serdes.json_text import decoder, exact, has_msgspec, refuse_non_finite
from streams_py.system.printable import named

_OWN_MODULES: Final = "streams_py.connect.connectors"
_ENTRY_POINTS: Final = "streams_py.connect"


class Converter(Protocol):
    """Converts between Python objects and the bytes of a record."""

    def encode(self, topic: str, value: Any) -> bytes | None: ...
    def decode(self, topic: str, data: bytes | None) -> Any: ...


_encode_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
_NULL: Final = b"null"
# Only types that the standard library writes as JSON.
_STRICT = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS


class _Json:
    """Writes with orjson, which is many times faster.

    Does not read with orjson, which rounds large integers.
    """

    def __init__(self) -> None:
        self._decode = decoder(use_msgspec=has_msgspec())

    def encode(self, topic: str, value: Any) -> bytes | None:
        if value is None:
            return None
        try:
            data = orjson.dumps(value, None, _STRICT)
        except TypeError:  # integers beyond 64 bits, subclasses, or types without a JSON form
            return exact(value, _encode_json)
        if data.find(_NULL) >= 0:  # orjson writes NaN and Infinity as null
            refuse_non_finite(value)
        return data

    def decode(self, topic: str, data: bytes | None) -> Any:
        return None if data is None else self._decode(data)


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
            f"{topic}: the converter `bytes` expects bytes, got {type(value).__name__}; return bytes, or use `json`"
        )

    def decode(self, topic: str, data: bytes | None) -> Any:
        return data


_BUILT_IN: Mapping[str, type[Any]] = {"json": _Json, "string": _String, "bytes": _Bytes}


class Plugins:
    """The classes that configurations of connectors may name.

    These are classes of this library, of installed distributions with an entry point in the group
    ``streams_py.connect``, and of ``modules`` (the worker's ``plugin.modules``). Names are checked before anything is
    imported, because importing a module runs it.
    """

    def __init__(self, modules: Collection[str] = (), paths: AllowedPaths | None = None) -> None:
        self._modules = (_OWN_MODULES, *modules, *_installed_packages())
        self._paths = paths or AllowedPaths()

    def connector_class(self, config: Mapping[str, str]) -> type[Connector]:
        """Return the class that ``connector.class`` names. Raises ConfigError."""
        return self._class("connector.class", config.get("connector.class", ""), (Connector,))

    def connector(self, config: Mapping[str, str]) -> Connector:
        """Create an instance of ``connector.class``, and check the configuration's paths.

        Raises ConfigError.
        """
        made: Connector = _new("connector.class", self.connector_class(config))
        self._check_paths(made, config)
        return made

    def task(self, config: Mapping[str, str]) -> SourceTask | SinkTask:
        """Create an instance of ``task.class``, and check the configuration's paths.

        Raises ConfigError.
        """
        found = self._class("task.class", config.get("task.class", ""), (SourceTask, SinkTask))
        made: SourceTask | SinkTask = _new("task.class", found)
        self._check_paths(made, config)
        return made

    def _check_paths(self, plugin: Connector | SourceTask | SinkTask, config: Mapping[str, str]) -> None:
        """Raise ConfigError if a plug-in would use a path that the worker does not allow."""
        for problem in self._paths.problems(plugin.path_keys, config):
            raise ConfigError(problem)

    def converter(self, key: str, name: str) -> Converter:
        """Return the converter that a connector's configuration names. Raises ConfigError."""
        if name.lower() not in _BUILT_IN:
            self._check_allowed(key, name)
        return converter_of(key, name)

    def _class(self, key: str, path: str, kinds: tuple[type[Any], ...]) -> type[Any]:
        self._check_allowed(key, path)
        found = load(key, path)
        if not issubclass(found, kinds):
            names = " or ".join(kind.__name__ for kind in kinds)
            raise ConfigError(f"{key} = {path!r} is not a {names} of streams_py.connect.api", key=key)
        return found

    def _check_allowed(self, key: str, path: str) -> None:
        module, colon, name = path.partition(":")
        if not (module and colon and name):
            raise ConfigError(f"{key} = {path!r} does not name a class; use package.module:Class", key=key)
        if not any(module == allowed or module.startswith(f"{allowed}.") for allowed in self._modules):
            raise ConfigError(
                f"{key} = {path!r}: this worker does not run classes of {module}. Install them with an entry point in "
                "the group streams_py.connect, or name the module in the worker's plugin.modules",
                key=key,
            )


class MissingClassError(ConfigError):
    """The worker allows the class, but cannot import it."""


def _new(key: str, found: type[Any]) -> Any:
    try:
        return found()
    except Exception as error:
        text = f"{key} = {class_name(found)!r} cannot be created: {named(error)}"
        raise ConfigError(text, key=key) from error


def _installed_packages() -> list[str]:
    """Return the top-level packages of installed plug-ins."""
    return sorted({point.module.partition(".")[0] for point in entry_points(group=_ENTRY_POINTS)})


def converter_of(key: str, name: str) -> Converter:
    """Return a converter: ``json``, ``string``, ``bytes`` or ``package.module:Class``.

    Raises:
        ConfigError: The class cannot be imported, or is not a converter.
    """
    found = _BUILT_IN.get(name.lower()) or load(key, name)
    if not (callable(getattr(found, "encode", None)) and callable(getattr(found, "decode", None))):
        raise ConfigError(f"{key} = {name!r} is not a converter: it has no encode and decode", key=key)
    made: Converter = found()
    return made


def load(key: str, path: str) -> type[Any]:
    """Import the class that ``package.module:Class`` names. Raises ConfigError with the reason."""
    module_name, _, name = path.partition(":")
    if not module_name or not name:
        raise ConfigError(f"{key} = {path!r} does not name a class; use package.module:Class", key=key)
    try:
        found = user_object(path)
    except ImportError as error:
        raise MissingClassError(f"{key} = {path!r} cannot be imported: {error}", key=key) from error
    if not isinstance(found, type):
        raise ConfigError(f"{key} = {path!r} is not a class", key=key)
    return found


def class_name(found: type[Any]) -> str:
    """Return the name by which :func:`load` finds the class."""
    return f"{found.__module__}:{found.__qualname__}"
