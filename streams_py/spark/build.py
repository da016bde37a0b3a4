"""Builds all telemetry tables from bronze, for a whole history or for a few days of it.

Spark brings the events of each group into one order (:mod:`streams_py.telemetry.order`), in one Spark partition per
group. The fold of :mod:`streams_py.telemetry.fold` processes them batch by batch. Only the fold needs memory, whatever
the length of the history. Groups run in parallel.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as f
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)
from pyspark.sql.window import Window

from streams_py.telemetry.bronze import BAD, BRONZE, OK, READ, UNKNOWN, bronze_batches
from streams_py.telemetry.fold import GroupFold, Output
from streams_py.telemetry.schemas import LIVE, STATE_TABLE, TABLES, columns_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FOLDED: Final = "table string, group string, day int, row string, is_open boolean"
_FOLDED_ARROW: Final[Any] = pa.schema(
    [("table", pa.string()), ("group", pa.string()), ("day", pa.int32()), ("row", pa.string()), ("is_open", pa.bool_())]
)
_DAY_MS: Final = 86_400_000
_KEY: Final = ("sort_ms", "sort_partition", "sort_offset", "part", "partition", "offset")
"""The fields of :class:`streams_py.telemetry.order.Key`."""
_ROWS_PER_BATCH: Final = 2_000
_FIRST: Final = -(2**62)  # sorts before every append time
_TYPES: Final[dict[str, DataType]] = {
    "string": StringType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "double": DoubleType(),
    "boolean": BooleanType(),
    "timestamp": LongType(),  # ms in JSON, see _typed
    "array<string>": ArrayType(StringType()),
    "map<string, bigint>": MapType(StringType(), LongType()),
}


def read_of(records: DataFrame) -> DataFrame:
    """Parse records of an events topic into bronze rows without ``place_ms`` and ``day``.

    ``records`` are rows of ``streams-kafka``, or of Spark's own connector with its columns renamed.
    """
    wanted = records.select("topic", "partition", "offset", "timestamp_ms", "value")
    return wanted.mapInArrow(bronze_batches, READ)


def bronze_of(records: DataFrame, before: Mapping[str, int] | None = None, *, group: str | None = None) -> DataFrame:
    """Return bronze rows for records of an events topic.

    The place of an event (``place_ms``) is the largest append time so far in its partition. Events of other groups and
    refused records do not change the place of a group's events.

    Args:
        records: see :func:`read_of`.
        before: ``topic/partition`` -> place of the last event before these records.
        group: if given, rows of other groups are left out. Refused records are kept.
    """
    rows, is_event = read_of(records), f.col("status") == OK
    if group is not None:
        rows = rows.where(~is_event | (f.col("group") == group))
    of_event = f.max(f.when(is_event, f.col("append_ms")))
    partition, so_far = ("topic", "partition"), (Window.unboundedPreceding, 0)
    of_group = of_event.over(Window.partitionBy(*partition, "group").orderBy("offset").rowsBetween(*so_far))
    of_all = of_event.over(Window.partitionBy(*partition).orderBy("offset").rowsBetween(*so_far))
    place = f.when(is_event, of_group).otherwise(f.greatest("append_ms", of_all))  # ``greatest`` ignores nulls
    if before:
        known = f.create_map(*(f.lit(item) for pair in sorted(before.items()) for item in pair))
        place = f.greatest(place, known[f.concat_ws("/", "topic", "partition")])
    day = f.floor(f.col("place_ms") / _DAY_MS).cast("int")
    return rows.withColumn("place_ms", place).withColumn("day", day).select(*_names(BRONZE))


def _names(ddl: str) -> list[str]:
    return [column.split()[0] for column in ddl.split(", ")]


def placed(bronze: DataFrame) -> DataFrame:
    """Return valid events with their sort position: ``sort_ms, sort_partition, sort_offset, sort_day``.

    The parts of a rebalance have the position of its header. Parts without a header are left out.
    """
    good = bronze.where(f.col("status") == OK)
    own = f.struct(
        f.col("place_ms").alias("ms"),
        f.col("partition").alias("p"),
        f.col("offset").alias("o"),
        f.col("day").alias("d"),
    )
    of_rebalance = Window.partitionBy("group", "rebalance_id")
    header = f.min(f.when(f.col("kind") == "rebalance", own)).over(of_rebalance)
    parts = good.where(f.col("rebalance_id").isNotNull()).withColumn("place", header).where(f.col("place").isNotNull())
    others = good.where(f.col("rebalance_id").isNull()).withColumn("place", own)
    return (
        parts.unionByName(others)
        .withColumn("sort_ms", f.col("place.ms"))
        .withColumn("sort_partition", f.col("place.p"))
        .withColumn("sort_offset", f.col("place.o"))
        .withColumn("sort_day", f.col("place.d"))
        .drop("place")
    )


def build(bronze: DataFrame, base: DataFrame | None = None) -> dict[str, DataFrame]:
    """Return all tables by name, including ``state``, ``events_bad`` and ``events_unknown``.

    Tables have the columns ``group`` and ``day`` (a date); the tables of refused records have only ``day``.

    Each table computes the fold again. To use several tables, call :func:`fold_events`, persist its result, and call
    :func:`tables_of`.

    Args:
        bronze: bronze rows.
        base: the state of the fold of each group before these events, as columns ``group`` and ``state``.
    """
    return tables_of(fold_events(bronze, base)) | refused_of(bronze)


def fold_events(bronze: DataFrame, base: DataFrame | None = None, groups: Sequence[str] | None = None) -> DataFrame:
    """Return rows of all tables as ``table, group, day, row`` (JSON) and ``is_open``.

    Rows that are valid until the next event have ``is_open``. Each group has one more row, of the table ``live``, with
    the state of its fold.

    Args:
        bronze: see :func:`build`.
        base: see :func:`build`.
        groups: the groups that may occur. By default, a job finds them.
    """
    columns = ["group", "sort_ms", "sort_partition", "sort_offset", "part", "partition", "offset", "append_ms", "value"]
    events = placed(bronze).select(*columns, f.lit(None).cast("string").alias("state"))
    names = (
        groups if groups is not None else sorted(row["group"] for row in events.select("group").distinct().collect())
    )
    if base is not None:
        before = base.select(
            "group",
            f.lit(_FIRST).cast("bigint").alias("sort_ms"),
            *(f.lit(0).cast(kind).alias(name) for name, kind in _BASE_PLACE),
            f.lit(0).cast("bigint").alias("append_ms"),
            f.lit(None).cast("binary").alias("value"),
            "state",
        )
        events = events.unionByName(before)
    number = f.array_position(f.array(*map(f.lit, names)), f.col("group")) - 1
    mine = events.where(f.col("group").isin(*names)) if names else events.limit(0)
    apart = mine.withColumn("group_number", number.cast("int")).repartitionById(max(1, len(names)), "group_number")
    ordered = apart.drop("group_number").sortWithinPartitions(*columns[:7])
    return ordered.mapInArrow(fold_batches, _FOLDED)


def tables_of(folded: DataFrame) -> dict[str, DataFrame]:
    """Return the tables by name from the rows of :func:`fold_events`."""
    return {name: _typed(folded, name) for name in (*TABLES, STATE_TABLE)}


def refused_of(bronze: DataFrame) -> dict[str, DataFrame]:
    """Return tables of the records that cannot be parsed, and of events with an unknown version."""
    tables = {}
    for name, status in (("events_bad", BAD), ("events_unknown", UNKNOWN)):
        columns = ("topic", "partition", "offset", "append_ms", "reason", "value")
        tables[name] = bronze.where(f.col("status") == status).select(*columns, _date(f.col("day")).alias("day"))
    return tables


_BASE_PLACE: Final = (
    ("sort_partition", "int"), ("sort_offset", "bigint"), ("part", "int"), ("partition", "int"), ("offset", "bigint")
)  # fmt: skip


def fold_batches(batches: Iterator[Any]) -> Iterator[Any]:
    """Run the fold in a worker: Arrow batches of ordered events in, rows of all tables as JSON out."""
    group: str | None = None
    fold = GroupFold()
    last: tuple[int, ...] = ()
    rows: list[tuple[str, str, int, str, bool]] = []

    def take(outputs: Iterator[Output], *, is_open: bool = False) -> None:
        assert group is not None
        rows.extend(
            (made.table, group, made.day, json.dumps(made.row, ensure_ascii=False), is_open) for made in outputs
        )

    def end() -> None:
        if last:
            take(iter([Output(LIVE, 0, {"fold": fold.snapshot(), "last": last})]))
        take(fold.finish(), is_open=True)

    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in ("group", "value", "append_ms", "state", *_KEY)]
        for found, value, append_ms, state, *key in zip(*columns, strict=True):
            if found != group:
                if group is not None:
                    end()
                group, fold, last = found, GroupFold(state), ()
            if value is not None:
                last = tuple(key)
                take(fold.feed(value, last[0], append_ms))
            if len(rows) >= _ROWS_PER_BATCH:
                yield _batch(rows)
                rows.clear()
    if group is not None:
        end()
    yield _batch(rows)


def _batch(rows: list[tuple[str, str, int, str, bool]]) -> Any:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(_FOLDED_ARROW)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, kind) for column, kind in zip(columns, _FOLDED_ARROW.types, strict=True)],
        schema=_FOLDED_ARROW,
    )


def _typed(folded: DataFrame, name: str) -> DataFrame:
    """Return the rows of one table with typed columns. Times in ms become timestamps."""
    columns = columns_of(name)
    schema = StructType([StructField(column, _TYPES[kind]) for column, kind in columns])
    rows = folded.where(f.col("table") == name).withColumn("row", f.from_json("row", schema))
    made = []
    for column, kind in columns:
        field = f.col("row").getField(column)
        made.append((f.timestamp_millis(field) if kind == "timestamp" else field).alias(column))
    return rows.select("group", _date(f.col("day")).alias("day"), *made)


def _date(day: Any) -> Any:
    return f.date_add(f.lit("1970-01-01").cast("date"), day)
