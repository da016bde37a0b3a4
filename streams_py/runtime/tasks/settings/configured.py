"""Objects that the configuration refers to: the object itself or ``"package.module:name"``."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import cast

from streams_py.config.user_objects import user_object
from streams_py.errors import ConfigError
from streams_py.runtime.tasks.settings.timestamps import EXTRACTORS
from streams_py.topology.declare.in_context import WithContext
from streams_py.topology.declare.nodes import TimestampExtractor


def imported(path: str, key: str, known: Iterable[str] = ()) -> object:
    """Import the object ``package.module:name``.

    Args:
        known: Valid names, for suggestions in the error.

    Raises:
        ConfigError: The object cannot be imported. The error names ``key``.
    """
    if ":" not in path:
        names = sorted(known)
        near = get_close_matches(path, names, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        built_in = f"one of {', '.join(names)}, or " if names else ""
        raise ConfigError(f"{key} = {path!r} is not known: {hint}Give {built_in}'package.module:name'", key=key)
    try:
        return user_object(path)
    except ImportError as error:
        raise ConfigError(f"{key} = {path!r} cannot be imported: {error}", key=key) from error


def resolve_extractor(given: object) -> TimestampExtractor | None:
    """Return a timestamp extractor from a function, the name of a built-in extractor, or a path. None stays None."""
    key = "default.timestamp.extractor"
    if given is None:
        return None
    if isinstance(given, str):
        given = EXTRACTORS[given] if given in EXTRACTORS else imported(given, key, EXTRACTORS)
    if not callable(given) and not isinstance(given, WithContext):
        raise ConfigError(
            f"{key} = {given!r} is not an extractor: use one of {', '.join(EXTRACTORS)}, 'package.module:name', or a "
            f"function (key, value, record_timestamp_ms, partition_time_ms) -> ms",
            key=key,
        )
    return cast("TimestampExtractor", given)
