"""The options of Spark's own Kafka connector. Options with the same meaning are accepted, others get a hint.

So a program that was written for the connector runs with ``format("streams-kafka")`` if it uses only accepted options.
The hint names the replacement. This data source has its own defaults: a stream starts at the earliest offset, and only
committed records are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from streams_py.errors import ConfigError


def _same(value: str) -> str:
    return value


def _by_timestamp(value: str) -> str:
    return f"timestamp:{value}"


_RENAMED: Final[dict[str, tuple[str, Callable[[str], str]]]] = {
    "subscribe": ("topics", _same),
    "subscribepattern": ("topics.pattern", _same),
    "startingoffsets": ("starting", _same),
    "endingoffsets": ("ending", _same),
    "startingtimestamp": ("starting", _by_timestamp),
    "endingtimestamp": ("ending", _by_timestamp),
    "startingoffsetsbytimestamp": ("starting", _by_timestamp),
    "endingoffsetsbytimestamp": ("ending", _by_timestamp),
    "maxoffsetspertrigger": ("rows.per.trigger", _same),
    "maxrecordsperpartition": ("split.records", _same),
    "minpartitions": ("min.partitions", _same),
    "kafkaconsumer.polltimeoutms": ("poll.timeout.ms", _same),
    "kafka.isolation.level": ("isolation", _same),
}
"""The connector's name (in lower case, as Spark passes it) -> our name, and the conversion of its value."""

_ALWAYS_SO: Final = {
    "failondataloss": (
        "true",
        "set on.gone=skip to skip records that retention has deleted; a deleted topic is always an error",
    ),
    "includeheaders": ("true", "the column headers always exists; drop it from the DataFrame"),
    "startingoffsetsbytimestampstrategy": (
        "latest",
        "if all records are older, reading starts at the end; check the offsets before if that should be an error",
    ),
}
"""Option -> the one value that describes what this data source always does, and a hint for other values."""

_HINTS: Final = {
    "groupidprefix": "readers do not join a consumer group and need no group id; remove this option",
    "kafka.group.id": "readers do not join a consumer group and need no group id; remove this option",
    "minoffsetspertrigger": "micro-batches do not have a minimum size; use a longer trigger interval",
    "maxtriggerdelay": "micro-batches do not have a minimum size, so they are not delayed; use the trigger interval",
    "fetchoffset.numretries": "offset requests are retried until poll.timeout.ms has elapsed; set that option",
    "fetchoffset.retryintervalms": "offset requests are retried until poll.timeout.ms has elapsed; set that option",
    "kafka.auto.offset.reset": "use starting, and on.gone for deleted offsets",
    "kafka.key.deserializer": "keys are bytes; deserialize them in the DataFrame",
    "kafka.value.deserializer": "values are bytes; deserialize them in the DataFrame",
    "kafka.key.serializer": "keys are bytes or text; serialize them in the DataFrame",
    "kafka.value.serializer": "values are bytes or text; serialize them in the DataFrame",
    "kafka.enable.auto.commit": "offsets are never committed to Kafka; the checkpoint folder has the progress",
    "kafka.interceptor.classes": "interceptors are not supported; remove this option",
}
"""Option -> hint, for options that are always refused."""


def translated(given: Mapping[str, str]) -> dict[str, str]:
    """Return options by our names. Keys of ``given`` must be in lower case.

    Raises:
        ConfigError: two options mean the same, or an option of the connector is not supported.
    """
    found: dict[str, str] = {}
    name_of: dict[str, str] = {}
    for key, value in given.items():
        hint = _HINTS.get(key)
        if key in _ALWAYS_SO:
            expected, hint_otherwise = _ALWAYS_SO[key]
            if value.strip().lower() == expected:
                continue
            hint = hint_otherwise
        if hint is not None or key.startswith("kafkaconsumer.cache."):
            hint = hint or "consumers are not cached between ranges; remove this option"
            raise ConfigError(f"option {key} = {value!r} of Spark's connector is not supported: {hint}", key=key)
        ours, form = _RENAMED.get(key, (key, _same))
        if ours in found:
            raise ConfigError(f"options {name_of[ours]} and {key} mean the same: pass one of them", key=key)
        found[ours], name_of[ours] = form(value), key
    return found
