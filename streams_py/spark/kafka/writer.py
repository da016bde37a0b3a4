"""Writes rows to topics: the workers' half of ``streams-kafka`` as a sink.

Columns, in any order: ``value`` is required, and ``topic`` unless the option of that name says where all rows go, which
counts more than the column. With a column ``partition`` every row goes exactly where it says, and null is an error;
without it a row goes where Kafka's default rule sends its key (murmur2), and those without a key are dealt out in turn.
``key``, ``timestamp_ms`` and ``headers`` may be missing or null. A null value is a tombstone. A null timestamp is the
producer's clock, a negative one an error. A header without a key is an error too, and so is one whose key contains NUL:
the client would write the key only up to there.

A Spark task that is repeated writes its records again: at least once.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent.bulk.bulk_settings import bulk_admin_settings, bulk_producer_settings
from streams_py.adapters.confluent.bulk.bulk_writer import BulkWriter
from streams_py.adapters.confluent.bulk.log_admin import LogAdmin
from streams_py.adapters.confluent.bulk.sent_records import Sent
from streams_py.errors import ConfigError, StreamsError
from streams_py.spark.kafka.options import WriterOptions
from streams_py.spark.partitioning import murmur2_column
from streams_py.spark.version import check_same_version, library_version

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["RangeCommit", "TopicWriter", "check_columns", "log_commit"]

_log = logging.getLogger(__name__)

_CLIENT_ID: Final = "streams-kafka-writer"
_TYPES: Final = {
    "topic": ("string",),
    "partition": ("int", "bigint", "smallint", "tinyint"),
    "timestamp_ms": ("bigint", "int"),
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "headers": ("array<struct<key:string,value:binary>>",),
}
_IGNORED: Final = ("offset", "timestamp_type")
"""Columns of rows that were read from Kafka; what they say of the old topic means nothing for the new one."""


@dataclass
class RangeCommit(WriterCommitMessage):
    """What one Spark task has written: records, and first and last offset by partition."""

    records: int = 0
    offsets: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)


def check_columns(schema: StructType, options: WriterOptions) -> None:
    """ConfigError when rows of this schema cannot be written."""
    found = {column.name: column.dataType.simpleString() for column in schema.fields}
    if "value" not in found:
        raise ConfigError(
            "column value is missing; make one, binary or string, with what is to be written", key="value"
        )
    if "topic" not in found and options.topic is None:
        raise ConfigError(
            "column topic is missing; make one, or name one topic for all rows: option topic", key="topic"
        )
    for name, kind in found.items():
        allowed = _TYPES.get(name)
        if allowed is None and name not in _IGNORED:
            raise ConfigError(f"column {name} cannot be written; drop it, or use {', '.join(_TYPES)}", key=name)
        if allowed is not None and kind not in allowed:
            raise ConfigError(f"column {name} is {kind}, expected {' or '.join(allowed)}; cast it", key=name)


def log_commit(messages: Sequence[RangeCommit]) -> None:
    """Say on the driver what was written."""
    by_topic: Counter[str] = Counter()
    for message in messages:
        for (topic, _), (first, last) in message.offsets.items():
            by_topic[topic] += last - first + 1
    records = sum(message.records for message in messages)
    _log.info("wrote %d records to %s", records, ", ".join(sorted(by_topic)) or "nothing")


class TopicWriter:
    """Writes the rows of one Spark task. Plain data: it travels to the workers."""

    def __init__(self, options: WriterOptions) -> None:
        self._options = options
        self._version = library_version()

    def write(self, batches: Iterator[Any]) -> RangeCommit:
        """Write Arrow batches; returns when everything is acknowledged. Raises for the first record that cannot be
        written or was not acknowledged."""
        check_same_version(self._version)
        kafka = self._options.resolved()
        admin = LogAdmin(bulk_admin_settings(kafka, client_id=_CLIENT_ID))
        name = f"partition {_number_of_task()} of the DataFrame"
        writer = BulkWriter(kafka, bulk_producer_settings(kafka, client_id=_CLIENT_ID), name=name)
        try:
            places = _Places(admin, self._options.topic)
            records = 0
            for batch in batches:
                _write_batch(writer, batch, places)
                records += batch.num_rows
            offsets = writer.finish(self._options.flush_timeout_ms)
        finally:
            writer.close()
            admin.close()
        return RangeCommit(records, {(tp.topic, tp.partition): span for tp, span in offsets.items()})


def _number_of_task() -> int:
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def _write_batch(writer: BulkWriter, batch: Any, places: _Places) -> None:
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    topics, partitions = places.of(columns, batch.num_rows)
    if "headers" in columns:
        _check_headers(columns["headers"])
    if "timestamp_ms" in columns:
        _check_timestamps(columns["timestamp_ms"].to_pylist(), topics)
    records = partial(_records, topics, partitions, columns)
    writer.keep(records)
    write = writer.write
    for topic, partition, value, key, timestamp_ms, headers in records():
        write(topic, partition, value, key, timestamp_ms, headers)
    writer.check()


def _records(topics: Sequence[str], partitions: Sequence[int], columns: Mapping[str, Any]) -> Iterator[Sent]:
    """The records of a batch, each time that they are wanted."""
    nothing = [None] * len(topics)
    keys, timestamps = (columns[name].to_pylist() if name in columns else nothing for name in ("key", "timestamp_ms"))
    headers: Sequence[Any] = nothing
    if "headers" in columns and columns["headers"].null_count < len(topics):
        headers = [
            None if of is None else [(h["key"], h["value"]) for h in of] for of in columns["headers"].to_pylist()
        ]
    return zip(topics, partitions, columns["value"].to_pylist(), keys, timestamps, headers, strict=True)


class _Places:
    """Topics and partitions of rows. ``topic`` is that of all rows, None when each has its own."""

    def __init__(self, admin: LogAdmin, topic: str | None) -> None:
        self._admin = admin
        self._topic = topic
        self._counts: dict[str, int] = {}
        # Each Spark task begins elsewhere: many small ones would all write to the first partitions.
        self._turn = _number_of_task()

    def of(self, columns: Mapping[str, Any], rows: int) -> tuple[list[str], list[int]]:
        """Of each row. StreamsError for one without a topic or partition, or with one that does not exist."""
        topics = [self._topic] * rows if self._topic is not None else columns["topic"].to_pylist()
        for topic in dict.fromkeys(topics):
            self._learn_count(topic)
        if "partition" not in columns:
            return topics, self._by_key(topics, columns.get("key"), rows)
        partitions = columns["partition"].to_pylist()
        for topic, partition in set(zip(topics, partitions, strict=True)):
            if partition is None:
                raise StreamsError(
                    "a row to be written has no partition; compute it before, or drop the column: then keys decide"
                )
            if not 0 <= partition < self._counts[topic]:
                raise StreamsError(
                    f"{TopicPartition(topic, partition)} does not exist: {topic} has {self._counts[topic]} partitions; "
                    "check how the column partition is made"
                )
        return topics, partitions

    def _learn_count(self, topic: str | None) -> None:
        if topic is None:
            raise StreamsError("a row to be written has no topic; fill the column, or give the option topic")
        if topic not in self._counts:
            self._counts.update(self._admin.partition_counts())
            if topic not in self._counts:
                raise StreamsError(
                    f"topic {topic} does not exist; create it before writing to it, or let the user see it"
                )

    def _by_key(self, topics: Sequence[str], keys: Any, rows: int) -> list[int]:
        """Kafka's default rule; rows without a key in turn."""
        counts = np.array([self._counts[topic] for topic in topics], np.int64)
        has_key = np.zeros(rows, bool) if keys is None else keys.is_valid().to_numpy(zero_copy_only=False)
        partitions = (self._turn + np.cumsum(~has_key)) % counts
        self._turn += int((~has_key).sum())
        if has_key.any():
            hashes = murmur2_column(keys.drop_null()).astype(np.int64) & 0x7FFFFFFF
            partitions[has_key] = hashes % counts[has_key]
        found: list[int] = partitions.tolist()
        return found


def _check_headers(headers: Any) -> None:
    """Values may be null; the client would make text of a null key."""
    each = headers.flatten()
    if each.null_count or each.field("key").null_count:
        raise StreamsError("a row to be written has a header without a key; give it one, or leave the header out")


def _check_timestamps(timestamps: Sequence[int | None], topics: Sequence[str]) -> None:
    for timestamp_ms, topic in zip(timestamps, topics, strict=True):
        if timestamp_ms is not None and timestamp_ms < 0:
            raise StreamsError(
                f"a row for {topic} has the timestamp {timestamp_ms}; it must be 0 or more milliseconds since 1970, or "
                "null for the time of writing"
            )
