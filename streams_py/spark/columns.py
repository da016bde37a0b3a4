"""The columns of ``streams-kafka``: its schema and its Arrow batches.

=================  ===================================  ================================================================
column             type                                 meaning
=================  ===================================  ================================================================
``topic``          string
``partition``      int
``offset``         bigint                               gaps are normal: transactions, compaction
``timestamp_ms``   bigint                               as in the record, -1 for none; no time zone, nothing rounded
``timestamp_type`` int                                  0 create time, 1 log append time, -1 none
``key``            binary                               null is null, empty is empty
``value``          binary                               null is a tombstone
``headers``        array<struct<key, value>>            null without headers; order and repetitions are kept
=================  ===================================  ================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from streams_py.adapters.confluent.bulk.range_reader import Columns
from streams_py.ports import Headers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SPARK_HEADERS: Final = "array<struct<key: string, value: binary>>"
"""The type of headers in Spark's DDL. :data:`HEADERS` is the same for Arrow."""
SCHEMA: Final = (
    "topic string, partition int, offset bigint, timestamp_ms bigint, timestamp_type int, key binary, value binary, "
    f"headers {SPARK_HEADERS}"
)

_FIRST: Final = itemgetter(0)
_SECOND: Final = itemgetter(1)

HEADERS: Final[Any] = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

ARROW_SCHEMA: Final[Any] = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp_ms", pa.int64()),
        ("timestamp_type", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
    ]
)


def record_batch(topic: str, partition: int, columns: Columns) -> Any:
    """Return an Arrow batch of :data:`ARROW_SCHEMA` with records of one partition."""
    count = len(columns.offsets)
    kinds = np.fromiter(map(_FIRST, columns.timestamps), np.int32, count)
    times = np.fromiter(map(_SECOND, columns.timestamps), np.int64, count)
    return pa.RecordBatch.from_arrays(
        [
            pa.repeat(pa.scalar(topic, pa.string()), count),
            pa.repeat(pa.scalar(partition, pa.int32()), count),
            _offsets_column(columns.offsets),
            pa.array(np.where(kinds == 0, -1, times)),
            pa.array(kinds - 1, pa.int32()),
            pa.array(columns.keys, pa.binary()),
            pa.array(columns.values, pa.binary()),
            headers_column(columns.headers),
        ],
        schema=ARROW_SCHEMA,
    )


def _offsets_column(offsets: Sequence[int]) -> Any:
    """Return an Arrow array of ascending offsets; without gaps, from the first and the last one alone."""
    if offsets and offsets[-1] - offsets[0] == len(offsets) - 1:
        return pa.array(np.arange(offsets[0], offsets[-1] + 1, dtype=np.int64))
    return pa.array(offsets, pa.int64())


def headers_column(all_headers: Sequence[Headers | None]) -> Any:
    """Return an Arrow array of :data:`HEADERS`, with null for a record without headers."""
    if not any(all_headers):
        return pa.nulls(len(all_headers), HEADERS)
    return pa.array(
        [[{"key": key, "value": value} for key, value in headers] if headers else None for headers in all_headers],
        HEADERS,
    )


def with_headers_for_python(rows: DataFrame) -> DataFrame:
    """Replace null headers by an empty array, for rows that Spark sends to a worker.

    Spark asks Arrow after each row for the size of the batch. To compute it, Arrow scans all trailing nulls of a list
    column. With nulls, 10,000 rows took ten times as long as with empty arrays.
    """
    from pyspark.sql import functions as f

    return rows.withColumn("headers", f.coalesce("headers", f.array().cast(SPARK_HEADERS)))
