"""Options of the data source ``streams-kafka``: parsed and checked once, and sent to workers as plain values.

Spark pickles a data source and sends it to every worker. So options contain no clients and no secrets. A secret is
passed as ``env:NAME`` or ``file:PATH``, and only this reference is sent. The driver and the workers resolve it when
they use it.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

from streams_protocol.types import TopicPartition
from streams_py.config.keys import is_secret
from streams_py.errors import ConfigError
from streams_py.ports import BEGINNING
from streams_py.spark.kafka.connector_options import translated
from streams_py.system.foreign_json import loads as loads_foreign

_REFERENCE: Final = re.compile(r"(env|file):(.+)", re.DOTALL)
_KAFKA: Final = "kafka."
_COMMON: Final = ("allow.plain.secrets",)
_READER: Final = (
    *_COMMON, "topics", "topics.pattern", "assign", "starting", "ending", "isolation", "split.records",
    "min.partitions", "batch.records", "batch.bytes", "poll.timeout.ms", "rows.per.trigger", "on.gone", "push.filters",
    "topic.ids",
)  # fmt: skip
_WRITER: Final = (*_COMMON, "topic", "flush.timeout.ms")
_SPARKS_OWN: Final = frozenset({"checkpointlocation", "queryname", "path"})
INT64_MAX: Final = 2**63 - 1


# -- starts and ends of ranges ---------------------------------------------------------------------------------------


class PositionKind(StrEnum):
    """The kind of a ``starting`` or ``ending`` option."""

    EARLIEST = "earliest"
    LATEST = "latest"
    GROUP = "group"
    TIMESTAMP = "timestamp"
    OFFSETS = "offsets"


class Position(NamedTuple):
    """The value of a ``starting`` or ``ending`` option.

    Attributes:
        kind: the kind.
        group: consumer group, for GROUP.
        timestamp_ms: timestamp, for TIMESTAMP.
        by_partition: JSON text by topic and partition, for OFFSETS, and for TIMESTAMP with separate timestamps.
    """

    kind: PositionKind
    group: str = ""
    timestamp_ms: int = 0
    by_partition: str = ""

    def given(self) -> dict[TopicPartition, int]:
        """Return the offset (-2: the beginning, -1: the end) or timestamp of each partition in ``by_partition``."""
        named = loads_foreign(self.by_partition)
        return {TopicPartition(topic, int(p)): number for topic, of in named.items() for p, number in of.items()}


def parse_position(text: str, option: str) -> Position:
    """Parse the value of a ``starting`` or ``ending`` option.

    It is ``earliest``, ``latest``, ``group:<id>``, ``timestamp:<ms>``, ``timestamp:{"topic":{"0":<ms>}}``, or
    ``{"topic":{"0":12}}``.

    Raises:
        ConfigError: the value is not valid.
    """
    word = text.strip()
    if word.lower() in (PositionKind.EARLIEST, PositionKind.LATEST):  # in capitals, too, as in Spark's connector
        return Position(PositionKind(word.lower()))
    if word.startswith("group:") and len(word) > len("group:"):
        return Position(PositionKind.GROUP, group=word.removeprefix("group:"))
    if word.startswith("timestamp:"):
        number = word.removeprefix("timestamp:")
        if number.isascii() and number.isdigit() and int(number) <= INT64_MAX:
            return Position(PositionKind.TIMESTAMP, timestamp_ms=int(number))
        if number.lstrip().startswith("{"):
            expected = '{"0":1700000000000}, milliseconds since 1970'
            return Position(
                PositionKind.TIMESTAMP, by_partition=_by_partition(number, option, "timestamps", 0, expected)
            )
    if word.startswith("{"):
        expected = '{"0":12,"1":-2}, where -2 is the beginning and -1 the end'
        return Position(PositionKind.OFFSETS, by_partition=_by_partition(word, option, "offsets", BEGINNING, expected))
    raise ConfigError(
        f"{option} = {text!r} is not valid: expected earliest, latest, group:<id>, timestamp:<ms since 1970>, "
        'timestamp:{"my-topic":{"0":<ms>}}, or offsets such as {"my-topic":{"0":12,"1":-2}}',
        key=option,
    )


def _by_partition(text: str, option: str, what: str, least: int, expected: str) -> str:
    found = _json_object(text, option)
    for topic, of_topic in found.items():
        if not isinstance(of_topic, dict) or not all(
            partition.isascii() and partition.isdigit() and type(number) is int and least <= number <= INT64_MAX
            for partition, number in of_topic.items()
        ):
            raise ConfigError(f"{option}: the {what} of topic {topic!r} are not valid: expected {expected}", key=option)
    return json.dumps(found, sort_keys=True, separators=(",", ":"))


def _json_object(text: str, option: str) -> dict[str, object]:
    try:
        found = loads_foreign(text)
    except ValueError as error:
        raise ConfigError(f"{option} is not valid JSON: {error}", key=option) from None
    if not isinstance(found, dict):
        raise ConfigError(f"{option}: expected a JSON object", key=option)
    return found


# -- all options -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shared:
    kafka: Mapping[str, str]
    """Client properties without their prefix. Secrets are references."""

    def resolved(self) -> dict[str, str]:
        """Return client properties with resolved secrets. Raises ConfigError when a secret is not found."""
        return {key: _resolved(f"{_KAFKA}{key}", value) for key, value in self.kafka.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderOptions(_Shared):
    """Options of a batch or a stream.

    ``assigned`` maps topics to partition numbers; an empty tuple means all partitions. With ``pattern``, it is empty,
    and all topics are read whose whole name matches.
    """

    assigned: Mapping[str, tuple[int, ...]]
    pattern: str | None
    starting: Position
    ending: Position
    read_committed: bool
    split_records: int | None
    min_partitions: int | None
    batch_records: int
    batch_bytes: int
    poll_timeout_ms: int
    rows_per_trigger: int | None
    skip_gone: bool
    push_filters: bool
    topic_ids: Mapping[str, str]
    """Topic -> its required id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterOptions(_Shared):
    """Options of a writer. ``topic`` is the topic of all rows; None if rows have a column ``topic``."""

    topic: str | None
    flush_timeout_ms: int


def reader_options(given: Mapping[str, str], *, streaming: bool) -> ReaderOptions:
    """Parse and check all options of a reader. ConfigError names the option, the problem and the allowed values."""
    options = _Options(given, _READER)
    if streaming:
        whole = "a stream keeps partitions whole"
        for key, instead in (
            ("ending", "a stream has no end"), ("split.records", whole), ("min.partitions", whole),
            ("push.filters", "a stream reads all records"), ("topic.ids", "a stream keeps ids in its checkpoint"),
        ):  # fmt: skip
            if options.get(key) is not None:
                raise ConfigError(f"{key} is for batches only: {instead}", key=key)
    elif options.get("rows.per.trigger") is not None:
        raise ConfigError(
            "rows.per.trigger is for streams only; a batch has starting and ending", key="rows.per.trigger"
        )
    isolation = options.one_of("isolation", "read_committed", "read_uncommitted")
    pattern = options.get("topics.pattern")
    return ReaderOptions(
        kafka=options.kafka(),
        assigned=_assigned(options.get("topics"), options.get("assign"), pattern),
        pattern=pattern,
        starting=parse_position(options.get("starting") or PositionKind.EARLIEST, "starting"),
        ending=parse_position(options.get("ending") or PositionKind.LATEST, "ending"),
        read_committed=isolation == "read_committed",
        split_records=options.number("split.records"),
        min_partitions=options.number("min.partitions"),
        batch_records=options.number("batch.records") or 16_384,
        batch_bytes=options.number("batch.bytes") or 8 << 20,
        poll_timeout_ms=options.number("poll.timeout.ms") or 60_000,
        rows_per_trigger=options.number("rows.per.trigger"),
        skip_gone=options.one_of("on.gone", "fail", "skip") == "skip",
        push_filters=options.one_of("push.filters", "false", "true") == "true",
        topic_ids=_topic_ids(options.get("topic.ids")),
    )


def writer_options(given: Mapping[str, str]) -> WriterOptions:
    """Parse and check all options of a writer, like :func:`reader_options`."""
    options = _Options(given, _WRITER)
    topic = options.get("topic")
    if topic is not None and not topic.strip():
        raise ConfigError("topic is empty: name the topic to write to, or remove the option", key="topic")
    return WriterOptions(
        kafka=options.kafka(),
        topic=None if topic is None else topic.strip(),
        flush_timeout_ms=options.number("flush.timeout.ms") or 120_000,
    )


def for_reader(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options without options that only writers have."""
    return _without(given, _WRITER)


def for_writer(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options without options that only readers have."""
    return _without(given, _READER)


def _without(given: Mapping[str, str], others: tuple[str, ...]) -> dict[str, str]:
    left = translated({key.lower(): value for key, value in given.items()})
    return {key: value for key, value in left.items() if key in _COMMON or key not in others}


def _assigned(topics: str | None, assign: str | None, pattern: str | None) -> dict[str, tuple[int, ...]]:
    if (topics, assign, pattern).count(None) != 2:
        raise ConfigError(
            'pass one of topics, e.g. orders,payments, topics.pattern, e.g. orders-.*, and assign, e.g. {"orders":[0]}',
            key="topics",
        )
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ConfigError(
                f"topics.pattern = {pattern!r} is not a valid regular expression of Python: {error}",
                key="topics.pattern",
            ) from None
        return {}
    if topics is not None:
        names = [name.strip() for name in topics.split(",") if name.strip()]
        if not names:
            raise ConfigError("topics is empty: name at least one topic", key="topics")
        return dict.fromkeys(sorted(set(names)), ())
    assert assign is not None
    found = _json_object(assign, "assign")
    assigned = {}
    for topic, numbers in sorted(found.items()):
        if not isinstance(numbers, list) or not numbers or not all(type(n) is int and n >= 0 for n in numbers):
            raise ConfigError(
                f'assign: expected partition numbers for {topic!r}, as in {{"orders":[0,2]}}', key="assign"
            )
        assigned[topic] = tuple(sorted(set(numbers)))
    if not assigned:
        raise ConfigError("assign is empty: name at least one topic", key="assign")
    return assigned


def _topic_ids(given: str | None) -> dict[str, str]:
    found = _json_object(given or "{}", "topic.ids")
    if not all(isinstance(id, str) and id for id in found.values()):
        raise ConfigError('topic.ids: expected the id of each topic as text, as in {"orders":"..."}', key="topic.ids")
    return {topic: str(id) for topic, id in found.items()}


class _Options:
    """The options that Spark passes. Its keys are in lower case."""

    def __init__(self, given: Mapping[str, str], known: tuple[str, ...]) -> None:
        self._given = translated({key.lower(): str(value) for key, value in given.items()})
        for key in self._given:
            if not (key in known or key.startswith(_KAFKA) or key in _SPARKS_OWN):
                near = difflib.get_close_matches(key, [*known, "kafka.bootstrap.servers"], n=1, cutoff=0.5)
                hint = f"did you mean {near[0]}? " if near else ""
                raise ConfigError(
                    f"unknown option {key}: {hint}Supported options are {', '.join(sorted(known))}; settings of the "
                    f"Kafka client begin with {_KAFKA}",
                    key=key,
                )

    def get(self, key: str) -> str | None:
        return self._given.get(key)

    def number(self, key: str) -> int | None:
        text = self._given.get(key)
        if text is None:
            return None
        if not (text.isascii() and text.isdigit() and 0 < int(text) <= INT64_MAX):
            raise ConfigError(f"{key} = {text!r} is not valid: expected a whole number above 0", key=key)
        return int(text)

    def one_of(self, key: str, *allowed: str) -> str:
        """Return one of the ``allowed`` words; the first is the default."""
        text = self._given.get(key, allowed[0]).lower()
        if text not in allowed:
            raise ConfigError(f"{key} = {text!r} is not valid: expected {' or '.join(allowed)}", key=key)
        return text

    def kafka(self) -> dict[str, str]:
        plain_allowed = self.one_of("allow.plain.secrets", "false", "true") == "true"
        properties = {key.removeprefix(_KAFKA): v for key, v in self._given.items() if key.startswith(_KAFKA)}
        for key, value in properties.items():
            if is_secret(key) and not plain_allowed and not _REFERENCE.fullmatch(value):
                raise ConfigError(
                    f"{_KAFKA}{key} is a secret, and options are sent to the workers in plain text: pass it as "
                    "env:NAME or file:PATH, or set allow.plain.secrets = true",
                    key=f"{_KAFKA}{key}",
                )
        if not properties.get("bootstrap.servers"):
            raise ConfigError("kafka.bootstrap.servers is required, e.g. localhost:9092", key="kafka.bootstrap.servers")
        return dict(sorted(properties.items()))


def _resolved(key: str, value: str) -> str:
    reference = _REFERENCE.fullmatch(value) if is_secret(key) else None
    if reference is None:
        return value
    kind, name = reference[1], reference[2]
    if kind == "env":
        found = os.environ.get(name)
        if found is None:
            raise ConfigError(f"{key} = env:{name}: this environment variable is not set on this machine", key=key)
        return found
    try:
        return Path(name).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise ConfigError(f"{key} = file:{name} cannot be read on this machine: {reason}", key=key) from None
