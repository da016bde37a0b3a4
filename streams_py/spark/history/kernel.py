"""The kernel: Arrow batches of a stage's input in, batches of everything its tasks write out.

A plain function over iterators; Spark calls it in its workers, a test can call it anywhere. Batches come sorted by
task, and within a task in the order in which records are to be taken. Nothing is held but the batch at hand.

Input has the columns ``task, topic, offset, timestamp_ms, key, value, headers``. Output:

================  ============  ========================================================================================
column            type
================  ============  ========================================================================================
``channel``       tinyint       RECORD (of a sink, or on its way to a later stage), STATE (of a fold), or SUMMARY
``topic``         string        full name
``partition``     int           where it goes
``timestamp_ms``  bigint        -1: the time of writing
``key, value``    binary        of a SUMMARY: JSON in ``value``
``headers``       array         null for none
``source``        bigint        who wrote it: rank of the stage and number of the task
``seq``           bigint        running number of this task's records for this topic
``pmax``          bigint        largest timestamp of those so far in the same partition: sorting by (pmax, source, seq)
                                merges what many tasks write into it as a consumer does that takes the smallest head
                                timestamp next
================  ============  ========================================================================================
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from itertools import islice, pairwise, repeat
from typing import Any, Final

import numpy as np
import pyarrow as pa

from streams_py.history.fold import FoldEntry
from streams_py.history.records import ANY_PARTITION, Columns, HistoryRecord
from streams_py.history.task import HistoryTask, StageOrders, StageTopology
from streams_py.spark.columns import HEADERS
from streams_py.spark.partitioning import partition_column
from streams_py.spark.rare_collections import rare_collections
from streams_py.topology.partitioning import partition_for

__all__ = ["OUTPUT", "RECORD", "STATE", "SUMMARY", "stage_kernel"]

RECORD: Final = 0
STATE: Final = 1
SUMMARY: Final = 2

OUTPUT: Final = (
    "channel tinyint, topic string, partition int, timestamp_ms bigint, key binary, value binary, "
    "headers array<struct<key: string, value: binary>>, source bigint, seq bigint, pmax bigint"
)
_OUTPUT_ARROW: Final[Any] = pa.schema(
    [
        ("channel", pa.int8()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("timestamp_ms", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
        ("source", pa.int64()),
        ("seq", pa.int64()),
        ("pmax", pa.int64()),
    ]
)
_RANK: Final = 1 << 32
_BATCH_ROWS: Final = 10_000
_BATCH_BYTES: Final = 16 << 20
_RECORDS_AT_ONCE: Final = 2_000
_BYTES_AT_ONCE: Final = 4 << 20
"""So much of the input at once; less than a batch, because one record may make many."""
_CREATE_TIME: Final = 1


def stage_kernel(orders: StageOrders) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The function for ``mapInArrow``."""

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        with rare_collections():
            yield from _Run(orders).over(batches)

    return run


class _Run:
    """The tasks of one Spark partition, one after the other."""

    def __init__(self, orders: StageOrders) -> None:
        self._orders = orders
        self._topology: StageTopology | None = None
        self._task: HistoryTask | None = None
        self._outputs: _Outputs | None = None
        self._number = -1

    def over(self, batches: Iterator[Any]) -> Iterator[Any]:
        try:
            for batch in batches:
                yield from self._batch(batch)
            yield from self._finish()
        except BaseException:
            if self._task is not None:
                self._task.abandon()
            raise

    def _batch(self, batch: Any) -> Iterator[Any]:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        tasks = columns["task"].to_numpy()
        topics = columns["topic"].dictionary_encode()
        codes, names = topics.indices.to_numpy(), topics.dictionary.to_pylist()
        changes = np.flatnonzero((np.diff(tasks) != 0) | (np.diff(codes) != 0)) + 1
        bounds = [0, *changes.tolist(), batch.num_rows]
        contents = zip(
            columns["offset"].to_pylist(),
            columns["key"].to_pylist(),
            columns["value"].to_pylist(),
            zip(repeat(_CREATE_TIME), columns["timestamp_ms"].to_pylist(), strict=False),
            _headers_of(columns["headers"]),
            strict=True,
        )
        at_once = max(1, min(_RECORDS_AT_ONCE, _BYTES_AT_ONCE * batch.num_rows // max(1, batch.nbytes)))
        for first, end in pairwise(bounds):
            if first == end:
                continue
            number, topic = int(tasks[first]), names[codes[first]]
            if number != self._number:
                yield from self._finish()
                self._begin(number)
            yield from self._feed(topic, end - first, contents, at_once)

    def _begin(self, number: int) -> None:
        if self._topology is None:
            self._topology = self._orders.load()
        stage = self._orders.stage
        self._task = HistoryTask(self._topology, number)
        self._outputs = _Outputs(self._task, stage.rank * _RANK + number, dict(stage.outputs))
        self._number = number

    def _feed(self, topic: str, count: int, contents: Iterator[tuple[Any, ...]], at_once: int) -> Iterator[Any]:
        task, outputs = self._task, self._outputs
        assert task is not None
        assert outputs is not None
        internal = topic in self._orders.stage.upstream
        number = self._number
        while count:
            taken = min(count, at_once)
            given, *rest = zip(*islice(contents, taken), strict=True)
            offsets: Iterable[int] = given
            if internal:
                first = task.running_number(topic, taken)
                offsets = range(first, first + taken)
            records = zip(repeat(topic), repeat(number), offsets, *rest, strict=False)
            task.feed(topic, [HistoryRecord(record) for record in records])
            count -= taken
            yield from outputs.full()

    def _finish(self) -> Iterator[Any]:
        task, outputs = self._task, self._outputs
        if task is None or outputs is None:
            return
        summary = task.finish()
        yield from outputs.rest()
        for topic in task.folds:
            yield from outputs.state(topic, task.fold_of(topic))
        yield outputs.summary(json.dumps(asdict(summary)).encode())
        self._task = self._outputs = None
        task.close()


class _Outputs:
    """Columns of one task on their way to Arrow."""

    def __init__(self, task: HistoryTask, source: int, counts: dict[str, int]) -> None:
        self._task = task
        self._source = source
        self._number = source % _RANK
        self._counts = counts
        self._written: dict[str, int] = {}
        self._latest: dict[tuple[str, int], int] = {}

    def full(self) -> Iterator[Any]:
        """Batches of topics of which there is enough for one."""
        for topic, columns in self._task.columns.items():
            if len(columns) >= _BATCH_ROWS or sum(map(len, filter(None, columns.values))) >= _BATCH_BYTES:
                yield self._batch(topic, columns)

    def rest(self) -> Iterator[Any]:
        """Batches of all topics."""
        for topic, columns in self._task.columns.items():
            if len(columns):
                yield self._batch(topic, columns)

    def _batch(self, topic: str, columns: Columns) -> Any:
        count = len(columns)
        keys = pa.array(columns.keys, pa.binary())
        timestamps = np.array(columns.timestamps, np.int64)
        first = self._written.get(topic, 0)
        self._written[topic] = first + count
        partitions = pa.array(self._partitions(topic, columns, keys), pa.int32())
        batch = self._made(
            RECORD,
            topic,
            partitions,
            timestamps,
            keys,
            columns.values,
            columns.headers,
            np.arange(first, first + count),
            self._largest_so_far(topic, partitions.to_numpy(), timestamps),
        )
        columns.clear()
        return batch

    def _largest_so_far(self, topic: str, partitions: Any, timestamps: Any) -> Any:
        by_partition = np.argsort(partitions, kind="stable")
        found = np.empty(len(timestamps), np.int64)
        for rows in np.split(by_partition, np.flatnonzero(np.diff(partitions[by_partition])) + 1):
            at = topic, int(partitions[rows[0]])
            largest = np.maximum.accumulate(timestamps[rows])
            found[rows] = np.maximum(largest, self._latest.get(at, -1))
            self._latest[at] = int(found[rows[-1]])
        return found

    def _partitions(self, topic: str, columns: Columns, keys: Any) -> Any:
        count = self._counts[topic]
        given = np.array(columns.partitions, np.int32)
        if not keys.null_count and (given == ANY_PARTITION).all():
            return partition_column(keys, count)
        for at, partition in enumerate(columns.partitions):
            if partition == ANY_PARTITION:
                key = columns.keys[at]
                # Live, records without a key go anywhere. Here they stay beside the task that makes them.
                given[at] = self._number % count if key is None else partition_for(key, count)
        return given

    def state(self, topic: str, entries: Iterator[FoldEntry]) -> Iterator[Any]:
        """Batches of a changelog's fold."""
        at = 0
        for some in _pieces(entries):
            keys, values, timestamps, headers = zip(*some, strict=True)
            yield self._made(
                STATE,
                topic,
                pa.repeat(pa.scalar(self._number, pa.int32()), len(some)),
                np.array(timestamps, np.int64),
                pa.array(keys, pa.binary()),
                values,
                headers,
                np.arange(at, at + len(some)),
                np.full(len(some), -1),
            )
            at += len(some)

    def summary(self, text: bytes) -> Any:
        """The row that says what the task did."""
        nothing = np.array([0])
        keys = pa.nulls(1, pa.binary())
        partition = pa.array([self._number], pa.int32())
        return self._made(SUMMARY, "", partition, nothing, keys, [text], [None], nothing, nothing)

    def _made(
        self,
        channel: int,
        topic: str,
        partitions: Any,
        timestamps: Any,
        keys: Any,
        values: Any,
        headers: Any,
        seq: Any,
        pmax: Any,
    ) -> Any:
        count = len(keys)
        return pa.RecordBatch.from_arrays(
            [
                pa.repeat(pa.scalar(channel, pa.int8()), count),
                pa.repeat(pa.scalar(topic, pa.string()), count),
                partitions,
                pa.array(timestamps, pa.int64()),
                keys,
                pa.array(values, pa.binary()),
                _headers_column(headers),
                pa.repeat(pa.scalar(self._source, pa.int64()), count),
                pa.array(seq, pa.int64()),
                pa.array(pmax, pa.int64()),
            ],
            schema=_OUTPUT_ARROW,
        )


def _pieces(entries: Iterator[FoldEntry]) -> Iterator[list[FoldEntry]]:
    piece: list[FoldEntry] = []
    size = 0
    for entry in entries:
        piece.append(entry)
        size += len(entry.value)
        if len(piece) >= _BATCH_ROWS or size >= _BATCH_BYTES:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


def _headers_of(column: Any) -> Any:
    if column.null_count == len(column):
        return repeat(None, len(column))
    return [
        [(header["key"], header["value"]) for header in headers] if headers else None for headers in column.to_pylist()
    ]


def _headers_column(all_headers: Any) -> Any:
    if not any(all_headers):
        return pa.nulls(len(all_headers), HEADERS)
    return pa.array(
        [[{"key": key, "value": value} for key, value in headers] if headers else None for headers in all_headers],
        HEADERS,
    )
