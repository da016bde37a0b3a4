"""The kernel of a stage: input records of its tasks in, blocks of all their outputs out.

It is a plain function over iterators. Spark calls it in workers, and tests can call it anywhere. Records come by task,
and within a task in the order of processing (:mod:`~streams_py.spark.history.portions`). Only the current portion is
held in memory. The outputs are rows of :data:`~streams_py.spark.history.blocks.BLOCKS`.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from streams_py.errors import StreamsError
from streams_py.history.fold import FoldEntry
from streams_py.history.global_tables import FrozenTables
from streams_py.history.records import Columns
from streams_py.history.task import HistoryTask, StageOrders, StageTopology
from streams_py.spark.columns import headers_column
from streams_py.spark.history.blocks import RECORD, STATE, SUMMARY, Blocks, block_rows, records_batch
from streams_py.spark.history.portions import Portion, Reader
from streams_py.spark.history.progress import RecordCounter, StageReports
from streams_py.spark.partitioning import partition_column
from streams_py.spark.rare_collections import rare_collections
from streams_py.topology.partitioning import partition_for

_RANK: Final = 1 << 32
_BATCH_ROWS: Final = 10_000
_PARTITION_ROWS: Final = 100
"""Records per partition of a batch for a topic with very many partitions, so that its blocks are not too small."""
_BATCH_BYTES: Final = 16 << 20


def stage_kernel(
    orders: StageOrders, reader: Reader, reports: StageReports | None = None
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return the function for ``mapInArrow``."""

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        with rare_collections():
            yield from _Run(orders, reports).over(reader(batches))

    return run


class _Run:
    """The run of all tasks of one Spark partition, one after the other."""

    def __init__(self, orders: StageOrders, reports: StageReports | None) -> None:
        self._orders = orders
        self._topology: StageTopology | None = None
        self._tables: FrozenTables | None = None
        self._task: HistoryTask | None = None
        self._outputs: _Outputs | None = None
        self._number = -1
        self._counter = RecordCounter(reports, is_processed=True)

    def over(self, portions: Iterator[Portion]) -> Iterator[Any]:
        try:
            for number, topic, records in portions:
                if number >= self._orders.stage.inputs[topic]:
                    raise StreamsError(
                        f"the input for topic {topic} has records of partition {number}, but its partition count is "
                        f"{self._orders.stage.inputs[topic]}; pass the real count (--partitions, or partitions=), or "
                        "none"
                    )
                if number != self._number:
                    yield from self._finish()
                    self._begin(number)
                task, outputs = self._task, self._outputs
                assert task is not None
                assert outputs is not None
                task.feed(topic, records)
                self._counter.add(len(records))
                yield from outputs.full()
            yield from self._finish()
        except BaseException as error:
            if self._task is not None:
                self._task.abandon()
            if isinstance(error, StreamsError):
                raise error.with_traceback(None)  # noqa: B904  # its cause is the error of user code
            raise
        finally:
            if self._tables is not None:
                self._tables.close()

    def _begin(self, number: int) -> None:
        if self._topology is None:
            self._topology = self._orders.load()
            self._tables = self._topology.fill_tables()
        stage = self._orders.stage
        self._task = HistoryTask(self._topology, number, None if self._tables is None else self._tables.stores)
        self._outputs = _Outputs(self._task, stage.rank * _RANK + number, dict(stage.outputs))
        self._number = number
        self._counter.begin(number)

    def _finish(self) -> Iterator[Any]:
        task, outputs = self._task, self._outputs
        if task is None or outputs is None:
            return
        self._counter.end()
        summary = task.finish()
        yield from outputs.rest()
        summary = replace(summary, written={topic: sorted(counts.items()) for topic, counts in outputs.written.items()})
        for topic, entries in task.states():
            yield from outputs.state(topic, entries)
        yield outputs.summary(json.dumps(asdict(summary)).encode())
        self._task = self._outputs = None
        task.close()


class _Outputs:
    """Converts the output columns of one task to Arrow blocks."""

    def __init__(self, task: HistoryTask, source: int, counts: dict[str, int]) -> None:
        self._task = task
        self._source = source
        self._number = source % _RANK
        self._counts = counts
        self.written: defaultdict[str, Counter[int]] = defaultdict(Counter)
        """Topic -> partition -> number of records."""
        self._blocks: dict[str, Blocks] = {}

    def full(self) -> Iterator[Any]:
        """Yield blocks of topics that have enough records."""
        for topic, columns in self._task.columns.items():
            enough = max(_BATCH_ROWS, _PARTITION_ROWS * self._counts[topic])
            if len(columns) >= enough or sum(map(len, filter(None, columns.values))) >= _BATCH_BYTES:
                yield self._made(topic, columns)

    def rest(self) -> Iterator[Any]:
        """Yield blocks of the remaining records of all topics."""
        for topic, columns in self._task.columns.items():
            if len(columns):
                yield self._made(topic, columns)

    def _made(self, topic: str, columns: Columns) -> Any:
        count = len(columns)
        written = self.written[topic]
        first = written.total()
        keys = pa.array(columns.keys, pa.binary())
        partitions = self._partitions(topic, columns, keys)
        written.update(dict(zip(*map(np.ndarray.tolist, np.unique(partitions, return_counts=True)), strict=True)))
        records = records_batch(
            np.arange(first, first + count),
            np.array(columns.timestamps, np.int64),
            keys,
            pa.array(columns.values, pa.binary()),
            headers_column([columns.headers.get(at) for at in range(count)]) if columns.headers else None,
        )
        columns.clear()
        blocks = self._blocks.get(topic)
        if blocks is None:
            blocks = self._blocks[topic] = Blocks(RECORD, topic, self._source)
        return blocks.by_time(partitions, records)

    def _partitions(self, topic: str, columns: Columns, keys: Any) -> Any:
        count, given = self._counts[topic], columns.partitions
        if not keys.null_count and not given:
            return partition_column(keys, count)
        # A live application writes records without a key to any partition. Here the task's number decides.
        beside = self._number % count
        found = (
            given[at] if at in given else beside if key is None else partition_for(key, count)
            for at, key in enumerate(columns.keys)
        )
        return np.fromiter(found, np.int32, len(columns))

    def state(self, topic: str, entries: Iterator[FoldEntry]) -> Iterator[Any]:
        """Yield blocks of a changelog's fold."""
        at, blocks = 0, Blocks(STATE, topic, self._source)
        for some in _pieces(entries):
            keys, values, timestamps, headers = zip(*some, strict=True)
            records = records_batch(
                np.arange(at, at + len(some)),
                np.array(timestamps, np.int64),
                pa.array(keys, pa.binary()),
                pa.array(values, pa.binary()),
                headers_column(headers),
            )
            at += len(some)
            yield blocks.by_offset(np.full(len(some), self._number, np.int32), records)

    def summary(self, text: bytes) -> Any:
        """Return the row with the task's summary."""
        return block_rows(SUMMARY, "", self._source, [(self._number, text)])


def _pieces(entries: Iterator[FoldEntry]) -> Iterator[list[FoldEntry]]:
    piece: list[FoldEntry] = []
    size = 0
    for entry in entries:
        piece.append(entry)
        size += len(entry.value or b"")
        if len(piece) >= _BATCH_ROWS or size >= _BATCH_BYTES:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece
