"""Values of a configuration that stand elsewhere (KIP-297): ``${file:/etc/connect/db.properties:password}``.

``config.providers`` names providers, and ``config.providers.<name>.class`` says what each of them is: one of Kafka's
``FileConfigProvider``, ``DirectoryConfigProvider`` and ``EnvVarConfigProvider``. A configuration is stored and shown
with its placeholders. They are resolved when a connector or task starts, on the worker that runs it.

Kafka lets a provider read everything unless its parameters say otherwise. Here ``allowed.paths`` (files, directories)
and ``allowlist.pattern`` (environment) are required: whoever can create a connector could read the rest by it.
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

__all__ = ["ConfigProviders", "has_placeholder", "is_placeholder", "values_of_placeholders"]

_Provider: TypeAlias = Callable[[str, str], str]
"""(path, key) -> value. Raises ConfigError."""

# Matches at each "${", so that hostile values take linear time. Placeholders also have a colon and an end (_is_one).
_BRACES: Final = re.compile(r"\$\{([^}]*)(\}?)")
_PREFIX: Final = "config.providers"
_BYTES_MAX: Final = 1 << 20
_STEPS_MAX: Final = 1_000_000
"""Limit for the match of a name with the pattern of allowed names, about one second."""
_RESOLVED_CHARS_MAX: Final = 4 << 20
"""Of all values of a configuration together: a short one may name a large file many times."""


def has_placeholder(value: str) -> bool:
    """Whether a value refers to a provider."""
    return any(map(_is_one, _BRACES.finditer(value)))


def is_placeholder(value: str) -> bool:
    """Whether a value consists of placeholders alone."""
    return has_placeholder(value) and not _BRACES.sub(lambda found: "" if _is_one(found) else "x", value)


def values_of_placeholders(given: str, resolved: str) -> list[str]:
    """What stands in ``resolved`` for the placeholders of ``given``, as far as the text between them tells."""
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
    """The providers of a worker, by name. Made with :meth:`of`."""

    def __init__(self, providers: Mapping[str, _Provider]) -> None:
        self._providers = providers

    @classmethod
    def of(cls, settings: Mapping[str, object]) -> ConfigProviders:
        """From the keys ``config.providers`` and ``config.providers.*``. Raises ConfigError."""
        names = [name for part in str(settings.get(_PREFIX, "")).split(",") if (name := part.strip())]
        known = {f"{_PREFIX}.{name}." for name in names}
        for key in sorted(settings):
            if key.startswith(f"{_PREFIX}.") and not any(key.startswith(prefix) for prefix in known):
                raise ConfigError(f"{key}: config.providers does not name this provider", key=key)
        return cls({name: _provider(name, settings) for name in names})

    def resolve(self, config: Mapping[str, str]) -> dict[str, str]:
        """The configuration with the values of its placeholders. Those of unknown providers stay, as in Kafka.

        Raises:
            ConfigError: A provider has no such key, or may not read there, or the values are too long. The text
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
        """``config`` with the placeholders of ``given`` again, where it has copied their values from ``resolved``."""
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
        raise ConfigError(f"{key} is required: it says what connectors may read", key=key)
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
        allowed = BoundedPattern(pattern)
    except re.error as error:
        raise ConfigError(f"{key} = {pattern!r} is not a regular expression: {error}", key=key) from None

    def read(path: str, name: str) -> str:
        if path or not _matches(allowed, name):
            raise ConfigError(f"the worker does not allow to read the environment variable {name!r}")
        found = os.environ.get(name)
        if found is None:
            raise ConfigError(f"there is no environment variable {name} on this worker")
        return found

    return read


def _file(folders: list[str]) -> _Provider:
    def read(path: str, key: str) -> str:
        text = _text(_allowed(path, folders))
        try:
            found = dict(properties_in(text, Path(path)))
        except ConfigError:  # its text quotes the line
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
    """The real path, after all links."""
    try:
        real = os.path.realpath(path)
    except ValueError:
        raise ConfigError(f"{path!r} is not a path") from None
    if not any(Path(real).is_relative_to(os.path.realpath(folder)) for folder in folders):
        raise ConfigError(f"the worker does not allow to read {path}; its allowed.paths are {', '.join(folders)}")
    return real


def _text(path: str) -> str:
    try:
        # A named pipe would block the worker. The path has no links, unless one was planted since it was resolved.
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
