"""The start and end of a history as users pass them: a timestamp, or offsets.

Other values are refused. If they were ignored, the results would be the state of another time.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import index
from typing import Any, Final, TypeAlias

from streams_py.errors import ConfigError

Until: TypeAlias = "int | Mapping[str, Mapping[int, int]]"
"""A timestamp in ms, or topic -> partition -> offset."""


def checked_instant(given: Any, key: str) -> int | None:
    """Return a timestamp in ms, also from a NumPy integer. None stays None; raises ConfigError for other values."""
    return None if given is None else _number(given, key, f"{key} = {given!r}: {_INSTANT}")


def checked_until(given: Any) -> Until | None:
    """Return a timestamp in ms, or offsets. None stays None; raises ConfigError for other values."""
    if not isinstance(given, Mapping):
        return checked_instant(given, "until")
    found = {}
    for topic, ends in given.items():
        said = f"until: {topic} has {ends!r}; pass a mapping partition -> offset"
        if not isinstance(ends, Mapping):
            raise ConfigError(said, key="until")
        try:
            found[str(topic)] = {int(partition): _number(end, "until", said) for partition, end in ends.items()}
        except (TypeError, ValueError):
            raise ConfigError(said, key="until") from None
    return found


_INSTANT: Final = "pass a timestamp in ms, as an integer (of a datetime: int(when.timestamp() * 1000))"


def _number(given: Any, key: str, said: str) -> int:
    if not isinstance(given, bool):
        try:
            return index(given)
        except TypeError:
            pass
    raise ConfigError(said, key=key)
