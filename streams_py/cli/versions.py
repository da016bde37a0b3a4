"""``streams-py version``: the versions that a bug report needs."""

from __future__ import annotations

import platform
from importlib import metadata

_PACKAGES = ("kafka-streams-py", "kafka-python", "confluent-kafka", "rocksdict", "pydantic")


def versions() -> list[tuple[str, str]]:
    """Return names and versions of Python, the platform and the packages that matter."""
    found = [("python", platform.python_version()), ("platform", platform.platform())]
    for name in _PACKAGES:
        try:
            found.append((name, metadata.version(name)))
        except metadata.PackageNotFoundError:
            found.append((name, "not installed"))
    return found
