"""The inputs of a topology: from Kafka, from files, or from any DataFrame."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from streams_py.errors import ConfigError
from streams_py.history.task import StageOrders
from streams_py.spark.columns import SPARK_HEADERS, with_headers_for_python
from streams_py.spark.failures import sentence_of
from streams_py.spark.files import Folder
from streams_py.spark.history.blocks import BLOCKS, RECORD
from streams_py.spark.history.cluster_options import check_whole
from streams_py.spark.history.fixed_ranges import fixed_options, newest_ms, ranges_in, ranges_of
from streams_py.spark.history.largest_first import largest_first, spark_partition
from streams_py.spark.history.order import ORDER
from streams_py.spark.history.portions import OfBlocks, OfRanges, Reader, blocks_of_rows, blocks_read_by, timed_blocks
from streams_py.spark.history.progress import StageReports
from streams_py.spark.redelivered import redelivered_counter

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

GivenInputs: TypeAlias = "Mapping[str, DataFrame | str | Mapping[str, str]] | Mapping[str, str]"
"""The inputs as users pass them.

Topic -> a DataFrame, the path of a Parquet folder or a Delta table, or options of ``streams-kafka``. Options alone
(``{"kafka.bootstrap.servers": ...}``) apply to all topics.
"""

_DELTA_LOG: Final = "_delta_log"
_KAFKA: Final = "kafka."
_PLACE: Final = "every row needs the partition, offset and timestamp_ms (-1 for none) of its record in Kafka"
_NEEDED: Final = "partition and offset, key and value (binary), timestamp_ms (or timestamp); headers are optional"


_AS_IN_KAFKA: Final = (
    "partition, offset and timestamp_ms must be whole numbers, keys and values bytes as in Kafka, headers an array of "
    "key and value; a timestamp of Spark must have a time zone"
)
_WHOLE: Final = re.compile(r"tinyint|smallint|int|bigint|decimal\(\d+,0\)")
_KINDS: Final[Mapping[str, Callable[[str], object]]] = {
    "partition": _WHOLE.fullmatch,
    "offset": _WHOLE.fullmatch,
    "timestamp_ms": lambda kind: kind == "timestamp" or _WHOLE.fullmatch(kind),
    "timestamp": lambda kind: kind == "timestamp" or _WHOLE.fullmatch(kind),
    "key": lambda kind: kind in ("binary", "string"),
    "value": lambda kind: kind in ("binary", "string"),
    "headers": lambda kind: kind == "void" or kind.startswith("array<struct<"),
}
"""Column -> check of its type. Spark would silently convert other types: a timestamp becomes seconds, 2.7 becomes 2,
and a timestamp without a time zone (timestamp_ntz) depends on the machine."""
_PARTITIONS_MAX: Final = 100_000
"""Largest accepted partition count, far more than any topic has. Each partition needs a task."""


def fixed_inputs(given: GivenInputs, topics: frozenset[str]) -> dict[str, Any]:
    """Return topic -> input. Inputs from Kafka get fixed offsets, so that every read has the same records.

    Raises:
        ConfigError: a topic has no input, or an input does not belong to a topic.
    """
    everything: Mapping[str, Any] = given
    if all(isinstance(value, str) for value in given.values()) and any(
        key.startswith(_KAFKA) for key in given.keys() - topics
    ):
        everything = dict.fromkeys(sorted(topics), given)
    unknown = sorted(everything.keys() - topics)
    if unknown:
        raise ConfigError(
            f"the topology does not read {', '.join(unknown)}; it reads {', '.join(sorted(topics)) or 'nothing'}"
        )
    missing = sorted(topics - everything.keys())
    if missing:
        raise ConfigError(f"topic {', '.join(missing)} has no input; name a DataFrame, path or options")
    return {
        topic: fixed_options(topic, found) if isinstance(found, Mapping) else found
        for topic, found in sorted(everything.items())
    }


class Inputs:
    """All inputs of a topology. Driver only."""

    def __init__(
        self,
        spark: SparkSession,
        given: GivenInputs,
        topics: frozenset[str],
        until: int | Mapping[str, Mapping[int, int]] | None = None,
        since_ms: int | None = None,
        tables: Collection[str] = (),
    ) -> None:
        """Check the inputs and fix their offsets.

        Args:
            spark: the session.
            given: the inputs as users pass them.
            topics: the topics that the topology reads.
            until: read only records before this timestamp (ms), or below these offsets.
            since_ms: read only records with this timestamp (ms) or a later one.
            tables: the topics of global tables.
        """
        if isinstance(until, Mapping) and (unknown := sorted(until.keys() - topics)):
            raise ConfigError(f"until: the topology does not read {', '.join(unknown)}", key="until")
        self._spark = spark
        self.fixed: Mapping[str, Any] = fixed_inputs(given, topics)
        """Topic -> input. Options of ``streams-kafka`` have fixed offsets."""
        self._ends = until if isinstance(until, Mapping) else {}
        self._until_ms = until if isinstance(until, int) else None
        self._since_ms = since_ms
        self._rows: dict[str, DataFrame] = {}
        self._counted: dict[str, dict[int, int]] = {}
        self._contents: dict[str, DataFrame] = {}
        self._named: dict[str, DataFrame] = {}
        self._topics = sorted(topics)
        for topic, found in self.fixed.items():
            if isinstance(found, str):
                found = archive(spark, topic, found)
            if not isinstance(found, Mapping) and "topic" in found.columns:
                self._named[topic] = found
            if topic in tables:
                rows = _all_rows(spark, topic, found)
                if topic in self._ends:
                    self._check_ends(topic, _told(topic, found) or _partitions_in(rows))
                self._contents[topic] = rows.where(self._is_before(topic))
            elif isinstance(found, Mapping):
                check_whole({**found, "topics": topic}, f"the input for topic {topic}: ")
            else:
                self._rows[topic] = _rows_of(spark, topic, found)

    def counts(self, known: Mapping[str, int]) -> dict[str, int]:
        """Return topic -> partition count: from ``known``, otherwise from the cluster or from the rows to read.

        Raises:
            ConfigError: ``until`` names a partition that does not exist, or rows belong to other topics.
        """
        for topic, rows in self._named.items():
            self._check_named(topic, rows)
        found = {
            topic: known[topic] if topic in known else self._count(topic)
            for topic in self.fixed
            if topic not in self._contents
        }
        for topic in self._ends.keys() & found.keys():
            self._check_ends(topic, found[topic])
        return found

    def _check_named(self, topic: str, rows: DataFrame) -> None:
        """Raise ConfigError when rows with a column ``topic`` have no row of any topic that is read.

        They would otherwise count as an empty input. An input without rows of just this topic is accepted.
        """
        from pyspark.sql import functions as f

        if rows.where(f.col("topic").isin(*self._topics)).isEmpty():
            other = rows.select("topic").first()
            if other is not None:
                raise ConfigError(
                    f"the input for topic {topic} has rows of {other[0]}, but no rows of a topic that the topology "
                    "reads; pass other rows, or drop the column topic if it contains another name of the topic"
                )

    def _count(self, topic: str) -> int:
        if topic not in self._rows:
            return _told(topic, self.fixed[topic])
        from pyspark.sql import functions as f

        found = self._rows[topic].groupBy("task").agg(f.count_if(self._is_wanted(topic))).collect()
        self._counted[topic] = {int(task): int(records) for task, records in found}
        count = 1 + max(self._counted[topic], default=0)
        if count > _PARTITIONS_MAX:
            raise ConfigError(
                f"the input for topic {topic} has records of partition {count - 1}, which is more than the limit of "
                f"{_PARTITIONS_MAX:,} partitions; the column partition must have the partitions in Kafka"
            )
        return count

    def _check_ends(self, topic: str, count: int) -> None:
        beyond = sorted(int(p) for p in self._ends[topic] if not 0 <= int(p) < count)
        if beyond:
            of_rows = "; if the last partitions are empty, pass the partition count (partitions=)"
            raise ConfigError(
                f"until: topic {topic} has no partition {beyond[0]}, only 0 to {count - 1}"
                + ("" if isinstance(self.fixed[topic], Mapping) else of_rows),
                key="until",
            )

    def records(self, topic: str) -> Mapping[int, int] | None:
        """Return partition -> upper bound of a topic's records; None when they are not counted."""
        if topic in self._rows:
            return self._counted.get(topic)
        until = {int(partition): end for partition, end in self._ends.get(topic, {}).items()}
        ranges = ranges_of(topic, self.fixed[topic])
        return {partition: max(0, min(end, until.get(partition, end)) - start) for _, partition, start, end in ranges}

    def contents(self) -> Mapping[str, DataFrame]:
        """Return topic -> rows of a global table, with ``task`` and ``offset``."""
        return self._contents

    def _is_before(self, topic: str) -> Column:
        """Return the condition that a record is before ``until``. Partitions without an offset are read to the end."""
        from pyspark.sql import functions as f

        found = f.lit(True)
        for partition, end in self._ends.get(topic, {}).items():
            found &= (f.col("task") != int(partition)) | (f.col("offset") < end)
        return found if self._until_ms is None else found & (f.col("timestamp_ms") < self._until_ms)

    def _is_wanted(self, topic: str) -> Column:
        from pyspark.sql import functions as f

        found = self._is_before(topic)
        return found if self._since_ms is None else found & (f.col("timestamp_ms") >= self._since_ms)

    def one(self, topic: str, tasks: int, reports: StageReports | None) -> StageInput:
        """Return the records of a topic that is the only one of its stage."""
        if topic not in self._rows:
            return StageInput(*self._ranges(topic))
        return StageInput(self._by_offset(topic, tasks, reports), OfBlocks(by_offset=True))

    def blocks(self, topic: str, orders: StageOrders, reports: StageReports | None) -> DataFrame:
        """Return the records of a topic in blocks by time, which can be merged with blocks of other topics."""
        if topic in self._rows:
            rows = self._by_offset(topic, orders.stage.inputs[topic], reports)
            return rows.mapInArrow(partial(timed_blocks, topic, orders), BLOCKS)
        rows, reader = self._ranges(topic)
        return rows.mapInArrow(partial(blocks_read_by, reader, orders, reports=reports), BLOCKS)

    def _by_offset(self, topic: str, tasks: int, reports: StageReports | None) -> DataFrame:
        rows = with_headers_for_python(self._rows[topic].where(self._is_wanted(topic)))
        blocks = rows.mapInArrow(partial(blocks_of_rows, topic, reports=reports), BLOCKS)
        return _placed(blocks, tasks, self._counted.get(topic, {}))

    def _ranges(self, topic: str) -> tuple[DataFrame, OfRanges]:
        """Return a row for each partition with records. The worker that gets the row reads and processes them."""
        ends = {int(partition): end for partition, end in self._ends.get(topic, {}).items()}
        options, planned = ranges_in(topic, self.fixed[topic], self._since_ms)
        ranges = {of.partition: (of.start, min(of.end, ends.get(of.partition, of.end))) for of in planned.ranges}
        sizes = {task: end - start for task, (start, end) in ranges.items() if start < end}
        tasks = largest_first(sizes, sizes)
        # One Spark partition for each row, without a shuffle.
        rows = self._spark.range(0, len(tasks), 1, max(1, len(tasks)))
        reader = OfRanges(
            topic,
            tuple(tasks),
            ranges,
            options,
            self._since_ms,
            self._until_ms,
            planned.topic_ids.get(topic),
            {at.partition: epoch for at, epoch in planned.leader_epochs.items()},
            redelivered_counter(self._spark),
        )
        return rows, reader


@dataclass(frozen=True, slots=True)
class StageInput:
    """Rows of which each task has one Spark partition, in order, and their reader."""

    rows: DataFrame
    reader: Reader


def _rows_of(spark: SparkSession, topic: str, given: Any) -> DataFrame:
    return _normalised(archive(spark, topic, given) if isinstance(given, str) else given, topic)


def _told(topic: str, given: Any) -> int:
    """Return the partition count of a topic of the cluster, from its options; 0 for rows."""
    return len(json.loads(given["starting"])[topic]) if isinstance(given, Mapping) else 0


def _partitions_in(rows: DataFrame) -> int:
    from pyspark.sql import functions as f

    found = rows.agg(f.max("task")).first()
    return 1 if found is None or found[0] is None else int(found[0]) + 1


def archive(spark: SparkSession, topic: str, path: str) -> DataFrame:
    """Return the rows of a Parquet folder or a Delta table. The folder of a Delta table also has files of deleted rows.

    The DataFrame does not include files that are written later.
    """
    kind = "delta" if Folder(spark, path).exists(_DELTA_LOG) else "parquet"
    try:
        return spark.read.format(kind).load(path)
    except Exception as error:
        why = f"cannot be read as Parquet: {sentence_of(error)}"
        if "UNABLE_TO_INFER_SCHEMA" in str(error):
            why = "has no Parquet file; name the folder of its records"
        if kind == "delta":
            why = (
                "is a Delta table, but this Spark session has no Delta Lake; add the Delta Lake of its version (--conf "
                "spark.jars.packages=io.delta:...)"
            )
        raise ConfigError(f"the input for topic {topic}: {path} {why}") from error


def _placed(blocks: DataFrame, tasks: int, sizes: Mapping[int, int]) -> DataFrame:
    return blocks.repartitionById(tasks, spark_partition(tasks, sizes)).sortWithinPartitions(*ORDER)


def newest_of(spark: SparkSession, given: Mapping[str, Any], fixed: Mapping[str, Any]) -> int | None:
    """Return the largest timestamp of all inputs in ms; None without records.

    For topics of a cluster, the cluster is queried. Archives and DataFrames are scanned.

    Args:
        spark: the session.
        given: the inputs as users pass them.
        fixed: the same inputs by topic, with fixed offsets.
    """
    from pyspark.sql import functions as f

    newest = []
    for topic, rows in fixed.items():
        found = newest_ms(topic, given.get(topic, given), rows) if isinstance(rows, Mapping) else None
        if found is None:
            row = _all_rows(spark, topic, rows).agg(f.max("timestamp_ms")).first()
            found = None if row is None or row[0] is None else int(row[0])
        newest += [] if found is None else [found]
    return max(newest, default=None)


def oldest_in(spark: SparkSession, topic: str, path: str) -> int | None:
    """Return the smallest timestamp of a topic's archive in ms; None when no record has one."""
    from pyspark.sql import functions as f

    timestamps = _rows_of(spark, topic, path).where("timestamp_ms >= 0")
    row = timestamps.agg(f.min("timestamp_ms")).first()
    return None if row is None or row[0] is None else int(row[0])


def bytes_in(spark: SparkSession, topic: str, path: str) -> int:
    """Return the bytes of all keys and values of a topic's archive."""
    from pyspark.sql import functions as f

    sizes = [f.coalesce(f.sum(f.octet_length(name)), f.lit(0)) for name in ("key", "value")]
    row = _rows_of(spark, topic, path).agg((sizes[0] + sizes[1]).alias("size")).first()
    assert row is not None
    return int(row["size"])


def _all_rows(spark: SparkSession, topic: str, given: Any) -> DataFrame:
    if not isinstance(given, Mapping):
        return _rows_of(spark, topic, given)
    from pyspark.sql import functions as f

    from streams_py.spark.kafka.source import register

    register(spark)
    rows = spark.read.format("streams-kafka").options(**{**given, "topics": topic}).load()
    return rows.withColumn("task", f.col("partition"))


def _normalised(rows: DataFrame, topic: str) -> DataFrame:
    """Return the columns that the kernel needs. From a DataFrame with several topics, return the rows of this topic."""
    from pyspark.sql import functions as f

    kinds = dict(rows.dtypes)
    missing = [name for name in ("partition", "offset", "key", "value") if name not in kinds]
    if "timestamp_ms" not in kinds and "timestamp" not in kinds:
        missing.append("timestamp_ms")
    if missing:
        raise ConfigError(f"the input for topic {topic} has no column {', '.join(missing)}; it needs {_NEEDED}")
    wrong = [f"{name} is {kinds[name]}" for name, fits in _KINDS.items() if name in kinds and not fits(kinds[name])]
    if wrong:
        raise ConfigError(f"the input for topic {topic}: {', '.join(wrong)}; {_AS_IN_KAFKA}")
    if "topic" in kinds:
        rows = rows.where(f.col("topic") == topic)
    name = "timestamp_ms" if "timestamp_ms" in kinds else "timestamp"
    timestamp = f.unix_millis(name) if kinds[name] == "timestamp" else f.col(name).cast("bigint")
    headers = f.col("headers") if "headers" in kinds else f.lit(None)
    partition = f.col("partition").cast("int")
    missing_there = partition.isNull() | (partition < 0) | f.col("offset").isNull() | (f.col("offset") < 0)
    missing_there |= timestamp.isNull()
    no_place = f.raise_error(f.lit(f"the input for topic {topic} has a row without a position: {_PLACE}")).cast("int")
    return rows.select(
        f.when(missing_there, no_place).otherwise(partition).alias("task"),
        f.col("offset").cast("bigint").alias("offset"),
        timestamp.alias("timestamp_ms"),
        f.col("key").cast("binary").alias("key"),
        f.col("value").cast("binary").alias("value"),
        headers.cast(SPARK_HEADERS).alias("headers"),
    )


def stage_input(
    orders: StageOrders,
    inputs: Inputs,
    written: DataFrame | None,
    sizes: Mapping[int, int],
    reports: StageReports | None = None,
) -> StageInput:
    """Return the rows of one stage: each task in one Spark partition, in the order of processing.

    If a task reads several topics, the record with the smallest timestamp among the heads comes first. For equal
    timestamps, the first topic by name comes first. This is the order of blocks.

    Args:
        orders: the orders of the stage.
        inputs: all inputs.
        written: the output of earlier stages.
        sizes: task -> number of records, for tasks whose records are counted.
        reports: where workers report their progress.
    """
    stage = orders.stage
    if len(stage.inputs) == 1:
        (topic,) = stage.inputs
        if topic not in stage.upstream:
            return inputs.one(topic, stage.tasks, reports)
    together: DataFrame | None = None
    for topic in sorted(stage.inputs):
        is_made = topic in stage.upstream
        part = _of_earlier_stages(topic, written) if is_made else inputs.blocks(topic, orders, reports)
        together = part if together is None else together.unionByName(part)
    assert together is not None
    return StageInput(_placed(together, stage.tasks, sizes), OfBlocks())


def _of_earlier_stages(topic: str, written: DataFrame | None) -> DataFrame:
    from pyspark.sql import functions as f

    assert written is not None
    return written.where((f.col("channel") == RECORD) & (f.col("topic") == topic))
