"""Where a history begins and ends, as users give it: an instant, or offsets. What is neither is refused: taken for no
boundary, it would give the state of another time."""

from __future__ import annotations

from collections.abc import Mapping
from operator import index
from typing import Any, Final, TypeAlias

from streams_py.errors import ConfigError

__all__ = ["Until", "checked_instant", "checked_until"]

Until: TypeAlias = "int | Mapping[str, Mapping[int, int]]"
"""A timestamp in ms, or topic -> partition -> offset."""


def checked_instant(given: Any, key: str) -> int | None:
    """A timestamp in ms, also as a number of numpy. ConfigError for anything else; None stays None."""
    return None if given is None else _number(given, key, f"{key} = {given!r}: {_INSTANT}")


def checked_until(given: Any) -> Until | None:
    """An instant, or offsets; None stays None. ConfigError for anything else."""
    if not isinstance(given, Mapping):
        return checked_instant(given, "until")
    found = {}
    for topic, ends in given.items():
        said = f"until: {topic} ends at {ends!r}; give partition -> offset"
        if not isinstance(ends, Mapping):
            raise ConfigError(said, key="until")
        try:
            found[str(topic)] = {int(partition): _number(end, "until", said) for partition, end in ends.items()}
        except (TypeError, ValueError):
            raise ConfigError(said, key="until") from None
    return found


_INSTANT: Final = "give a timestamp in ms, as an integer (of a datetime: int(when.timestamp() * 1000))"


def _number(given: Any, key: str, said: str) -> int:
    if not isinstance(given, bool):
        try:
            return index(given)
        except TypeError:
            pass
    raise ConfigError(said, key=key)
