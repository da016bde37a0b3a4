"""``streams-py version``: the versions that a bug report needs."""

from __future__ import annotations

import platform
from importlib import metadata

import typer

_PACKAGES = ("kafka-streams-py", "kafka-python", "confluent-kafka", "rocksdict", "pydantic")


def version() -> None:
    """Print the versions that a bug report needs.

    Example: streams-py version
    """
    found = [("python", platform.python_version()), ("platform", platform.platform())]
    for name in _PACKAGES:
        try:
            found.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            found.append((name, "not installed"))
    for name, value in found:
        typer.echo(f"{name:18} {value}")
