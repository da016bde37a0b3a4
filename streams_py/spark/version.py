"""The library's version on the driver and on the workers: the same, because they exchange pickled plans."""

from __future__ import annotations

from importlib import metadata
from typing import Final

from streams_py.errors import ConfigError

__all__ = ["check_same_version", "library_version"]

_DISTRIBUTION: Final = "kafka-streams-py"


def library_version() -> str:
    """The installed version, ``0`` when the package is used from a folder without being installed."""
    try:
        return metadata.version(_DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "0"


def check_same_version(on_driver: str) -> None:
    """ConfigError when this worker has another version than the driver."""
    here = library_version()
    if here != on_driver:
        raise ConfigError(
            f"this worker has {_DISTRIBUTION} {here}, the driver {on_driver}; install the same version everywhere, or "
            "ship it with --archives"
        )
