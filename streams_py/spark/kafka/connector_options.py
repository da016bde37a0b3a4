"""The options of Spark's own Kafka connector: understood where they mean the same here, with a hint where they do not.

A program that was written for the connector runs with ``format("streams-kafka")`` as long as it uses the former. What
would mean something else is refused with what to write instead, never taken for something near. Defaults are ours:
a stream begins at the earliest offset, and only committed records are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from streams_py.errors import ConfigError

__all__ = ["translated"]


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
"""The connector's name, in lower case as Spark hands it over -> ours, and the value in our form."""

_GIVEN_ANYWAY: Final = {
    "failondataloss": (
        "true",
        "write on.gone=skip to go on after what retention has deleted; a topic that was deleted is always an error",
    ),
    "includeheaders": ("true", "the column headers is always there; drop it from the DataFrame"),
    "startingoffsetsbytimestampstrategy": (
        "latest",
        "where no record is as new, reading begins at the end; check the offsets before if that is to be an error",
    ),
}
"""Options with one value that says what is done here anyway; for any other there is a hint."""

_HINTS: Final = {
    "groupidprefix": "no consumer group is joined, so there is no group id to choose; leave it out",
    "kafka.group.id": "no consumer group is joined, so there is no group id to choose; leave it out",
    "minoffsetspertrigger": "there is no lower bound; use a longer trigger interval",
    "maxtriggerdelay": "there is no lower bound that a delay could end; use the trigger interval",
    "fetchoffset.numretries": "offsets are asked for until poll.timeout.ms is over; set that",
    "fetchoffset.retryintervalms": "offsets are asked for until poll.timeout.ms is over; set that",
    "kafka.auto.offset.reset": "use starting, and on.gone for offsets that are gone",
    "kafka.key.deserializer": "keys are bytes; deserialize them in the DataFrame",
    "kafka.value.deserializer": "values are bytes; deserialize them in the DataFrame",
    "kafka.key.serializer": "keys are bytes or text; serialize them in the DataFrame",
    "kafka.value.serializer": "values are bytes or text; serialize them in the DataFrame",
    "kafka.enable.auto.commit": "nothing is committed to Kafka; the checkpoint folder is the truth",
    "kafka.interceptor.classes": "there are no interceptors; leave it out",
}


def translated(given: Mapping[str, str]) -> dict[str, str]:
    """Options by our names. ConfigError for two names of one thing, and for what means nothing here, with a hint.

    ``given`` has keys in lower case.
    """
    found: dict[str, str] = {}
    name_of: dict[str, str] = {}
    for key, value in given.items():
        hint = _HINTS.get(key)
        if key in _GIVEN_ANYWAY:
            expected, hint_otherwise = _GIVEN_ANYWAY[key]
            if value.strip().lower() == expected:
                continue
            hint = hint_otherwise
        if hint is not None or key.startswith("kafkaconsumer.cache."):
            hint = hint or "consumers are not kept between ranges; leave it out"
            raise ConfigError(f"option {key} = {value!r} of Spark's connector is not used here: {hint}", key=key)
        ours, form = _RENAMED.get(key, (key, _same))
        if ours in found:
            raise ConfigError(f"options {name_of[ours]} and {key} mean the same: give one of them", key=key)
        found[ours], name_of[ours] = form(value), key
    return found
