"""Writes rows to topics, each exactly where it says: the workers' half of ``streams-kafka`` as a sink.

Columns, in any order: ``topic``, ``partition`` and ``value`` are required; ``key``, ``timestamp_ms`` and ``headers``
may be missing or null. The partition is never chosen here; compute it before, with
:func:`streams_py.spark.partitioning.partition_column` for keyed records. A null value is a tombstone. A null timestamp
is the producer's clock, a negative one an error.

A Spark task that is repeated writes its records again: at least once.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import WriterCommitMessage

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent.bulk.bulk_settings import bulk_admin_settings, bulk_producer_settings
from streams_py.adapters.confluent.bulk.bulk_writer import BulkWriter
from streams_py.adapters.confluent.bulk.log_admin import LogAdmin
from streams_py.errors import ConfigError, StreamsError
from streams_py.spark.options import WriterOptions
from streams_py.spark.version import check_same_version, library_version

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["RangeCommit", "TopicWriter", "check_columns", "log_commit"]

_log = logging.getLogger(__name__)

_CLIENT_ID: Final = "streams-kafka-writer"
_REQUIRED: Final = ("topic", "partition", "value")
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


def check_columns(schema: StructType) -> None:
    """ConfigError when rows of this schema cannot be written."""
    found = {column.name: column.dataType.simpleString() for column in schema.fields}
    missing = [name for name in _REQUIRED if name not in found]
    if missing:
        remedy = "; compute it with streams_py.spark.partitioning" if missing == ["partition"] else ""
        raise ConfigError(f"column {missing[0]} is missing{remedy}", key=missing[0])
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
        writer = BulkWriter(kafka, bulk_producer_settings(kafka, client_id=_CLIENT_ID))
        try:
            counts: dict[str, int] = {}
            records = 0
            for batch in batches:
                _write_batch(writer, batch, counts, admin)
                records += batch.num_rows
            offsets = writer.finish(self._options.flush_timeout_ms)
        finally:
            writer.close()
            admin.close()
        return RangeCommit(records, {(tp.topic, tp.partition): span for tp, span in offsets.items()})


def _write_batch(writer: BulkWriter, batch: Any, counts: dict[str, int], admin: LogAdmin) -> None:
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    rows = batch.num_rows
    nothing = [None] * rows
    topics, partitions = columns["topic"].to_pylist(), columns["partition"].to_pylist()
    _check_places(topics, partitions, counts, admin)
    keys = columns["key"].to_pylist() if "key" in columns else nothing
    timestamps = columns["timestamp_ms"].to_pylist() if "timestamp_ms" in columns else nothing
    headers: Sequence[Any] = nothing
    if "headers" in columns and columns["headers"].null_count < rows:
        headers = [
            None if of is None else [(h["key"], h["value"]) for h in of] for of in columns["headers"].to_pylist()
        ]
    if "timestamp_ms" in columns:
        _check_timestamps(timestamps, topics)
    write = writer.write
    for topic, partition, value, key, timestamp_ms, of in zip(
        topics, partitions, columns["value"].to_pylist(), keys, timestamps, headers, strict=True
    ):
        write(topic, partition, value, key, timestamp_ms, of)
    writer.check()


def _check_places(
    topics: Sequence[str | None], partitions: Sequence[int | None], counts: dict[str, int], admin: LogAdmin
) -> None:
    """Every row names a partition that exists."""
    for topic, partition in set(zip(topics, partitions, strict=True)):
        if topic is None or partition is None:
            what = "topic" if topic is None else "partition"
            raise StreamsError(f"a row to be written has no {what}; compute it before, it is never chosen here")
        if topic not in counts:
            counts.update(admin.partition_counts())
            if topic not in counts:
                raise StreamsError(f"topic {topic} does not exist; create it before writing to it")
        if not 0 <= partition < counts[topic]:
            raise StreamsError(
                f"{TopicPartition(topic, partition)} does not exist: {topic} has {counts[topic]} partitions"
            )


def _check_timestamps(timestamps: Sequence[int | None], topics: Sequence[str | None]) -> None:
    for timestamp_ms, topic in zip(timestamps, topics, strict=True):
        if timestamp_ms is not None and timestamp_ms < 0:
            raise StreamsError(
                f"a row for {topic} has the timestamp {timestamp_ms}; it must be 0 or more milliseconds since 1970, or "
                "null for the time of writing"
            )
