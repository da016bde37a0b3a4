"""Outputs to their topics, exactly once: each task is one writer, which knows how much of it is written.

The outputs of a task are a fixed sequence: they lie in files before the first one is written. So a Spark task that is
repeated, on whatever machine, takes the place of the attempt before, leaves out what that one has committed, and goes
on. So does a task of another run over the same input, which makes the same sequence; where it does not, it is refused.
Before the first record all writers are announced: after that one of which brokers know nothing is one that they have
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
from streams_py.spark.kafka.options import WriterOptions, for_writer, writer_options
from streams_py.spark.quiet_jobs import quiet_jobs
from streams_py.spark.version import check_same_version, library_version

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from streams_py.history.plan import HistoryPlan
    from streams_py.spark.history.run import Results

__all__ = ["TaskWritten", "announce_sinks", "announce_writers", "check_writers", "once_kernel", "write_sinks"]

_COLUMNS: Final = ("source", "topic", "partition", "value", "key", "timestamp_ms", "headers")
_WRITTEN: Final = "source bigint, written bigint, skipped bigint"
_TRANSACTION_RECORDS: Final = 100_000
_TRANSACTION_BYTES: Final = 64 << 20
_TASKS: Final = 1 << 32
_WRITERS_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class TaskWritten:
    """What became of the outputs of one task: records that were written now, and those that were there already."""

    task: TaskId
    written: int
    skipped: int


def announce_sinks(
    results: Results, options: Mapping[str, str], id: str, place: str, known: Collection[str]
) -> list[str]:
    """Announce the writers of all outputs, but for those that are ``known``; all names, for the plan, which has to have
    them before :func:`write_sinks`. The other arguments are as there."""
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
    """StreamsError when brokers do not know any more how far one of these is, which were announced."""
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
    """Source -> name of its writer."""
    return {
        stage.rank * _TASKS + number: f"{plan.application_id}-backfill-{id}-{TaskId(stage.id, number)}"
        for stage in plan.stages
        for number in range(stage.tasks)
    }


def write_sinks(results: Results, options: Mapping[str, str], id: str, place: str) -> list[TaskWritten]:
    """Write all outputs, each exactly once for readers of committed records. Their writers are announced.

    ``id``: of this backfill; with the same one again, what is written already is left out. ``options``: of
    ``streams-kafka``, also for reading. ``place``: see :func:`once_kernel`. StreamsError when it breaks off: what was
    committed by then stays, the rest can follow.
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
    """The function for ``mapInArrow``. Rows come by source, each with its rows in their order. ``names``: source ->
    name of its writer. ``place``: a topic that writers commit beside, the same one for all attempts: beside topics of
    their own, one whose input has changed would not find what an earlier one has committed."""

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
    """Whether Spark has run this task before."""
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
    """The records of some rows, each time that they are wanted."""
    *columns, headers = (rows.column(name).to_pylist() for name in _COLUMNS[1:])
    named = [[(header["key"], header["value"]) for header in of] if of else None for of in headers]
    return zip(*columns, named, strict=True)


class _Sequence:
    """The outputs of one task on their way.

    With each commit goes a sum over places, keys and timestamps of all records so far. So an attempt in another process
    knows whether what it leaves out is what was written: the input may have been compacted since, or be another one.
    Values do not count: functions may put the time of day into them, and the records are the same all the same.
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
        """Write rows, but for those that an earlier attempt has written."""
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
        """Commit the rest: source, records written now, and those that were there already. StreamsError when these are
        not the beginning of what there is now."""
        if self._skipped > self._seen:
            raise self._is_another()
        if self._records:
            self._commit()
        self.close()
        return self.source, self._seen - self._skipped, self._skipped

    def _is_another(self) -> StreamsError:
        return StreamsError(
            f"the {self._skipped:,} records that an earlier attempt has written as {self._name} are not the first of "
            "those to be written now: the input is not what it was (compacted, deleted, or another folder); give it as "
            "it was, or begin anew with another plan, which writes everything"
        )

    def close(self) -> None:
        self._writer.close()
