"""Blocks of records: the rows that stages of a run exchange through Spark.

Millions of records go from stage to stage. As single rows, Spark would need more time to write, shuffle and sort them
than the tasks need to process them. So a row is a *block*: records of one source for one partition, in order, as the
bytes of an Arrow batch. Spark moves blocks, and only the workers read the records. The worker that creates a block
compresses it, because Spark copies it about six times.

================  ============  ========================================================================================
column            type
================  ============  ========================================================================================
``channel``       tinyint       RECORD (of a sink, or on its way to a later stage), STATE (of a fold), or SUMMARY
``topic``         string        full name
``partition``     int           partition of the records
``source``        bigint        their writer: rank of the stage and number of the task; INPUT for records of an input
``place``         bigint        sort position of the first record
``seq``           bigint        number of the first record among all records that the source has written for the topic
``records``       binary        the records (:data:`RECORDS`); in a SUMMARY: JSON
================  ============  ========================================================================================

:mod:`streams_py.spark.history.order` defines ``place``, and sorts the records of blocks.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from streams_py.spark.columns import HEADERS, SPARK_HEADERS

RECORD: Final = 0
STATE: Final = 1
SUMMARY: Final = 2
INPUT: Final = -1

BLOCKS: Final = "channel tinyint, topic string, partition int, source bigint, place bigint, seq bigint, records binary"
_BLOCKS_ARROW: Final[Any] = pa.schema(
    [
        ("channel", pa.int8()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("source", pa.int64()),
        ("place", pa.int64()),
        ("seq", pa.int64()),
        ("records", pa.binary()),
    ]
)
RECORDS: Final[Any] = pa.schema(
    [
        ("place", pa.int64()),
        ("seq", pa.int64()),
        ("timestamp_ms", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
    ]
)
"""Schema of the records in a block. ``place`` never decreases, ``seq`` increases.

``timestamp_ms`` -1 means the time of writing. ``headers`` is null for a record without headers.
"""

ROWS: Final = (
    "topic string, partition int, timestamp_ms bigint, key binary, value binary, "
    f"headers {SPARK_HEADERS}, source bigint, seq bigint"
)
_ROWS_ARROW: Final[Any] = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("timestamp_ms", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
        ("source", pa.int64()),
        ("seq", pa.int64()),
    ]
)
_CODEC: Final = pa.Codec("lz4_raw")
_SIZE: Final = struct.Struct(">i")
_BLOCK_BYTES: Final = 128 << 10
"""Size of a block. Larger blocks are not faster, and Spark reads hundreds of blocks at the same time."""


# -- making ------------------------------------------------------------------------------------------------------------


def records_batch(seq: Any, timestamps: Any, keys: Any, values: Any, headers: Any) -> Any:
    """Return a batch of :data:`RECORDS` with ``place`` = ``seq``, from NumPy or Arrow arrays.

    Pass None for ``headers`` if no record has headers.
    """
    count = len(seq)
    seqs = pa.array(seq, pa.int64())
    return pa.RecordBatch.from_arrays(
        [
            seqs,
            seqs,
            pa.array(timestamps, pa.int64()),
            keys,
            values,
            pa.nulls(count, HEADERS) if headers is None else headers,
        ],
        schema=RECORDS,
    )


class Blocks:
    """Creates block rows from the records that one source writes for one topic."""

    def __init__(self, channel: int, topic: str, source: int) -> None:
        self._channel, self._topic, self._source = channel, topic, source
        self._latest: dict[int, int] = {}

    def by_offset(self, partitions: Any, records: Any) -> Any:
        """Return block rows of records for ``partitions`` (a NumPy array). The place of a record is its ``seq``."""
        return self._made(*_by_partition(partitions, records))

    def by_time(self, partitions: Any, records: Any, unread: Any = None) -> Any:
        """Return block rows in which the place of a record is the largest timestamp so far in its partition.

        ``unread`` marks records that the task cannot read. Their timestamps do not count.
        """
        timestamps = records.column("timestamp_ms").to_numpy()
        if unread is not None:
            timestamps = np.where(unread, -1, timestamps)
        columns = [pa.array(timestamps), *records.columns[1:]]
        partitions, records, bounds = _by_partition(partitions, pa.RecordBatch.from_arrays(columns, schema=RECORDS))
        places = records.column("place").to_numpy().copy()
        for first, end in pairwise(bounds):
            partition, some = int(partitions[first]), places[first:end]
            np.maximum.accumulate(some, out=some)
            np.maximum(some, self._latest.get(partition, -1), out=some)
            self._latest[partition] = int(some[-1])
        columns = [pa.array(places), *records.columns[1:]]
        return self._made(partitions, pa.RecordBatch.from_arrays(columns, schema=RECORDS), bounds)

    def _made(self, partitions: Any, records: Any, bounds: list[int]) -> Any:
        size = max(1, _BLOCK_BYTES * records.num_rows // max(1, records.nbytes))
        return block_rows(
            self._channel,
            self._topic,
            self._source,
            [
                (int(partitions[at]), records.slice(at, min(size, end - at)))
                for first, end in pairwise(bounds)
                for at in range(first, end, size)
            ],
        )


def _by_partition(partitions: Any, records: Any) -> tuple[Any, Any, list[int]]:
    """Group partitions and records by partition. Also returns the bounds of the groups."""
    if (partitions[:-1] > partitions[1:]).any():
        order = np.argsort(partitions, kind="stable")
        partitions, records = partitions[order], records.take(pa.array(order))
    return partitions, records, [0, *(np.flatnonzero(np.diff(partitions)) + 1).tolist(), len(partitions)]


def block_rows(channel: int, topic: str, source: int, rows: list[tuple[int, Any]]) -> Any:
    """Return block rows for ``rows`` of (partition, records). For a SUMMARY, records are bytes and stay unchanged."""
    partitions, contents = zip(*rows, strict=True)
    count = len(rows)
    packed = [content if isinstance(content, bytes) else _packed(content) for content in contents]
    return pa.RecordBatch.from_arrays(
        [
            pa.repeat(pa.scalar(channel, pa.int8()), count),
            pa.repeat(pa.scalar(topic, pa.string()), count),
            pa.array(partitions, pa.int32()),
            pa.repeat(pa.scalar(source, pa.int64()), count),
            pa.array([_first("place", content) for content in contents], pa.int64()),
            pa.array([_first("seq", content) for content in contents], pa.int64()),
            pa.array(packed, pa.binary()),
        ],
        schema=_BLOCKS_ARROW,
    )


def _packed(records: Any) -> bytes:
    plain = records.serialize()
    compressed: bytes = _CODEC.compress(plain, asbytes=True)
    return _SIZE.pack(plain.size) + compressed


def _first(name: str, content: Any) -> int:
    return 0 if isinstance(content, bytes) else int(content.column(name)[0].as_py())


# -- reading -----------------------------------------------------------------------------------------------------------


def records_in(packed: Any) -> Any:
    """Return the batch of :data:`RECORDS` in a scalar of the column ``records``."""
    given = packed.as_buffer()
    (size,) = _SIZE.unpack_from(given)
    return pa.ipc.read_record_batch(_CODEC.decompress(given[_SIZE.size :], size), RECORDS)


def unpacked(batches: Iterable[Any]) -> Iterator[Any]:
    """Yield batches of :data:`ROWS` for block rows. For ``mapInArrow``."""
    for batch in batches:
        topics, partitions, sources = (batch.column(name) for name in ("topic", "partition", "source"))
        for at, packed in enumerate(batch.column("records")):
            records = records_in(packed)
            count = records.num_rows
            yield pa.RecordBatch.from_arrays(
                [
                    pa.repeat(pa.scalar(topics[at].as_py(), pa.string()), count),
                    pa.repeat(pa.scalar(partitions[at].as_py(), pa.int32()), count),
                    *(records.column(name) for name in ("timestamp_ms", "key", "value", "headers")),
                    pa.repeat(pa.scalar(sources[at].as_py(), pa.int64()), count),
                    records.column("seq"),
                ],
                schema=_ROWS_ARROW,
            )
