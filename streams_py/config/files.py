"""Read ``.toml`` and Java ``.properties`` files into dotted keys. Values are not validated here."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from streams_py.errors import ConfigError


def read_config_file(path: Path) -> dict[str, Any]:
    """Read dotted keys and values from a file. The suffix of its name determines the format.

    Raises:
        ConfigError: The file cannot be read or parsed.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read configuration file {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"configuration file {path} is not UTF-8: {error.reason} at byte {error.start}") from None
    match path.suffix:
        case ".toml":
            try:
                return dict(_flatten(tomllib.loads(text)))
            except tomllib.TOMLDecodeError as error:
                raise ConfigError(f"{path} is not valid TOML: {error}") from None
            except RecursionError:
                raise ConfigError(f"{path} is not a valid configuration: its tables are nested too deeply") from None
        case ".properties":
            return dict(properties_in(text, path))
    raise ConfigError(f"{path}: the name of a configuration file must end in .toml or .properties")


def _flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Join nested tables to dotted keys. TOML parses ``application.id = "x"`` as a table."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def properties_in(text: str, path: Path) -> Iterator[tuple[str, str]]:
    """Yield the entries of a properties file: ``key = value``, ``key: value`` or ``key value``.

    ``#`` and ``!`` start comments. A backslash at the end of a line continues it. Other escapes of Java's format are
    not interpreted.
    """
    pending: str | None = None
    begun = 0
    for number, line in enumerate([*text.splitlines(), ""], 1):
        line = line.strip()
        if pending is None:
            begun = number
            if not line or line[0] in "#!":
                continue
        if line.endswith("\\"):
            pending = (pending or "") + line[:-1]
            continue
        entry, pending = (pending or "") + line, None
        end = next((at for at, character in enumerate(entry) if character in "=: \t"), None)
        if not end:
            raise ConfigError(f"{path}, line {begun}: expected `key = value`, found {_key_only(entry)!r}")
        rest = entry[end:].lstrip()
        yield entry[:end], rest[1:].lstrip() if rest[:1] in ("=", ":") else rest


def _key_only(entry: str) -> str:
    """Return the part of an invalid line that may be shown, because the line may contain a secret."""
    return entry if len(entry) <= 20 else f"{entry[:20]}..."
