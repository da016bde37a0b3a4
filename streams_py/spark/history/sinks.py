"""Writes outputs to their topics exactly once. Each task has one writer, whose progress is committed.

The outputs of a task are a fixed sequence: they are in files before the first record is written to a topic. So a
repeated Spark task, on any machine, fences the earlier attempt, skips the records that it has committed, and continues.
A task of another run over the same input creates the same sequence and does the same. If its sequence differs, it is
refused.

All writers are announced before the first record. Afterwards, a writer that brokers do not know is one that they have
forgotten. See :mod:`streams_py.adapters.confluent.bulk.once_writer`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from streams_protocol.types import TaskId, TopicPartition
from streams_py.adapters.confluent.bulk.bulk_settings import bulk_admin_settings
from streams_py.adapters.confluent.bulk.log_admin import LogAdmin
from streams_py.adapters.confluent.bulk.once_writer import OnceWriter, known_position
from streams_py.adapters.confluent.bulk.sent_records import Sent
from streams_py.errors import StreamsError
from streams_py.spark.columns import with_headers_for_python
from streams_py.spark.failures import in_one_sentence
from streams_py.spark.jobs import quiet_jobs
from streams_py.spark.kafka.options import WriterOptions, for_writer, writer_options
from streams_py.spark.version import check_same_version, library_version

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from streams_py.history.plan import HistoryPlan
    from streams_py.spark.history.run import Results

_COLUMNS: Final = ("source", "topic", "partition", "value", "key", "timestamp_ms", "headers")
_WRITTEN: Final = "source bigint, written bigint, skipped bigint"
_TRANSACTION_RECORDS: Final = 100_000
_TRANSACTION_BYTES: Final = 64 << 20
_TASKS: Final = 1 << 32
_WRITERS_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class TaskWritten:
    """The number of records that one task has written, and that it has skipped because they were written before."""

    task: TaskId
    written: int
    skipped: int


def announce_sinks(
    results: Results, options: Mapping[str, str], id: str, place: str, known: Collection[str]
) -> list[str]:
    """Announce the writers of all outputs, except for the ``known`` writers.

    Returns all names. The caller must save them in the plan before it calls :func:`write_sinks`, which has the same
    other arguments.
    """
    plan = results.plan
    names = _names(plan, id)
    wanted = {
        names[stage.rank * _TASKS + summary.task]
        for stage in plan.stages
        for summary in results.summaries_of(stage)
        if summary.written.keys() & plan.sinks.keys()
    }
    announce_writers(options, sorted(wanted.difference(known)), place)
    return sorted(wanted.union(known))


def announce_writers(options: Mapping[str, str], names: Collection[str], place: str) -> None:
    """Announce writers by name. ``place``: see :func:`once_kernel`."""
    checked, beside = writer_options(for_writer(options)), TopicPartition(place, 0)
    kafka = checked.resolved()

    def announce(name: str) -> None:
        with closing(OnceWriter(kafka, name, beside, timeout_ms=checked.flush_timeout_ms)) as writer:
            writer.announce()

    _for_each(names, announce)


def check_writers(options: Mapping[str, str], names: Collection[str], place: str) -> None:
    """Raise StreamsError when brokers have forgotten the progress of an announced writer."""
    kafka, beside = writer_options(for_writer(options)).resolved(), TopicPartition(place, 0)

    def check(name: str) -> None:
        with closing(LogAdmin(bulk_admin_settings(kafka, client_id=name))) as admin:
            known_position(admin, name, beside)

    _for_each(names, check)


def _for_each(names: Collection[str], do: Callable[[str], None]) -> None:
    with ThreadPoolExecutor(_WRITERS_AT_ONCE) as several:
        for _ in several.map(do, names):
            pass


def _names(plan: HistoryPlan, id: str) -> dict[int, str]:
    """Return source -> name of its writer."""
    return {
        stage.rank * _TASKS + number: f"{plan.application_id}-backfill-{id}-{TaskId(stage.id, number)}"
        for stage in plan.stages
        for number in range(stage.tasks)
    }


def write_sinks(results: Results, options: Mapping[str, str], id: str, place: str) -> list[TaskWritten]:
    """Write all outputs. Readers of committed records see each record exactly once. Writers must be announced.

    Args:
        results: the results of a run.
        options: options of ``streams-kafka``. Options for reading are ignored.
        id: id of the plan. Records that a run with the same id has written are skipped.
        place: see :func:`once_kernel`.

    Raises:
        StreamsError: writing has failed. Committed records stay, and a later call can write the rest.
    """
    plan = results.plan
    checked = writer_options(for_writer(options))
    rows: DataFrame | None = None
    for found in results.sinks.values():
        rows = found if rows is None else rows.unionByName(found)
    if rows is None:
        return []
    ordered = rows.repartition("source").sortWithinPartitions("source", "topic", "seq").select(*_COLUMNS)
    ordered = with_headers_for_python(ordered)
    try:
        kernel = once_kernel(checked, _names(plan, id), place, library_version())
        with quiet_jobs(ordered.sparkSession):
            done = ordered.mapInArrow(kernel, _WRITTEN).collect()
    except Exception as error:
        raise in_one_sentence(error, f"the outputs of {plan.application_id} are not complete") from None
    ids = {stage.rank: stage.id for stage in plan.stages}
    return [
        TaskWritten(TaskId(ids[row.source // _TASKS], row.source % _TASKS), row.written, row.skipped)
        for row in sorted(done, key=lambda row: row.source)
    ]


def once_kernel(
    options: WriterOptions,
    names: Mapping[int, str],
    place: str,
    version: str,
    transaction_records: int = _TRANSACTION_RECORDS,
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return the function for ``mapInArrow``. Rows must be grouped by source, and in order.

    Args:
        options: options of the writer.
        names: source -> name of its writer.
        place: the topic for whose partition 0 writers commit their progress. It must be the same for all attempts. With
            the topics of its outputs, a writer whose input has changed might not find the progress of an earlier
            attempt.
        version: version of the library on the driver.
        transaction_records: largest number of records in a transaction.
    """

    def write(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        check_same_version(version)
        kafka, is_repeated = options.resolved(), _is_repeated()
        sequence: _Sequence | None = None
        done: list[tuple[int, int, int]] = []
        try:
            for batch in batches:
                for source, part in _by_source(batch):
                    if sequence is None or sequence.source != source:
                        if sequence is not None:
                            done.append(sequence.end())
                        beside = TopicPartition(place, 0)
                        writer = OnceWriter(kafka, names[source], beside, timeout_ms=options.flush_timeout_ms)
                        begun = _begun(writer, is_repeated=is_repeated)
                        sequence = _Sequence(source, names[source], writer, begun, transaction_records)
                    sequence.add(part)
            if sequence is not None:
                done.append(sequence.end())
        except BaseException:
            if sequence is not None:
                sequence.close()
            raise
        columns = zip(*done, strict=True) if done else ((), (), ())
        yield pa.RecordBatch.from_arrays(
            [pa.array(column, pa.int64()) for column in columns], names=["source", "written", "skipped"]
        )

    return write


def _is_repeated() -> bool:
    """Whether this is a repeated attempt of a Spark task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return context is not None and context.attemptNumber() > 0


def _begun(writer: OnceWriter, *, is_repeated: bool) -> tuple[int, str]:
    try:
        return writer.begin(is_repeated=is_repeated)
    except BaseException:
        writer.close()
        raise


def _by_source(batch: Any) -> Iterator[tuple[int, Any]]:
    import numpy as np

    sources = batch.column("source").to_numpy()
    bounds = [0, *(np.flatnonzero(np.diff(sources)) + 1).tolist(), len(sources)]
    for first, end in pairwise(bounds):
        if first < end:
            yield int(sources[first]), batch.slice(first, end - first)


def _records(rows: Any) -> Iterator[Sent]:
    """Iterate over the records of rows."""
    *columns, headers = (rows.column(name).to_pylist() for name in _COLUMNS[1:])
    named = [[(header["key"], header["value"]) for header in of] if of else None for of in headers]
    return zip(*columns, named, strict=True)


class _Sequence:
    """Writes the outputs of one task.

    Each commit includes a checksum over the topics, partitions, keys and timestamps of all records so far. With it, a
    later attempt checks that the records that it skips are the written ones. They differ if the input was compacted or
    is another one. Values are not part of the checksum, because functions may put the time of day into them.
    """

    def __init__(
        self, source: int, name: str, writer: OnceWriter, begun: tuple[int, str], transaction_records: int
    ) -> None:
        self.source = source
        self._name = name
        self._writer = writer
        self._records_max = transaction_records
        self._seen = self._sum = self._records = self._bytes = 0
        self._skipped, self._sum_of_skipped = begun

    def add(self, rows: Any) -> None:
        """Write rows, except for records that an earlier attempt has written."""
        write, skipped = self._writer.write, self._skipped
        if self._seen + rows.num_rows > skipped:
            self._writer.keep(partial(_records, rows.slice(max(0, skipped - self._seen))))
        for topic, partition, value, key, timestamp_ms, headers in _records(rows):
            self._sum = crc32(key or b"", crc32(f"{topic} {partition} {timestamp_ms} ".encode(), self._sum))
            self._seen += 1
            if self._seen <= skipped:
                if self._seen == skipped and self._sum_of_skipped not in ("", self._summed()):
                    raise self._is_another()
                continue
            write(topic, partition, value, key, timestamp_ms, headers)
            self._records += 1
            self._bytes += len(value or b"") + len(key or b"")
            if self._records >= self._records_max or self._bytes >= _TRANSACTION_BYTES:
                self._commit()

    def _summed(self) -> str:
        return f"{self._sum:08x}"

    def _commit(self) -> None:
        self._writer.commit(self._seen, self._summed())
        self._records = self._bytes = 0

    def end(self) -> tuple[int, int, int]:
        """Commit the remaining records.

        Returns:
            The source, the number of records written, and the number of records skipped.

        Raises:
            StreamsError: an earlier attempt has written more records than this sequence has.
        """
        if self._skipped > self._seen:
            raise self._is_another()
        if self._records:
            self._commit()
        self.close()
        return self.source, self._seen - self._skipped, self._skipped

    def _is_another(self) -> StreamsError:
        return StreamsError(
            f"the {self._skipped:,} records that an earlier attempt has written as {self._name} are not the first "
            "records of this attempt: the input has changed (compacted, deleted, or another folder); pass the original "
            "input, or start again with another plan, which writes everything"
        )

    def close(self) -> None:
        self._writer.close()
