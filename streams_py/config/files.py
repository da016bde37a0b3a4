"""Configuration files: ``.toml`` and Java's ``.properties``, read into dotted keys. Nothing is checked here."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from streams_py.errors import ConfigError

__all__ = ["properties_in", "read_config_file"]


def read_config_file(path: Path) -> dict[str, Any]:
    """Dotted keys and values of a file; the ending of its name says which format it has. ConfigError when it cannot
    be read."""
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
                raise ConfigError(f"{path} is no valid TOML: {error}") from None
            except RecursionError:
                raise ConfigError(f"{path} is no configuration: its tables are nested too deeply") from None
        case ".properties":
            return dict(properties_in(text, path))
    raise ConfigError(f"{path}: a configuration file ends in .toml or .properties")


def _flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """TOML reads ``application.id = "x"`` as a table in a table; join the parts again."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def properties_in(text: str, path: Path) -> Iterator[tuple[str, str]]:
    """``key = value``, ``key: value`` or ``key value``; ``#`` and ``!`` begin comments; a backslash at the end of a
    line joins the next one. Other escapes of Java's format are not read: a value is taken as it stands."""
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
    """What of a wrong line may be shown: it might hold a secret."""
    return entry if len(entry) <= 20 else f"{entry[:20]}..."
