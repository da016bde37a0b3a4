"""Writes rows to topics: the part of the sink ``streams-kafka`` that runs in workers.

Columns may have any order:

- ``value`` is required. Null is a tombstone.
- ``topic`` is required unless the option ``topic`` is set. The option takes precedence over the column.
- ``partition`` is optional. With this column, every row is written to its partition, and null is an error. Without it,
  Kafka's default rule (murmur2 of the key) decides, and rows without a key are distributed in turn.
- ``key``, ``timestamp_ms`` and ``headers`` are optional and may be null. A null timestamp means the producer's clock. A
  negative timestamp is an error. A header without a key is an error, and so is a header key with NUL, because the
  client would cut the key there.

A repeated Spark task writes its records again, so delivery is at least once.
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
"""Columns of rows that were read from Kafka. They describe the old topic, so the writer ignores them."""


@dataclass
class RangeCommit(WriterCommitMessage):
    """The number of records that one Spark task has written, and the first and last offset of each partition."""

    records: int = 0
    offsets: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)


def check_columns(schema: StructType, options: WriterOptions) -> None:
    """Raise ConfigError when rows of this schema cannot be written."""
    found = {column.name: column.dataType.simpleString() for column in schema.fields}
    if "value" not in found:
        raise ConfigError(
            "column value is missing; add it (binary or string) with the values of the records", key="value"
        )
    if "topic" not in found and options.topic is None:
        raise ConfigError("column topic is missing; add it, or set the option topic for all rows", key="topic")
    for name, kind in found.items():
        allowed = _TYPES.get(name)
        if allowed is None and name not in _IGNORED:
            raise ConfigError(f"column {name} cannot be written; drop it, or use {', '.join(_TYPES)}", key=name)
        if allowed is not None and kind not in allowed:
            raise ConfigError(f"column {name} is {kind}, expected {' or '.join(allowed)}; cast it", key=name)


def log_commit(messages: Sequence[RangeCommit]) -> None:
    """Log on the driver the number of written records."""
    by_topic: Counter[str] = Counter()
    for message in messages:
        for (topic, _), (first, last) in message.offsets.items():
            by_topic[topic] += last - first + 1
    records = sum(message.records for message in messages)
    _log.info("wrote %d records to %s", records, ", ".join(sorted(by_topic)) or "nothing")


class TopicWriter:
    """Writes the rows of one Spark task. It contains only plain data, because it is sent to the workers."""

    def __init__(self, options: WriterOptions) -> None:
        self._options = options
        self._version = library_version()

    def write(self, batches: Iterator[Any]) -> RangeCommit:
        """Write Arrow batches and wait until all records are acknowledged.

        Raises an error for the first record that cannot be written or is not acknowledged.
        """
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
    """Iterate over the records of a batch."""
    nothing = [None] * len(topics)
    keys, timestamps = (columns[name].to_pylist() if name in columns else nothing for name in ("key", "timestamp_ms"))
    headers: Sequence[Any] = nothing
    if "headers" in columns and columns["headers"].null_count < len(topics):
        headers = [
            None if of is None else [(h["key"], h["value"]) for h in of] for of in columns["headers"].to_pylist()
        ]
    return zip(topics, partitions, columns["value"].to_pylist(), keys, timestamps, headers, strict=True)


class _Places:
    """Determines topics and partitions of rows. ``topic`` is the topic of all rows; None if rows have a column."""

    def __init__(self, admin: LogAdmin, topic: str | None) -> None:
        self._admin = admin
        self._topic = topic
        self._counts: dict[str, int] = {}
        # Each Spark task starts at another partition. Otherwise many small tasks would all write to the first ones.
        self._turn = _number_of_task()

    def of(self, columns: Mapping[str, Any], rows: int) -> tuple[list[str], list[int]]:
        """Return the topic and the partition of each row.

        Raises:
            StreamsError: a row has no topic or partition, or one that does not exist.
        """
        topics = [self._topic] * rows if self._topic is not None else columns["topic"].to_pylist()
        for topic in dict.fromkeys(topics):
            self._learn_count(topic)
        if "partition" not in columns:
            return topics, self._by_key(topics, columns.get("key"), rows)
        partitions = columns["partition"].to_pylist()
        for topic, partition in set(zip(topics, partitions, strict=True)):
            if partition is None:
                raise StreamsError(
                    "a row has no partition; fill the column partition, or drop it so that keys decide the partition"
                )
            if not 0 <= partition < self._counts[topic]:
                raise StreamsError(
                    f"{TopicPartition(topic, partition)} does not exist: {topic} has {self._counts[topic]} partitions; "
                    "check the column partition"
                )
        return topics, partitions

    def _learn_count(self, topic: str | None) -> None:
        if topic is None:
            raise StreamsError("a row has no topic; fill the column topic, or set the option topic")
        if topic not in self._counts:
            self._counts.update(self._admin.partition_counts())
            if topic not in self._counts:
                raise StreamsError(
                    f"topic {topic} does not exist; create it before writing, or allow the user to describe it"
                )

    def _by_key(self, topics: Sequence[str], keys: Any, rows: int) -> list[int]:
        """Return partitions by Kafka's default rule. Rows without a key are distributed in turn."""
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
    """Refuse headers with a null key, which the client would convert to text. Header values may be null."""
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
