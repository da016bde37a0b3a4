"""Telemetry: the tables of a group, kept current from its events topic, or made in one go.

Both are the same: a stream of micro-batches, endless or up to now. Each one

1. appends its records to bronze, in a folder of its own number, so that a repeated micro-batch changes nothing;
2. finds the first day that its records belong to (a late part of a rebalance belongs to the day of its header);
3. builds the tables of that day and all later ones again, from the state that the fold had before;
4. replaces those days in every table.

Mostly that is today. Something late costs more, once, and leaves the same tables as if it had come in time.

    <tables>/telemetry.json     the group, so that no other one is mixed in
    <tables>/bronze/batch_id=N/
    <tables>/<table>/group=G/day=D/
    <tables>/_staging, _checkpoint

A reader may find a folder gone for the moment between its removal and its replacement: read again then.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as f

from streams_py.errors import ConfigError
from streams_py.spark.build import bronze_of, fold_events, placed, refused_of, tables_of
from streams_py.spark.source import register
from streams_py.spark.tables.bronze import BRONZE
from streams_py.spark.tables.schemas import STATE_TABLE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["TableFolder", "events_topic", "start_telemetry"]

_log = logging.getLogger(__name__)

_MARKER: Final = "telemetry.json"
_FORMAT: Final = 1


def events_topic(group: str) -> str:
    """Where a group's events are unless ``assignment.events.topic`` says otherwise."""
    return f"{group}-assignment-events"


def start_telemetry(
    spark: SparkSession,
    group: str,
    tables: str,
    options: Mapping[str, str],
    *,
    once: bool = False,
    interval_s: int = 60,
) -> StreamingQuery:
    """Start keeping the tables of a group in the folder ``tables``.

    ``options`` are those of ``streams-kafka`` (``kafka.bootstrap.servers``, and ``topics`` when the topic has a name of
    its own). With ``once`` the query ends when everything that is there now has been read. ConfigError when the folder
    belongs to another group or holds something else.
    """
    register(spark)
    folder = TableFolder(spark, tables)
    folder.claim(group)
    given = {"topics": events_topic(group), "on.gone": "skip", **options}
    records = spark.readStream.format("streams-kafka").options(**given).load()
    writer = records.writeStream.foreachBatch(folder.add).option("checkpointLocation", folder.path("_checkpoint"))
    if once:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{interval_s} seconds").start()


class TableFolder:
    """The folder of one group's tables, on any file system that Spark knows."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._spark = spark
        self._root = root.rstrip("/") or "/"

    def path(self, *names: str) -> str:
        """A path below the folder."""
        return "/".join([self._root, *names])

    # -- files ---------------------------------------------------------------------------------------------------------

    def _hadoop(self, path: str) -> tuple[Any, Any]:
        jvm: Any = self._spark.sparkContext._jvm
        where = jvm.org.apache.hadoop.fs.Path(path)
        configuration: Any = self._spark.sparkContext._jsc.hadoopConfiguration()
        return where.getFileSystem(configuration), where

    def exists(self, *names: str) -> bool:
        """Whether there is anything at a path."""
        files, where = self._hadoop(self.path(*names))
        return bool(files.exists(where))

    def _children(self, *names: str) -> list[str]:
        if not self.exists(*names):
            return []
        files, where = self._hadoop(self.path(*names))
        return sorted(str(status.getPath().getName()) for status in files.listStatus(where))

    def _remove(self, *names: str) -> None:
        files, where = self._hadoop(self.path(*names))
        files.delete(where, True)

    def _rename(self, source: tuple[str, ...], target: tuple[str, ...]) -> None:
        files, to = self._hadoop(self.path(*target))
        files.mkdirs(to.getParent())
        _, where = self._hadoop(self.path(*source))
        if not files.rename(where, to):
            raise OSError(f"{self.path(*source)} could not be moved to {self.path(*target)}")

    # -- whose folder it is --------------------------------------------------------------------------------------------

    def claim(self, group: str) -> None:
        """Make it this group's folder. ConfigError when it is another one's, or has other things in it."""
        if self.exists(_MARKER):
            found = json.loads(self._spark.read.text(self.path(_MARKER)).first()[0])  # type: ignore[index]  # one line
            if found.get("group") != group or found.get("format") != _FORMAT:
                raise ConfigError(
                    f"{self._root} has the tables of group {found.get('group')!r} (format {found.get('format')}), not "
                    f"of {group!r}; use another folder for each group"
                )
            return
        if self._children():
            raise ConfigError(f"{self._root} is not empty and holds no telemetry tables; use an empty or new folder")
        files, where = self._hadoop(self.path(_MARKER))
        stream = files.create(where)
        stream.write(bytearray(json.dumps({"format": _FORMAT, "group": group}).encode() + b"\n"))
        stream.close()

    # -- a micro-batch -------------------------------------------------------------------------------------------------

    def add(self, records: DataFrame, batch_id: int) -> None:
        """Take the records of a micro-batch in. A repeated one changes nothing."""
        mine = ("bronze", f"batch_id={batch_id}")
        bronze_of(records).write.mode("overwrite").parquet(self.path(*mine))
        everything = self._bronze("bronze")
        new = self._bronze(*mine).select("topic", "partition", "offset")
        touched = placed(everything).join(new, new.columns, "left_semi").groupBy("group")
        first = touched.agg(f.min("sort_day").alias("first")).collect()  # a row for each group, of which there is one
        for row in sorted(first):
            self._rebuild(everything.where(f.col("group") == row["group"]), row["group"], row["first"])
        self._rewrite_refused(everything)

    def _bronze(self, *names: str) -> DataFrame:
        return self._spark.read.schema(BRONZE).parquet(self.path(*names)).drop("batch_id")

    def _rebuild(self, bronze: DataFrame, group: str, first_day: int) -> None:
        """The tables of a group from a day on."""
        later = placed(bronze).where(f.col("sort_day") >= first_day).select(*bronze.columns)
        folded = fold_events(later, self._base(group, first_day)).persist()
        try:
            tables = tables_of(folded)
            filled = {row["table"] for row in folded.select("table").distinct().collect()}  # a dozen names
            for name in sorted(filled):
                frame = tables[name].coalesce(1)
                frame.write.mode("overwrite").partitionBy("group", "day").parquet(self.path("_staging", name))
            for name in tables:
                self._replace(name, group, first_day)
        finally:
            self._remove("_staging")
            folded.unpersist()
        _log.info("telemetry of %s: tables from day %d on are new", group, first_day)

    def _base(self, group: str, first_day: int) -> DataFrame | None:
        """Where the fold stood at the end of the last day before."""
        days = [day for day in self._days(STATE_TABLE, group) if _number(day) < first_day]
        if not days:
            return None
        last = self._spark.read.parquet(self.path(STATE_TABLE, f"group={group}", f"day={days[-1]}"))
        return last.select(f.lit(group).alias("group"), "state")

    def _days(self, table: str, group: str) -> list[str]:
        found = self._children(table, f"group={group}")
        return sorted(name.removeprefix("day=") for name in found if name.startswith("day="))

    def _replace(self, table: str, group: str, first_day: int) -> None:
        where = (table, f"group={group}")
        for day in self._days(table, group):
            if _number(day) >= first_day:
                self._remove(*where, f"day={day}")
        for name in self._children("_staging", *where):
            if name.startswith("day="):
                self._rename(("_staging", *where, name), (*where, name))

    def _rewrite_refused(self, bronze: DataFrame) -> None:
        """Records that could not be read are few: their tables are made anew."""
        refused = bronze.where(f.col("status") != "ok")
        if refused.isEmpty():
            return
        for name, frame in refused_of(refused).items():
            frame.write.mode("overwrite").parquet(self.path("_staging", name))
            self._remove(name)
            self._rename(("_staging", name), (name,))


def _number(day: str) -> int:
    """Days since 1970-01-01 of a date as text."""
    from datetime import date

    return (date.fromisoformat(day) - date(1970, 1, 1)).days
