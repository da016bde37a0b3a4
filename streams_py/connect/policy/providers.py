"""References to values outside a configuration (KIP-297).

An example is ``${file:/etc/connect/db.properties:password}``. ``config.providers`` names providers.
``config.providers.<name>.class`` gives the class of each: Kafka's ``FileConfigProvider``, ``DirectoryConfigProvider``
or ``EnvVarConfigProvider``. A configuration is stored and shown with its placeholders. They are resolved when a
connector or task starts, on the worker that runs it.

In Kafka, a provider can read everything unless its parameters limit it. Here ``allowed.paths`` (files, directories) and
``allowlist.pattern`` (environment) are required, because any user who can create a connector could read the rest.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeAlias

from streams_py.config.files import properties_in
from streams_py.errors import ConfigError
from streams_py.system.bounded_patterns import BoundedPattern, Steps, StepsExceededError

_Provider: TypeAlias = Callable[[str, str], str]
"""A function (path, key) -> value. Raises ConfigError."""

# Matches each "${", so that hostile values take linear time. A placeholder also has a colon and an end (_is_one).
_BRACES: Final = re.compile(r"\$\{([^}]*)(\}?)")
_PREFIX: Final = "config.providers"
_BYTES_MAX: Final = 1 << 20
_STEPS_MAX: Final = 1_000_000
"""Limit for the match of a name with the pattern of allowed names, about one second."""
_RESOLVED_CHARS_MAX: Final = 4 << 20
"""Limit for all resolved values of a configuration together.

A short value may refer to a large file many times.
"""


def has_placeholder(value: str) -> bool:
    """Whether a value refers to a provider."""
    return any(map(_is_one, _BRACES.finditer(value)))


def is_placeholder(value: str) -> bool:
    """Whether a value consists of placeholders alone."""
    return has_placeholder(value) and not _BRACES.sub(lambda found: "" if _is_one(found) else "x", value)


def values_of_placeholders(given: str, resolved: str) -> list[str]:
    """Return the texts in ``resolved`` that replaced the placeholders of ``given``.

    The literal text between placeholders determines their ends, so the result can be inexact.
    """
    found, at, begin = [], 0, 0
    for one in filter(_is_one, _BRACES.finditer(given)):
        literal = given[begin : one.start()]
        begin = one.end()
        following = next((more.start() for more in filter(_is_one, _BRACES.finditer(given, begin))), len(given))
        start = resolved.find(literal, at) + len(literal)
        end = resolved.find(given[begin:following], start) if given[begin:following] else len(resolved)
        at = len(resolved) if end < 0 else end
        found.append(resolved[start:at])
    return found


def _is_one(found: re.Match[str]) -> bool:
    return bool(found[2]) and ":" in found[1]


class ConfigProviders:
    """The providers of a worker, by name. Created with :meth:`of`."""

    def __init__(self, providers: Mapping[str, _Provider]) -> None:
        self._providers = providers

    @classmethod
    def of(cls, settings: Mapping[str, object]) -> ConfigProviders:
        """Create from the keys ``config.providers`` and ``config.providers.*``. Raises ConfigError."""
        names = [name for part in str(settings.get(_PREFIX, "")).split(",") if (name := part.strip())]
        known = {f"{_PREFIX}.{name}." for name in names}
        for key in sorted(settings):
            if key.startswith(f"{_PREFIX}.") and not any(key.startswith(prefix) for prefix in known):
                raise ConfigError(f"{key}: config.providers does not name this provider", key=key)
        return cls({name: _provider(name, settings) for name in names})

    def resolve(self, config: Mapping[str, str]) -> dict[str, str]:
        """Return the configuration with placeholders resolved.

        Unknown providers' placeholders stay, as in Kafka.

        Raises:
            ConfigError: A provider does not have the key or may not read it, or the values are too long. The text
                names the key of the configuration.
        """
        found, left = {}, _RESOLVED_CHARS_MAX
        for key, value in config.items():
            found[key] = self._resolved(key, value, left)
            if has_placeholder(value):
                left -= len(found[key])
        return found

    def _resolved(self, key: str, value: str, chars_max: int) -> str:
        chars = 0

        def replace(found: re.Match[str]) -> str:
            nonlocal chars
            name, _, rest = found[1].partition(":")
            provider = self._providers.get(name) if _is_one(found) else None
            if provider is None:
                return found[0]
            path, _, path_key = rest.rpartition(":")
            try:
                text = provider(path, path_key)
                chars += len(text)
                if chars > chars_max:
                    raise ConfigError(f"the values of placeholders are longer than {_RESOLVED_CHARS_MAX} characters")
                return text
            except ConfigError as error:
                raise ConfigError(f"{key} = {found[0]}: {error}", key=key) from None

        return _BRACES.sub(replace, value)

    @staticmethod
    def restore(config: Mapping[str, str], resolved: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
        """Return ``config`` with its resolved values replaced by the placeholders of ``given``."""
        return {
            key: given[key] if key in given and has_placeholder(given[key]) and value == resolved[key] else value
            for key, value in config.items()
        }


def _provider(name: str, settings: Mapping[str, object]) -> _Provider:
    class_key = f"{_PREFIX}.{name}.class"
    kind = str(settings.get(class_key, "")).rpartition(".")[2]
    parameters = {
        key.removeprefix(f"{_PREFIX}.{name}.param."): str(value)
        for key, value in settings.items()
        if key.startswith(f"{_PREFIX}.{name}.param.")
    }
    needed = {
        "FileConfigProvider": "allowed.paths",
        "DirectoryConfigProvider": "allowed.paths",
        "EnvVarConfigProvider": "allowlist.pattern",
    }.get(kind)
    if needed is None:
        raise ConfigError(
            f"{class_key} = {settings.get(class_key)!r} must be FileConfigProvider, DirectoryConfigProvider or "
            "EnvVarConfigProvider",
            key=class_key,
        )
    limit = parameters.pop(needed, "")
    if parameters:
        key = f"{_PREFIX}.{name}.param.{min(parameters)}"
        raise ConfigError(f"{key} is not a parameter of {kind}", key=key)
    if not limit:
        key = f"{_PREFIX}.{name}.param.{needed}"
        raise ConfigError(f"{key} is required: it limits what connectors may read", key=key)
    if kind == "EnvVarConfigProvider":
        return _environment(f"{_PREFIX}.{name}.param.{needed}", limit)
    folders = [folder.strip() for folder in limit.split(",") if folder.strip()]
    return _file(folders) if kind == "FileConfigProvider" else _directory(folders)


def _matches(pattern: BoundedPattern, name: str) -> bool:
    """Whether the worker's pattern accepts a name. Connectors choose names, so the search has a limit."""
    try:
        return pattern.fullmatch(name, Steps(_STEPS_MAX))
    except StepsExceededError:
        return False


def _environment(key: str, pattern: str) -> _Provider:
    try:
        allowed = BoundedPattern(pattern, Steps(_STEPS_MAX))
    except (re.error, StepsExceededError) as error:
        raise ConfigError(f"{key} = {pattern!r} is not a regular expression: {error}", key=key) from None

    def read(path: str, name: str) -> str:
        if path or not _matches(allowed, name):
            raise ConfigError(f"the worker does not allow reading the environment variable {name!r}")
        found = os.environ.get(name)
        if found is None:
            raise ConfigError(f"environment variable {name} is not set on this worker")
        return found

    return read


def _file(folders: list[str]) -> _Provider:
    def read(path: str, key: str) -> str:
        text = _text(_allowed(path, folders))
        try:
            found = dict(properties_in(text, Path(path)))
        except ConfigError:  # its text would quote the line
            raise ConfigError(f"{path} is not a .properties file") from None
        if key not in found:
            raise ConfigError(f"file {path} has no key {key}")
        return found[key]

    return read


def _directory(folders: list[str]) -> _Provider:
    def read(path: str, key: str) -> str:
        if not key or "/" in key or key in (".", ".."):
            raise ConfigError(f"{key!r} is not the name of a file")
        return _text(_allowed(os.path.join(path, key), folders)).removesuffix("\n")

    return read


def _allowed(path: str, folders: list[str]) -> str:
    """Return the real path with all links resolved. Raises ConfigError if it is not allowed."""
    try:
        real = os.path.realpath(path)
    except ValueError:
        raise ConfigError(f"{path!r} is not a path") from None
    if not any(Path(real).is_relative_to(os.path.realpath(folder)) for folder in folders):
        raise ConfigError(f"the worker does not allow reading {path}; its allowed.paths are {', '.join(folders)}")
    return real


def _text(path: str) -> str:
    try:
        # A named pipe would block the worker. The path has no links, unless a link was created after it was resolved.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ConfigError(f"{path} is not a file")
            content = file.read(_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    if len(content) > _BYTES_MAX:
        raise ConfigError(f"{path} is larger than {_BYTES_MAX} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text") from None
