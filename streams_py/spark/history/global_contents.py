"""Sends the rows of global tables to the workers, as a broadcast: every worker needs all rows.

The driver collects only the last record of each key. Workers fill the same store as a live application from these
records. The same read also counts the records of the topic, so that a second client can check the count.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from streams_protocol.types import TopicPartition
from streams_py.errors import StreamsError
from streams_py.history.records import HistoryRecord
from streams_py.spark.failures import in_one_sentence

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CREATE_TIME: Final = 1
_ROWS_AT_ONCE: Final = 10_000
_BYTES_AT_ONCE: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class TableRows:
    """The records of one global table. ``given.value`` has the bytes of :func:`packed`."""

    topic: str
    given: Any

    def __call__(self) -> Iterator[list[HistoryRecord]]:
        """Yield the records in lists."""
        for batch in pa.ipc.open_stream(pa.py_buffer(self.given.value)):
            keys, values, timestamps = (batch.column(at).to_pylist() for at in range(3))
            stamps = zip(repeat(_CREATE_TIME), timestamps, strict=False)
            rows = zip(
                repeat(self.topic), repeat(0), range(len(keys)), keys, values, stamps, repeat(None), strict=False
            )
            yield [HistoryRecord(row) for row in rows]


def packed(rows: Any) -> bytes:
    """Return an Arrow table with ``key``, ``value`` and ``timestamp_ms`` as bytes."""
    size = max(1, min(_ROWS_AT_ONCE, _BYTES_AT_ONCE * rows.num_rows // max(1, rows.nbytes)))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as stream:
        stream.write_table(rows, max_chunksize=size)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def newest_and_counts(rows: DataFrame) -> tuple[Any, dict[int, int]]:
    """Return the last record of each key as an Arrow table, and the number of rows by partition, from one read."""
    from pyspark.sql import functions as f

    last = f.max_by(f.struct("value", "timestamp_ms", "offset"), "offset").alias("last")
    by_key = rows.groupBy("task", "key").agg(last, f.count("*").alias("rows")).persist()
    try:
        newest = f.max_by("last", f.struct("task", "last.offset")).alias("last")
        kept = by_key.where(f.col("key").isNotNull()).groupBy("key").agg(newest)
        kept = kept.select("key", "last.value", "last.timestamp_ms").where(f.col("value").isNotNull())
        table = kept.toArrow()
        counts = by_key.groupBy("task").agg(f.sum("rows").alias("rows")).collect()
    finally:
        by_key.unpersist()
    return table, {int(row["task"]): int(row["rows"]) for row in counts}


@contextlib.contextmanager
def sent_to_workers(
    spark: SparkSession, contents: Mapping[str, DataFrame], read: dict[TopicPartition, int]
) -> Iterator[dict[str, TableRows]]:
    """Broadcast the rows of each topic until the end of the block.

    Args:
        spark: the session.
        contents: topic -> its rows.
        read: receives the number of rows of each partition.

    Raises:
        StreamsError: a topic cannot be read.
    """
    sent: dict[str, TableRows] = {}
    try:
        for topic, rows in contents.items():
            try:
                newest, counts = newest_and_counts(rows)
                sent[topic] = TableRows(topic, spark.sparkContext.broadcast(packed(newest)))
                read.update({TopicPartition(topic, task): count for task, count in counts.items()})
            except StreamsError:
                raise
            except Exception as error:
                raise in_one_sentence(error, f"the global table of topic {topic} cannot be read") from None
        yield sent
    finally:
        for found in sent.values():
            with contextlib.suppress(Exception):  # the JVM has stopped, so the broadcast is gone
                found.given.destroy()
