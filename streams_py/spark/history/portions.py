"""Readers: they create portions of records for the tasks of a stage from the rows that Spark passes to a worker.

* :class:`OfBlocks`: a row is a block (:mod:`~streams_py.spark.history.blocks`) of any topic of the stage.
* :class:`OfRanges`: a row is a task, and the worker reads the task's records from Kafka.

Readers are sent to workers. They contain only names and numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, repeat
from typing import Any, Final, NamedTuple, Protocol
from zlib import crc32

import numpy as np
import pyarrow as pa

from streams_py.adapters.confluent.bulk.bulk_settings import bulk_consumer_settings
from streams_py.adapters.confluent.bulk.range_reader import ReadLimits, read_messages
from streams_py.history.readable import IsReadable, readable_in
from streams_py.history.records import HistoryRecord
from streams_py.history.task import StageOrders
from streams_py.ports import RawRecord
from streams_py.ports.record_headers import headers_of_all
from streams_py.spark.columns import headers_column
from streams_py.spark.history.blocks import INPUT, RECORD, Blocks, records_batch
from streams_py.spark.history.order import each_once, in_order
from streams_py.spark.history.progress import RecordCounter, StageReports
from streams_py.spark.kafka.options import ReaderOptions
from streams_py.spark.kafka.planning import same_topic
from streams_py.spark.version import check_same_version, library_version

_RECORDS_AT_ONCE: Final = 2_000
_BYTES_AT_ONCE: Final = 4 << 20
"""Size of a portion. It is smaller than an output batch, because a record may create several output records."""
_CREATE_TIME: Final = 1
_PART_BITS: Final = 31
_SAME_TOPIC_EVERY_MS: Final = 500
"""Minimum time between two checks that the topic's id is unchanged while a range is read, in ms."""
_CLIENT_ID: Final = "streams-history-reader"


class Portion(NamedTuple):
    """The next records of a task, all of one topic."""

    task: int
    topic: str
    records: Sequence[RawRecord]


class Reader(Protocol):
    """A function that creates portions from Arrow batches. The portions of a task are consecutive."""

    def __call__(self, batches: Iterable[Any], /) -> Iterator[Portion]: ...


@dataclass(frozen=True, slots=True)
class OfBlocks:
    """Reads blocks.

    Records of earlier stages do not have offsets, so they are numbered by topic. ``by_offset``: the task has one topic,
    which is an input, and its records are sorted by offset.
    """

    by_offset: bool = False

    def __call__(self, batches: Iterable[Any]) -> Iterator[Portion]:
        taken: dict[tuple[int, str], int] = {}
        ordered = in_order(batches, by_offset=self.by_offset)
        for task, names, codes, records in each_once(ordered) if self.by_offset else ordered:
            topics = sorted({topic for topic, _ in names})
            by_name = np.array([topics.index(topic) for topic, _ in names])
            were_there = {topic for topic, source in names if source == INPUT}
            first = 0
            for part in _slices(records):
                of_topic = by_name[codes[first : first + part.num_rows]]
                first += part.num_rows
                offsets = part.column("seq").to_numpy().copy()
                for number, topic in enumerate(topics):
                    if topic not in were_there:
                        counted = np.flatnonzero(of_topic == number)
                        start = taken.get((task, topic), 0)
                        taken[task, topic] = start + len(counted)
                        offsets[counted] = np.arange(start, start + len(counted))
                named = [topics[number] for number in of_topic.tolist()]
                made = _records(named, task, offsets.tolist(), part)
                bounds = [0, *(np.flatnonzero(np.diff(of_topic)) + 1).tolist(), len(made)]
                for low, high in pairwise(bounds):
                    yield Portion(task, named[low], made[low:high])


@dataclass(frozen=True, slots=True)
class OfRanges:
    """Reads ranges from Kafka. A row is an index into ``tasks``.

    Attributes:
        topic: the topic.
        tasks: numbers of the tasks.
        ranges: task -> first offset and end offset.
        options: options of the reader.
        since_ms: if given, only records with this timestamp or a later one are read.
        until_ms: if given, only records with an earlier timestamp are read.
        topic_id: id of the topic to which the offsets belong, if the cluster has ids.
        leader_epochs: task -> epoch of its partition's leader when the range was planned.
        redelivered: accumulator of :mod:`streams_py.spark.redelivered`.
        version: version of the library on the driver.
    """

    topic: str
    tasks: Sequence[int]
    ranges: Mapping[int, tuple[int, int]]
    options: ReaderOptions
    since_ms: int | None = None
    until_ms: int | None = None
    topic_id: str | None = None
    leader_epochs: Mapping[int, int] = field(default_factory=dict)
    redelivered: Any = None
    version: str = library_version()

    def __call__(self, batches: Iterable[Any]) -> Iterator[Portion]:
        check_same_version(self.version)
        options = self.options
        settings = bulk_consumer_settings(
            options.resolved(), client_id=_CLIENT_ID, read_committed=options.read_committed
        )
        limits = ReadLimits(_RECORDS_AT_ONCE, _BYTES_AT_ONCE, options.poll_timeout_ms, skip_gone=options.skip_gone)
        # Results count only when the Spark task has finished, so the check after the last record decides.
        same = same_topic(options, self.topic, self.topic_id, _CLIENT_ID, _SAME_TOPIC_EVERY_MS)
        with same:
            for batch in batches:
                for number in batch.column("id").to_pylist():
                    task = self.tasks[number]
                    for records in read_messages(
                        settings,
                        self.topic,
                        task,
                        *self.ranges[task],
                        limits,
                        leader_epoch=self.leader_epochs.get(task),
                        on_redelivered=None if self.redelivered is None else self.redelivered.add,
                    ):
                        same.check()
                        wanted = self._wanted(records)
                        if wanted:
                            yield Portion(task, self.topic, wanted)
                    same.check_now()

    def _wanted(self, records: Sequence[RawRecord]) -> Sequence[RawRecord]:
        since_ms, until_ms = self.since_ms, self.until_ms
        if since_ms is not None:
            records = [record for record in records if record.timestamp()[1] >= since_ms]
        if until_ms is not None:
            records = [record for record in records if record.timestamp()[1] < until_ms]
        return records


def blocks_of_rows(topic: str, batches: Iterable[Any], reports: StageReports | None = None) -> Iterator[Any]:
    """Yield block rows, by offset, of an input.

    Its columns are ``task, offset, timestamp_ms, key, value, headers``. Its rows may have any order.
    """
    blocks, counter = Blocks(RECORD, topic, INPUT), _reading(topic, reports)
    for batch in batches:
        if batch.num_rows:
            counter.add(batch.num_rows)
            tasks, offsets = batch.column("task").to_numpy(), batch.column("offset").to_numpy()
            if (offsets[:-1] > offsets[1:]).any():
                order = np.argsort(offsets, kind="stable")
                tasks, batch = tasks[order], batch.take(pa.array(order))
            columns = (batch.column(name) for name in ("offset", "timestamp_ms", "key", "value", "headers"))
            yield blocks.by_offset(tasks, records_batch(*columns))
    counter.end()


def _reading(topic: str, reports: StageReports | None) -> RecordCounter:
    """Return the counter for records that a Spark partition reads of a topic."""
    counter = RecordCounter(reports, is_processed=False)
    if reports is not None:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "this is a worker"
        counter.begin(crc32(topic.encode()) << _PART_BITS | context.partitionId())
    return counter


def timed_blocks(topic: str, orders: StageOrders, batches: Iterable[Any]) -> Iterator[Any]:
    """Convert block rows by offset to block rows by time."""
    blocks, is_readable = Blocks(RECORD, topic, INPUT), readable_in(orders, topic)
    for task, _, _, records in each_once(in_order(batches, by_offset=True)):
        for batch in records.to_batches():
            yield blocks.by_time(np.full(batch.num_rows, task, np.int32), batch, _unread(batch, is_readable))


def blocks_read_by(
    reader: OfRanges, orders: StageOrders, batches: Iterable[Any], reports: StageReports | None = None
) -> Iterator[Any]:
    """Yield block rows, by time, of an input that is read from Kafka."""
    counter = _reading(reader.topic, reports)
    blocks, is_readable = Blocks(RECORD, reader.topic, INPUT), readable_in(orders, reader.topic)
    for task, _, records in reader(batches):
        counter.add(len(records))
        columns = zip(*((r.offset(), r.timestamp()[1], r.key(), r.value()) for r in records), strict=True)
        seq, timestamps, keys, values = columns
        batch = records_batch(
            np.array(seq, np.int64),
            np.array(timestamps, np.int64),
            pa.array(keys, pa.binary()),
            pa.array(values, pa.binary()),
            headers_column(headers_of_all(records)),
        )
        yield blocks.by_time(np.full(len(seq), task, np.int32), batch, _unread(batch, is_readable))
    counter.end()


def _unread(records: Any, is_readable: IsReadable | None) -> Any:
    if is_readable is None:
        return None
    return [not is_readable(*both) for both in zip(*(records.column(name).to_pylist() for name in ("key", "value")))]


def _slices(batch: Any) -> Iterator[Any]:
    size = max(1, min(_RECORDS_AT_ONCE, _BYTES_AT_ONCE * batch.num_rows // max(1, batch.nbytes)))
    for first in range(0, batch.num_rows, size):
        yield batch.slice(first, size)


def _records(topics: Iterable[str], task: int, offsets: list[int], batch: Any) -> list[HistoryRecord]:
    records = zip(
        topics,
        repeat(task),
        offsets,
        batch.column("key").to_pylist(),
        batch.column("value").to_pylist(),
        zip(repeat(_CREATE_TIME), batch.column("timestamp_ms").to_pylist(), strict=False),
        _headers_of(batch.column("headers")),
        strict=False,
    )
    return [HistoryRecord(record) for record in records]


def _headers_of(column: Any) -> Iterable[Any]:
    if column.null_count == len(column):
        return repeat(None)
    return [
        [(header["key"], header["value"]) for header in headers] if headers else None for headers in column.to_pylist()
    ]
