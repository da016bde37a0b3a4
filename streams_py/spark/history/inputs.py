"""The records that a topology reads: from Kafka, from files, from any DataFrame."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from streams_py.errors import ConfigError
from streams_py.history.plan import Stage
from streams_py.history.readable import IsReadable, readable_in
from streams_py.history.task import StageOrders
from streams_py.spark.history.fixed_ranges import fixed_options, newest_ms

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["GivenInputs", "Inputs", "fixed_inputs", "newest_of", "oldest_in", "stage_input"]

GivenInputs: TypeAlias = "Mapping[str, DataFrame | str | Mapping[str, str]] | Mapping[str, str]"
"""Topic -> a DataFrame, the path of a Parquet folder, or options of ``streams-kafka``; or such options for all topics
(``{"kafka.bootstrap.servers": ...}``)."""

_KAFKA: Final = "kafka."
_COLUMNS: Final = ("task", "topic", "offset", "timestamp_ms", "key", "value", "headers")
_HEADERS: Final = "array<struct<key: string, value: binary>>"
_PLACE: Final = "every row needs partition, offset and timestamp_ms (-1 where the record has none), as they are Kafka's"
_NEEDED: Final = "partition and offset, key and value (binary), timestamp_ms (or timestamp); headers may be there"


def fixed_inputs(given: GivenInputs, topics: frozenset[str]) -> dict[str, Any]:
    """Topic -> what is given for it; from Kafka with offsets, so that it is the same records whenever they are read.

    ConfigError when a topic has no input, or an input no topic.
    """
    everything: Mapping[str, Any] = given
    if (
        given
        and all(isinstance(value, str) for value in given.values())
        and any(key.startswith(_KAFKA) for key in given)
    ):
        everything = dict.fromkeys(sorted(topics), given)
    unknown = sorted(everything.keys() - topics)
    if unknown:
        raise ConfigError(
            f"the topology does not read {', '.join(unknown)}; it reads {', '.join(sorted(topics)) or 'nothing'}"
        )
    missing = sorted(topics - everything.keys())
    if missing:
        raise ConfigError(f"there is no input for topic {', '.join(missing)}; name a DataFrame, path or options")
    return {
        topic: fixed_options(topic, found) if isinstance(found, Mapping) else found
        for topic, found in sorted(everything.items())
    }


@dataclass(frozen=True, slots=True)
class _Source:
    """Rows of one topic. ``in_order``: each Spark partition has one partition, by offset."""

    rows: DataFrame
    in_order: bool = False


class Inputs:
    """All inputs of a topology. Driver only."""

    def __init__(
        self,
        spark: SparkSession,
        given: GivenInputs,
        topics: frozenset[str],
        until: int | Mapping[str, Mapping[int, int]] | None = None,
        since_ms: int | None = None,
    ) -> None:
        everything = fixed_inputs(given, topics)
        self._given = everything
        if isinstance(until, Mapping) and (unknown := sorted(until.keys() - topics)):
            raise ConfigError(f"until: the topology does not read {', '.join(unknown)}", key="until")
        self._sources = {
            topic: _until(_source(spark, topic, everything[topic]), topic, until) for topic in sorted(topics)
        }
        if since_ms is not None:
            self._sources = {topic: _since(source, since_ms) for topic, source in self._sources.items()}

    def counts(self, known: Mapping[str, int]) -> dict[str, int]:
        """Topic -> partitions: as ``known``, else as the cluster or the rows say."""
        return {
            topic: known[topic] if topic in known else self._count(topic, source)
            for topic, source in self._sources.items()
        }

    def _count(self, topic: str, source: _Source) -> int:
        given = self._given[topic]
        if source.in_order:
            return len(json.loads(given["starting"])[topic])
        from pyspark.sql import functions as f

        found = source.rows.agg(f.max("task")).first()
        return 1 if found is None or found[0] is None else int(found[0]) + 1

    def of(self, topic: str) -> _Source:
        """The rows of one topic."""
        return self._sources[topic]


def _source(spark: SparkSession, topic: str, given: Any) -> _Source:
    if isinstance(given, str):
        return _Source(_normalised(spark.read.parquet(given), topic))
    if isinstance(given, Mapping):
        from streams_py.spark.kafka.options import reader_options
        from streams_py.spark.kafka.source import register

        options = reader_options({**given, "topics": topic}, streaming=False)
        if options.split_records is not None or options.min_partitions is not None:
            key = "min.partitions" if options.split_records is None else "split.records"
            raise ConfigError(
                f"the input for topic {topic}: {key} cuts partitions, whose records are needed in order; leave it out",
                key=key,
            )
        register(spark)
        rows = spark.read.format("streams-kafka").options(**{**given, "topics": topic}).load()
        return _Source(_normalised(rows, topic), in_order=True)
    return _Source(_normalised(given, topic))


def _until(source: _Source, topic: str, until: int | Mapping[str, Mapping[int, int]] | None) -> _Source:
    """Only the records before an instant, or below offsets; partitions that have none named are read to the end."""
    from pyspark.sql import functions as f

    if until is None:
        return source
    if isinstance(until, int):
        return replace(source, rows=source.rows.where(f.col("timestamp_ms") < until))
    rows = source.rows
    for partition, end in until.get(topic, {}).items():
        rows = rows.where((f.col("task") != int(partition)) | (f.col("offset") < end))
    return replace(source, rows=rows)


def newest_of(spark: SparkSession, given: Mapping[str, Any], fixed: Mapping[str, Any]) -> int | None:
    """The largest timestamp of all inputs, None when there is no record. A cluster is asked for it; rows are looked
    through. ``fixed``: the same inputs by topic, with their ends."""
    from pyspark.sql import functions as f

    newest = []
    for topic, rows in fixed.items():
        found = newest_ms(topic, given.get(topic, given)) if isinstance(rows, Mapping) else None
        if found is None:
            row = _source(spark, topic, rows).rows.agg(f.max("timestamp_ms")).first()
            found = None if row is None or row[0] is None else int(row[0])
        newest += [] if found is None else [found]
    return max(newest, default=None)


def oldest_in(spark: SparkSession, topic: str, path: str) -> int | None:
    """The smallest timestamp of a topic's archive, None when no record has one."""
    from pyspark.sql import functions as f

    timestamps = _source(spark, topic, path).rows.where("timestamp_ms >= 0")
    row = timestamps.agg(f.min("timestamp_ms")).first()
    return None if row is None or row[0] is None else int(row[0])


def _since(source: _Source, since_ms: int) -> _Source:
    from pyspark.sql import functions as f

    return replace(source, rows=source.rows.where(f.col("timestamp_ms") >= since_ms))


def _normalised(rows: DataFrame, topic: str) -> DataFrame:
    """The columns of the kernel; of a DataFrame with several topics the rows of this one."""
    from pyspark.sql import functions as f

    kinds = dict(rows.dtypes)
    missing = [name for name in ("partition", "offset", "key", "value") if name not in kinds]
    if "timestamp_ms" not in kinds and "timestamp" not in kinds:
        missing.append("timestamp_ms")
    if missing:
        raise ConfigError(f"the input for topic {topic} has no column {', '.join(missing)}; needed are {_NEEDED}")
    wrong = [f"{name} is {kinds[name]}" for name in ("key", "value") if kinds[name] not in ("binary", "string")]
    if wrong:
        raise ConfigError(f"the input for topic {topic}: {', '.join(wrong)}; keys and values are bytes as in Kafka")
    if "topic" in kinds:
        rows = rows.where(f.col("topic") == topic)
    if "timestamp_ms" in kinds:
        timestamp = f.col("timestamp_ms").cast("bigint")
    elif kinds["timestamp"].startswith("timestamp"):
        timestamp = f.unix_millis("timestamp")
    else:
        timestamp = f.col("timestamp").cast("bigint")
    headers = f.col("headers") if "headers" in kinds else f.lit(None)
    partition = f.col("partition").cast("int")
    missing_there = partition.isNull() | (partition < 0) | f.col("offset").isNull() | timestamp.isNull()
    no_place = f.raise_error(f.lit(f"the input for topic {topic} has a row without a place: {_PLACE}")).cast("int")
    return rows.select(
        f.when(missing_there, no_place).otherwise(partition).alias("task"),
        f.lit(topic).alias("topic"),
        f.col("offset").cast("bigint").alias("offset"),
        timestamp.alias("timestamp_ms"),
        f.col("key").cast("binary").alias("key"),
        f.col("value").cast("binary").alias("value"),
        headers.cast(_HEADERS).alias("headers"),
    )


def stage_input(orders: StageOrders, inputs: Inputs, written: DataFrame | None) -> DataFrame:
    """The rows of one stage: each task in one Spark partition, in the order in which its records are taken.

    ``written``: what earlier stages wrote. Of several topics the record with the smallest timestamp at the head comes
    next, of equally old ones that of the first topic by name. That order is the one by (``pmax``, topic, source, seq),
    with ``pmax`` the largest timestamp so far within one source: so one sort does it.
    """
    from pyspark.sql import functions as f

    stage = orders.stage
    if len(stage.inputs) == 1:
        (topic,) = stage.inputs
        if topic not in stage.upstream:
            source = inputs.of(topic)
            rows = source.rows.select(*_COLUMNS)
            return rows if source.in_order else _placed(rows, stage).sortWithinPartitions("task", "offset")
        rows = _of_earlier_stages(topic, written)
        ordered = _placed(rows, stage).sortWithinPartitions("task", "pmax", "source", "offset")
        return ordered.select(*_COLUMNS)
    parts = []
    for rank, topic in enumerate(sorted(stage.inputs)):
        if topic in stage.upstream:
            rows = _of_earlier_stages(topic, written)
        else:
            source = inputs.of(topic)
            rows = source.rows
            if not source.in_order:
                rows = rows.repartitionById(stage.inputs[topic], "task").sortWithinPartitions("task", "offset")
            with_pmax = _pmax_kernel(orders, topic)
            rows = rows.mapInArrow(with_pmax, f"{_schema(rows)}, pmax bigint").withColumn(
                "source", f.lit(-1).cast("bigint")
            )
        parts.append(rows.select(*_COLUMNS, "pmax", "source").withColumn("place", f.lit(rank)))
    together = parts[0]
    for part in parts[1:]:
        together = together.unionByName(part)
    ordered = _placed(together, stage).sortWithinPartitions("task", "pmax", "place", "source", "offset")
    return ordered.select(*_COLUMNS)


def _placed(rows: DataFrame, stage: Stage) -> DataFrame:
    return rows.repartitionById(stage.tasks, "task")


def _of_earlier_stages(topic: str, written: DataFrame | None) -> DataFrame:
    from pyspark.sql import functions as f

    assert written is not None
    rows = written.where((f.col("channel") == 0) & (f.col("topic") == topic))
    return rows.withColumnsRenamed({"partition": "task", "seq": "offset"})


def _schema(rows: DataFrame) -> str:
    return ", ".join(f"`{name}` {kind}" for name, kind in rows.dtypes)


def _pmax_kernel(orders: StageOrders, topic: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """The function for ``mapInArrow`` that adds the largest timestamp so far to the rows of a topic."""

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        yield from _with_pmax(batches, readable_in(orders, topic))

    return run


def _with_pmax(batches: Iterator[Any], is_readable: IsReadable | None) -> Iterator[Any]:
    """Batches of one Spark partition come by task, then offset."""
    import numpy as np
    import pyarrow as pa

    latest: dict[int, int] = {}
    for batch in batches:
        tasks, timestamps = batch.column("task").to_numpy(), batch.column("timestamp_ms").to_numpy()
        if is_readable is not None:
            keys, values = batch.column("key").to_pylist(), batch.column("value").to_pylist()
            timestamps = np.where([*map(is_readable, keys, values)], timestamps, -1)
        found = np.empty(batch.num_rows, np.int64)
        bounds = [0, *(np.flatnonzero(np.diff(tasks)) + 1).tolist(), batch.num_rows]
        for first, end in pairwise(bounds):
            if first < end:
                task = int(tasks[first])
                np.maximum.accumulate(timestamps[first:end], out=found[first:end])
                np.maximum(found[first:end], latest.get(task, -1), out=found[first:end])
                latest[task] = int(found[end - 1])
        yield pa.RecordBatch.from_arrays(
            [*batch.columns, pa.array(found)], schema=batch.schema.append(pa.field("pmax", pa.int64()))
        )
