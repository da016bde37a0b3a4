"""Kafka in Spark without a jar: the data source ``streams-kafka``, for batches and streams, reading and writing.

    from streams_py.spark.kafka.source import register

    register(spark)
    orders = (
        spark.read.format("streams-kafka")
        .option("kafka.bootstrap.servers", "localhost:9092")
        .option("topics", "orders")
        .load()
    )

Rows have the columns of :data:`SCHEMA`. ``load`` fixes the offsets and the ids of the topics for a DataFrame. All
queries of the DataFrame read these offsets, or fail. Each range of a partition becomes one Spark partition. It is read
in offset order, without a shuffle, in memory that does not depend on its length. By default, only committed records are
read, up to the last stable offset.

Objects of these classes contain only plain text and numbers, because Spark pickles them and may run each method in
another process. Each process creates its clients and resolves secrets when it needs them, see
:mod:`streams_py.spark.kafka.options`. Parameter names follow :class:`pyspark.sql.datasource.DataSource`, because Spark
calls methods by keyword.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent.bulk.bulk_settings import bulk_consumer_settings
from streams_py.adapters.confluent.bulk.log_admin import LogAdmin
from streams_py.adapters.confluent.bulk.range_reader import ReadLimits, read_range
from streams_py.adapters.confluent.bulk.same_topic import believed
from streams_py.errors import BrokerUnavailableError, ConfigError, StreamsError
from streams_py.spark.columns import SCHEMA, record_batch
from streams_py.spark.kafka.options import ReaderOptions, reader_options, writer_options
from streams_py.spark.kafka.planning import RangePlan, log_admin, plan_of, same_topic
from streams_py.spark.kafka.pushdown import EVERYTHING, Bounds, bounds_of
from streams_py.spark.kafka.ranges import OffsetRange, clipped, partitions_of, positions, split
from streams_py.spark.kafka.stream_offsets import (
    StreamOffsets,
    check_same_topics,
    check_still_there,
    firsts_in,
    ids_in,
    limited,
    offsets_in,
    stream_key,
    stream_offsets,
    stream_partition,
)
from streams_py.spark.kafka.visible_rows import first_rows
from streams_py.spark.kafka.writer import RangeCommit, TopicWriter, check_columns, log_commit
from streams_py.spark.rare_collections import rare_collections
from streams_py.spark.redelivered import redelivered_counter
from streams_py.spark.version import check_same_version, library_version

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import WriterCommitMessage
    from pyspark.sql.types import StructType

__all__ = ["SCHEMA", "StreamsKafkaSource", "register"]

_CLIENT_ID: Final = "streams-kafka"
_PLANNER: Final = f"{_CLIENT_ID}-planner"
_PUSHDOWN: Final = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> None:
    """Register the data source with a session, for ``spark.read.format("streams-kafka")``. May be called again.

    This enables the session's setting ``spark.sql.python.filterPushdown.enabled``. Without it, Spark refuses data
    sources that use filters, as this one does with ``push.filters``.
    """
    spark.conf.set(_PUSHDOWN, "true")
    # Spark pickles the class for its workers, so the accumulator in the class reaches them.
    counter = redelivered_counter(spark)
    spark.dataSource.register(type("_CountingSource", (StreamsKafkaSource,), {"_redelivered": counter}))


class StreamsKafkaSource(DataSource):
    """The data source ``streams-kafka``. :mod:`streams_py.spark.kafka.options` has its options.

    Spark creates an object of this class in ``load``, calls ``schema``, and uses copies of the object for every query
    of the DataFrame. So ``schema`` plans the ranges. If each query planned them, queries would have different ends.
    """

    _planned: RangePlan | None = None
    _redelivered: Any = None
    """Accumulator of :mod:`streams_py.spark.redelivered`."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format``."""
        return "streams-kafka"

    def schema(self) -> str:
        """Return the schema, see :mod:`streams_py.spark.columns`. Also plans the ranges of a batch."""
        self._planned = self._plan()
        return SCHEMA

    def _plan(self) -> RangePlan | None:
        """Plan the ranges of a batch; None for options that a batch does not accept.

        Spark has not yet said whether it needs a batch, a stream or a writer. Each of them checks its options later.
        """
        try:
            options = reader_options(self.options, streaming=False)
            with closing(log_admin(options, _PLANNER)) as admin:
                return plan_of(options, admin)
        except BrokerUnavailableError:
            raise
        except StreamsError:
            return None

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch."""
        options = reader_options(self.options, streaming=False)
        reader = _FilteredReader if options.push_filters else _BatchReader
        return reader(options, self._planned, self._redelivered)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # PySpark's name
        """Return the reader of a stream."""
        return _StreamReader(reader_options(self.options, streaming=True), self._redelivered)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return the writer of a batch. Only ``mode("append")`` is supported."""
        if overwrite:
            raise ConfigError("a topic can only be appended to: write with mode('append')", key="mode")
        options = writer_options(self.options)
        check_columns(schema, options)
        return _Writer(TopicWriter(options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802  # as above
        """Return the writer of a stream. Only the output mode ``append`` is supported."""
        if overwrite:
            raise ConfigError("a topic can only be appended to: use outputMode('append')", key="outputMode")
        options = writer_options(self.options)
        check_columns(schema, options)
        return _StreamWriter(TopicWriter(options))


# -- reading -----------------------------------------------------------------------------------------------------------


@dataclass
class _RangePartition(InputPartition):
    """A range, as an input partition of Spark."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str | None = None
    leader_epoch: int | None = None


class _RangeReader:
    """Reads one range, on a worker. Base class of batch and stream.

    If the topic is not the planned one, it raises an error before it returns records.
    """

    def __init__(self, options: ReaderOptions, redelivered: Any = None) -> None:
        self._options = options
        self._redelivered = redelivered
        self._version = library_version()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a range in Arrow batches."""
        check_same_version(self._version)
        if not isinstance(partition, _RangePartition):
            return  # Spark passes a placeholder if the plan has no ranges
        options = self._options
        settings = bulk_consumer_settings(
            options.resolved(), client_id=f"{_CLIENT_ID}-reader", read_committed=options.read_committed
        )
        limits = ReadLimits(
            options.batch_records, options.batch_bytes, options.poll_timeout_ms, skip_gone=options.skip_gone
        )
        where = partition.topic, partition.partition
        same = same_topic(options, partition.topic, partition.topic_id, f"{_CLIENT_ID}-reader")
        with rare_collections(), same:
            for columns in read_range(
                settings,
                *where,
                partition.start,
                partition.end,
                limits,
                leader_epoch=partition.leader_epoch,
                on_redelivered=None if self._redelivered is None else self._redelivered.add,
            ):
                same.check_now()
                yield record_batch(*where, columns)
            same.check_now()  # also without records: another topic may lack the records of the planned one


def _partitions(plan: RangePlan) -> list[InputPartition]:
    return [
        _RangePartition(
            *found,
            plan.topic_ids.get(found.topic),
            plan.leader_epochs.get(TopicPartition(found.topic, found.partition)),
        )
        for found in plan.ranges
    ]


class _BatchReader(_RangeReader, DataSourceReader):
    """The reader of a batch. ``planned`` is the plan of ``load``; None if ``load`` could not make one."""

    def __init__(self, options: ReaderOptions, planned: RangePlan | None = None, redelivered: Any = None) -> None:
        super().__init__(options, redelivered)
        self._planned = planned
        self._bounds: Bounds = EVERYTHING

    def partitions(self) -> Sequence[InputPartition]:
        """Return a Spark partition for each range of the plan, or several if ranges are to be split."""
        with closing(log_admin(self._options, _PLANNER)) as admin:
            planned = plan_of(self._options, admin) if self._planned is None else self._planned
            ranges = split(clipped(planned.ranges, self._bounds, admin), self._options)
            return _partitions(planned._replace(ranges=ranges))


class _FilteredReader(_BatchReader):
    """A reader that uses filters. Used only with ``push.filters``.

    Spark saves its plan in the DataFrame and not in the query. So later queries, and other branches of the same query,
    also read only the ranges that the first filter leaves.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  # PySpark's name
        """Use filters to skip ranges without matching records. Returns all filters, so Spark applies them, too."""
        self._bounds = bounds_of(filters)
        return filters


class _StreamReader(_RangeReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of a stream. :mod:`streams_py.spark.kafka.stream_offsets` describes its offsets.

    Partitions that are added later are read from their first offset.
    """

    def __init__(self, options: ReaderOptions, redelivered: Any = None) -> None:
        super().__init__(options, redelivered)
        self._admin: LogAdmin | None = None
        self._target: dict[str, int] | None = None
        self._is_checked = False

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_admin": None}

    def initialOffset(self) -> StreamOffsets:  # noqa: N802  # PySpark's name, as all below
        """Return the offset of ``starting`` for every existing partition."""
        return believed(self._first, self._live())

    def _first(self) -> StreamOffsets:
        admin = self._live()
        partitions = partitions_of(self._options, admin)
        ids = admin.topic_ids({tp.topic for tp in partitions})
        found = positions(
            self._options.starting, partitions, admin, read_committed=self._options.read_committed, option="starting"
        )
        return stream_offsets({stream_key(tp): offset for tp, offset in found.items()}, ids)

    def latestOffset(self, start: StreamOffsets, limit: ReadLimit) -> StreamOffsets:  # noqa: N802
        """Return the end of the next micro-batch.

        Raises:
            StreamsError: a topic is not the one that the query has read before.
        """
        latest = self._latest(start)
        before, ends = offsets_in(start), offsets_in(latest)
        if self._target is not None:  # partitions that were added later are for the next run
            ends = {key: end for key, end in ends.items() if key in before or key in self._target}
        firsts = {**firsts_in(start), **self._first_offsets(ends.keys() - before.keys())}
        begins = {key: before.get(key, firsts.get(key, 0)) for key in ends}
        if self._target is not None:
            ends = {key: min(end, self._target.get(key, 0)) for key, end in ends.items()}
        ends = {key: max(begins[key], end) for key, end in ends.items()}
        if isinstance(limit, ReadMaxRows):
            if self._options.skip_gone:  # deleted offsets do not count as rows
                left = self._first_offsets(key for key, end in ends.items() if begins[key] < end)
                begins |= {key: max(begins[key], min(first, ends[key])) for key, first in left.items()}
            begins = first_rows(self._options, begins, ends, limit.max_rows)
            ends = limited(begins, ends, limit.max_rows)
        return stream_offsets(ends, ids_in(latest), firsts)

    def _first_offsets(self, keys: Iterable[str]) -> dict[str, int]:
        """Return the current log start offsets of partitions."""
        found = self._live().log_starts([stream_partition(key) for key in keys])
        return {stream_key(tp): offset for tp, offset in found.items()}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of ``rows.per.trigger``."""
        rows = self._options.rows_per_trigger
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def reportLatestOffset(self) -> StreamOffsets | None:  # noqa: N802
        """Return end offsets for the query's progress, see :func:`streams_py.spark.kafka.progress.records_behind`."""
        return self._latest({})

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of the query: records that are written from now on are not read."""
        self._target = offsets_in(self._latest({}))

    def partitions(self, start: StreamOffsets, end: StreamOffsets) -> Sequence[InputPartition]:
        """Return a Spark partition for each Kafka partition with new offsets.

        After a restart, Spark may call this method first, with the offsets of a micro-batch that was planned before.
        """
        ids = ids_in(end)
        if not self._is_checked:
            admin = self._live()
            believed(lambda: check_same_topics(ids, admin.topic_ids(ids.keys())), admin)
            self._is_checked = True
        before, ends, firsts = offsets_in(start), offsets_in(end), firsts_in(end)
        ranges = [
            OffsetRange(*stream_partition(key), before.get(key, firsts.get(key, 0)), ends[key]) for key in sorted(ends)
        ]
        ranges = [found for found in ranges if found.start < found.end]
        epochs = self._live().leader_epochs([TopicPartition(of.topic, of.partition) for of in ranges])
        return _partitions(RangePlan(ranges, ids, epochs))

    def commit(self, end: StreamOffsets) -> None:
        """Do nothing: the checkpoint folder has the progress, and no offsets are committed to Kafka."""

    def stop(self) -> None:
        """Close the connection."""
        if self._admin is not None:
            self._admin.close()
            self._admin = None

    def _live(self) -> LogAdmin:
        if self._admin is None:
            self._admin = log_admin(self._options, _PLANNER)
        return self._admin

    def _latest(self, start: StreamOffsets) -> StreamOffsets:
        """Return the current end offsets. Raises StreamsError when topics differ from the topics of ``start``."""
        found = believed(lambda: self._look(start), self._live())
        self._is_checked = True
        return found

    def _look(self, start: StreamOffsets) -> StreamOffsets:
        admin, known, before = self._live(), ids_in(start), offsets_in(start)
        try:
            partitions = partitions_of(self._options, admin)
        except ConfigError:
            check_still_there(before, {})
            raise
        ids = admin.topic_ids({tp.topic for tp in partitions})
        check_same_topics(known, ids)
        found = dict(admin.log_ends(partitions, read_committed=self._options.read_committed))
        if self._options.read_committed:
            # A position after the last stable offset is in an open transaction, so its records are not yet readable.
            behind = [tp for tp in partitions if found[tp] < before.get(stream_key(tp), 0)]
            written = admin.log_ends(behind, read_committed=False)
            found |= {tp: min(before[stream_key(tp)], end) for tp, end in written.items()}
        ends = {stream_key(TopicPartition(*tp)): offset for tp, offset in found.items()}
        check_still_there(before, ends)
        return stream_offsets(ends, {**known, **ids})


# -- writing -----------------------------------------------------------------------------------------------------------


class _Writer(DataSourceArrowWriter):
    def __init__(self, topics: TopicWriter) -> None:
        self._topics = topics

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one Spark task. Raises an error when a record is not acknowledged."""
        return self._topics.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Log the result. Spark calls this after all tasks have written."""
        log_commit([message for message in messages if isinstance(message, RangeCommit)])


class _StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, topics: TopicWriter) -> None:
        self._topics = topics

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one Spark task of a micro-batch. A repeated task writes its records again."""
        return self._topics.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # PySpark's name
        """Log the result. Spark calls this after all tasks of the micro-batch have written."""
        log_commit([message for message in messages if isinstance(message, RangeCommit)])
