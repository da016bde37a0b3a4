"""The library's version. Driver and workers need the same one, because they exchange pickled plans."""

from __future__ import annotations

from importlib import metadata
from typing import Final

from streams_py.errors import ConfigError

_DISTRIBUTION: Final = "kafka-streams-py"


def library_version() -> str:
    """Return the installed version, or ``0`` if the package is used without installation."""
    try:
        return metadata.version(_DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "0"


def check_same_version(on_driver: str) -> None:
    """Raise ConfigError when this worker has another version than the driver."""
    here = library_version()
    if here != on_driver:
        raise ConfigError(
            f"this worker has {_DISTRIBUTION} {here}, the driver has {on_driver}; install the same version everywhere, "
            "or send it with --archives"
        )
