"""Telemetry: builds the tables of a group from its events topic, once or continuously.

Both are a stream of micro-batches. Each micro-batch first appends its records to bronze, in folders with its number, so
that a repeated micro-batch changes nothing.

A small micro-batch is a *look*: this process passes its events to the fold, in the state after the last look
(:mod:`streams_py.telemetry.live`), and adds the results to the tables. No Spark job runs for that. The cost depends on
the number of new events, and not on the length of the day or the history.

In these cases, Spark builds days again, from the state of the fold before them, and replaces them in every table:

- The micro-batch has very many events.
- An event belongs before others. A late part of a rebalance, for example, belongs to the day of its header.
- Many looks have left many small files.

It starts with the first affected day. The resulting tables are the same.

    <tables>/telemetry.json     the group, so that tables of different groups are never mixed
    <tables>/bronze/day=D/batch_id=N/
    <tables>/<table>/group=G/day=D/
    <tables>/_live              the state of the fold
    <tables>/_staging, _checkpoint

A folder is missing for a moment while it is replaced; a reader has to read again then. This cannot happen with tables
of Delta Lake (``table_format="delta"``), but there every micro-batch builds its days completely. Bronze and refused
records are always Parquet.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as f

from streams_py.errors import ConfigError
from streams_py.spark.build import bronze_of, fold_events, read_of, refused_of, tables_of
from streams_py.spark.files import Folder, check_shared
from streams_py.spark.kafka.connector_options import translated
from streams_py.spark.kafka.source import register
from streams_py.spark.live_tables import LiveTables, Row, day_text, with_places
from streams_py.system.file_locks import LOCK_FILE
from streams_py.telemetry.bronze import BAD, BRONZE, OK, READ, UNKNOWN
from streams_py.telemetry.delta import check_delta
from streams_py.telemetry.fold import Output
from streams_py.telemetry.live import Live
from streams_py.telemetry.marker import marker_in, marker_text
from streams_py.telemetry.order import Key
from streams_py.telemetry.schemas import LIVE, STATE_TABLE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["DELTA", "PARQUET", "TableFolder", "events_topic", "start_telemetry"]

_log = logging.getLogger(__name__)

PARQUET: Final = "parquet"
DELTA: Final = "delta"

_MARKER: Final = "telemetry.json"
_FORMAT: Final = 4
_STAGING: Final = "_staging"
_CHECKPOINT: Final = "_checkpoint"
_SEARCHED_MAX: Final = 1_000
"""Number of rebalances whose headers are searched by id. If more lack their header, all days are built again."""
_FOLDERS_MAX: Final = 32
"""Folders of micro-batches in a day before they are merged. Thousands of small files are slow to open."""
_LOOK_RECORDS_MAX: Final = 5_000
_LOOK_BYTES_MAX: Final = 16 << 20
"""Largest look, in records and in bytes of their values. Spark processes larger micro-batches."""
_ROWS_PER_TRIGGER: Final = "100000"
"""Default of ``rows.per.trigger``. It bounds the memory of a micro-batch, whatever the length of the topic."""
_LOOKS_MAX: Final = 256
"""Looks before the day is built again, as one file per table. Each look adds files."""
_WRITERS: Final = 4
"""Tables that are written at the same time. They are small; starting and committing a write takes most of the time."""


def events_topic(group: str) -> str:
    """Return the default of ``assignment.events.topic`` for a group."""
    return f"{group}-assignment-events"


def start_telemetry(
    spark: SparkSession,
    group: str,
    tables: str,
    options: Mapping[str, str],
    *,
    once: bool = False,
    interval_s: int = 60,
    table_format: str = PARQUET,
) -> StreamingQuery:
    """Start a query that keeps the tables of a group up to date.

    Args:
        spark: the session.
        group: the group.
        tables: the folder of the tables.
        options: options of ``streams-kafka``: ``kafka.bootstrap.servers``, and ``topics`` if the topic does not
            have the default name. Events of other groups in the topic are left out. By default, a micro-batch has at
            most 100,000 events.
        once: stop the query when it has read the records that exist now.
        interval_s: time between two micro-batches, in s.
        table_format: ``parquet`` or ``delta``.

    Raises:
        ConfigError: the folder belongs to another group or has other contents, or the session has no Delta Lake.
    """
    register(spark)
    folder = TableFolder(spark, tables, group, table_format)
    folder.claim()
    given = {"topics": events_topic(group), "on.gone": "skip", **options}
    if "rows.per.trigger" not in translated({key.lower(): value for key, value in options.items()}):
        given["rows.per.trigger"] = _ROWS_PER_TRIGGER
    records = spark.readStream.format("streams-kafka").options(**given).load()
    writer = records.writeStream.queryName(f"telemetry of {group}").foreachBatch(folder.add)
    writer = writer.option("checkpointLocation", folder.files.path(_CHECKPOINT))
    if once:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{interval_s} seconds").start()


class TableFolder:
    """The folder of one group's tables."""

    def __init__(self, spark: SparkSession, root: str, group: str, table_format: str = PARQUET) -> None:
        self._spark = spark
        self._group = group
        self._table_format = table_format
        self.files = Folder(spark, root)

    def claim(self) -> None:
        """Mark the folder as this group's folder.

        Raises:
            ConfigError: it belongs to another group, or has other contents.
        """
        files, group = self.files, self._group
        mine = {"format": _FORMAT, "group": group, "tables": self._table_format}
        if self._table_format == DELTA:
            check_delta(self._spark, files.path(STATE_TABLE))
        if files.exists(_MARKER):
            found = marker_in(files.read_text(_MARKER))
            if not found:
                raise ConfigError(
                    f"{files.path(_MARKER)} is damaged, so the group of these tables is unknown; delete the file if "
                    "the folder has no other contents, or use another folder"
                )
            if found != mine:
                raise ConfigError(
                    f"{files.root} has the tables of group {found.get('group')!r} ({found.get('tables')}, format "
                    f"{found.get('format')}), not of {group!r} ({self._table_format}, format {_FORMAT}); use another "
                    "folder for each group"
                )
            if files.exists("bronze") and not files.exists(_CHECKPOINT):
                raise ConfigError(
                    f"{files.root} has tables but no progress ({_CHECKPOINT} is missing), so events would be added "
                    "again; use a new folder, or delete this one completely"
                )
            check_shared(self._spark, files.root, "--tables")
            return
        if set(files.children()) - {LOCK_FILE}:
            raise ConfigError(f"{files.root} is not empty and has no telemetry tables; use an empty or new folder")
        check_shared(self._spark, files.root, "--tables")
        files.write_text(marker_text(mine), _MARKER)

    # -- a micro-batch -------------------------------------------------------------------------------------------------

    def add(self, records: DataFrame, batch_id: int) -> None:
        """Add the records of a micro-batch. A repeated micro-batch changes nothing."""
        live = self._tables.load()
        if live.batch_id == batch_id:
            return
        self.files.remove(_STAGING)
        before = live.places if live.batch_id >= 0 else self._places(batch_id)
        few = self._few(records)
        if few is None:
            days = self._append(records, batch_id, before)
            places = self._places_in(days, batch_id, before)
        else:
            mine = [row for row in few if row["status"] != OK or row["group"] == self._group]
            rows, places = with_places(mine, before)
            days = self._tables.append(rows, batch_id)
            if self._can_continue(live, batch_id) and self._tables.take(rows, places, batch_id):
                self._tidy(days, batch_id)
                return
        self._build(replace(live, batch_id=batch_id, places=places), days, keep_refused=few is None)
        self._tidy(days, batch_id)

    @cached_property
    def _tables(self) -> LiveTables:
        return LiveTables(self.files, self._group, self._partition)

    def _few(self, records: DataFrame) -> list[Row] | None:
        """Return the rows of a micro-batch that is small enough for this process; None for a larger one.

        Workers send at most the rows of a look. Otherwise a whole partition would pass through the memory of the JVM.
        """
        if self._table_format == DELTA:
            return None
        some = read_of(records).mapInArrow(_first_rows, READ)
        rows = [row.asDict() for row in some.toLocalIterator()]
        size = sum(len(row["value"] or b"") for row in rows)
        return None if size > _LOOK_BYTES_MAX or len(rows) > _LOOK_RECORDS_MAX else rows

    def _can_continue(self, live: Live, batch_id: int) -> bool:
        """Whether the fold has a state to continue from, and small files need not be merged yet."""
        if live.batch_id < 0:
            return self._folders(0, but=batch_id) == []
        return live.batch_id < batch_id and live.looks < _LOOKS_MAX

    def _build(self, live: Live, days: Sequence[int], *, keep_refused: bool) -> None:
        """Build the tables again, from the first day to which records of the micro-batch belong.

        The records are in bronze already.
        """
        batch_id = live.batch_id
        new = self._bronze([(day, f"batch_id={batch_id}") for day in days])
        if new is None:
            self._tables.save(live)
            return
        by_status = new.groupBy("status").agg(f.min("day").alias("first"))
        of_status = {row["status"]: row["first"] for row in by_status.collect()}
        if keep_refused and (BAD in of_status or UNKNOWN in of_status):
            self._keep_refused(new, batch_id)
        if OK not in of_status:
            self._tables.save(live)
            return
        first_day = min(of_status[OK], self._first_header_day(new, days, batch_id), *(day for _, day in live.open_rows))
        self._tables.save(self._rebuild(first_day, live))

    def _append(self, records: DataFrame, batch_id: int, before: Mapping[str, int]) -> list[int]:
        """Write the records to bronze and return their days."""
        files, staged = self.files, (_STAGING, "bronze")
        mine = bronze_of(records, before, group=self._group)
        mine.write.partitionBy("day").option("compression", "zstd").parquet(files.path(*staged))
        days = [int(name.removeprefix("day=")) for name in files.children(*staged) if name.startswith("day=")]
        for day in days:
            files.replace((*staged, f"day={day}"), ("bronze", f"day={day}", f"batch_id={batch_id}"))
        return days

    def _places(self, batch_id: int) -> dict[str, int]:
        """Return the last place of each partition in bronze, without this micro-batch."""
        return self._largest_places(self._bronze(self._folders(0, but=batch_id)))

    def _places_in(self, days: Sequence[int], batch_id: int, before: Mapping[str, int]) -> dict[str, int]:
        """Return the last place of each partition after a micro-batch."""
        return {**before, **self._largest_places(self._bronze([(day, f"batch_id={batch_id}") for day in days]))}

    def _largest_places(self, bronze: DataFrame | None) -> dict[str, int]:
        if bronze is None:
            return {}
        key = f.concat_ws("/", "topic", "partition").alias("key")
        events = bronze.where(f.col("status") == OK)
        return {row["key"]: row["ms"] for row in events.groupBy(key).agg(f.max("place_ms").alias("ms")).collect()}

    def _bronze(self, folders: Sequence[tuple[int, str]]) -> DataFrame | None:
        """Return the rows in folders of bronze (day and name); None without folders."""
        if not folders:
            return None
        paths = [self.files.path("bronze", f"day={day}", name) for day, name in folders]
        reader = self._spark.read.schema(f"{BRONZE}, batch_id string").option("basePath", self.files.path("bronze"))
        return reader.parquet(*paths).drop("batch_id")

    def _folders(self, first_day: int, *, but: int | None = None) -> list[tuple[int, str]]:
        """Return the folders of bronze from a day on, without the folders of the micro-batch ``but``."""
        names = [name for name in self.files.children("bronze") if name.startswith("day=")]
        days = sorted(day for name in names if (day := int(name.removeprefix("day="))) >= first_day)
        found = [(day, name) for day in days for name in self.files.children("bronze", f"day={day}")]
        return [(day, name) for day, name in found if name != f"batch_id={but}"]

    def _first_header_day(self, new: DataFrame, days: Sequence[int], batch_id: int) -> int:
        """Return the first day of a header whose other parts are new; the last of ``days`` without such a header."""
        parts = new.where(f.col("rebalance_id").isNotNull()).groupBy("rebalance_id")
        headless = parts.agg(f.max(f.col("kind") == "rebalance").alias("headed")).where(~f.col("headed"))
        wanted = {row["rebalance_id"] for row in headless.limit(_SEARCHED_MAX + 1).collect()}
        if len(wanted) > _SEARCHED_MAX:
            return 0
        first = days[-1]
        for since in (days[0] - 1, 0):  # usually the header is only seconds older than its parts
            if not wanted:
                break
            headers = self._bronze(self._folders(since, but=batch_id))
            if headers is not None:
                mine = f.col("rebalance_id").isin(sorted(wanted)) & (f.col("kind") == "rebalance")
                for row in headers.where(mine).groupBy("rebalance_id").agg(f.min("day").alias("first")).collect():
                    first = min(first, row["first"])
                    wanted.discard(row["rebalance_id"])
        return first

    # -- tables --------------------------------------------------------------------------------------------------------

    def _rebuild(self, first_day: int, live: Live) -> Live:
        """Build the tables from a day on and return the new state."""
        bronze = self._bronze(self._folders(first_day))
        assert bronze is not None
        folded = fold_events(bronze, self._base(first_day), [self._group]).persist()
        try:
            is_last = f.col("is_open") | (f.col("table") == LIVE)
            closed = folded.where(~is_last)
            tables = tables_of(folded if self._table_format == DELTA else closed)
            # Small results: a dozen names, the open rows, and the state of the fold.
            filled = sorted(row["table"] for row in closed.select("table").distinct().collect())
            last = [Output(row["table"], row["day"], json.loads(row["row"])) for row in folded.where(is_last).collect()]
            with ThreadPoolExecutor(_WRITERS) as writers:
                if self._table_format == DELTA:
                    list(writers.map(lambda name: self._commit(name, tables[name], first_day), tables))
                else:
                    list(writers.map(lambda name: self._stage(name, tables[name]), filled))
                    for name in tables:
                        self._replace(name, first_day)
        finally:
            folded.unpersist()
        stands = next(made.row for made in last if made.table == LIVE)
        open_rows: list[tuple[str, int]] = []
        if self._table_format != DELTA:
            open_rows = self._tables.write_open(made for made in last if made.table != LIVE)
        _log.info("telemetry of %s: tables rebuilt from day %s", self._group, day_text(first_day))
        return replace(live, fold=stands["fold"], last=Key(*stands["last"]), tail=[], open_rows=open_rows, looks=0)

    def _stage(self, name: str, table: DataFrame) -> None:
        writer = table.coalesce(1).write.mode("overwrite").option("compression", "zstd")
        writer.partitionBy("group", "day").parquet(self.files.path(_STAGING, name))

    def _commit(self, name: str, table: DataFrame, first_day: int) -> None:
        """Replace the days of a Delta table in one commit."""
        writer = table.coalesce(1).write.format("delta").mode("overwrite").partitionBy("group", "day")
        if self.files.exists(name):
            writer = writer.option("replaceWhere", f"day >= '{day_text(first_day)}'")
        writer.save(self.files.path(name))

    def _base(self, first_day: int) -> DataFrame | None:
        """Return the state of the fold at the end of the last day before ``first_day``."""
        if self._table_format == DELTA:
            if not self.files.exists(STATE_TABLE):
                return None
            states = self._spark.read.format("delta").load(self.files.path(STATE_TABLE))
            before = states.where(f.col("day") < day_text(first_day)).orderBy(f.desc("day")).limit(1)
            return before.select(f.lit(self._group).alias("group"), "state")
        days = [day for day in self._days(STATE_TABLE) if day < day_text(first_day)]
        if not days:
            return None
        last = self._spark.read.parquet(self.files.path(STATE_TABLE, self._partition, f"day={days[-1]}"))
        return last.select(f.lit(self._group).alias("group"), "state")

    @cached_property
    def _partition(self) -> str:
        jvm: Any = self._spark.sparkContext._jvm
        escaped = jvm.org.apache.spark.sql.catalyst.catalog.ExternalCatalogUtils.escapePathName(self._group)
        return f"group={escaped}"

    def _days(self, table: str) -> list[str]:
        found = self.files.children(table, self._partition)
        return sorted(name.removeprefix("day=") for name in found if name.startswith("day="))

    def _replace(self, table: str, first_day: int) -> None:
        where, staged = (table, self._partition), (_STAGING, table, self._partition)
        fresh = {name for name in self.files.children(*staged) if name.startswith("day=")}
        for day in self._days(table):
            if day >= day_text(first_day) and f"day={day}" not in fresh:
                self.files.remove(*where, f"day={day}")
        for name in sorted(fresh):
            self.files.replace((*staged, name), (*where, name))

    def _keep_refused(self, new: DataFrame, batch_id: int) -> None:
        """Write records that cannot be parsed, and events with an unknown version, to their tables."""
        for name, frame in refused_of(new).items():
            frame.coalesce(1).write.mode("overwrite").partitionBy("day").parquet(self.files.path(_STAGING, name))
            for day in self.files.children(_STAGING, name):
                if day.startswith("day="):
                    self.files.replace((_STAGING, name, day), (name, day, f"batch_id={batch_id}"))

    # -- tidying up ----------------------------------------------------------------------------------------------------

    def _tidy(self, days: Sequence[int], batch_id: int) -> None:
        for day in days:
            self._merge_folders(day, batch_id)

    def _merge_folders(self, day: int, batch_id: int) -> None:
        """Merge the folders of a day. The newest is left out: it is the only one that may be written again.

        Between the two steps events exist twice. The fold ignores the copies.
        """
        old = [name for name in self.files.children("bronze", f"day={day}") if name != f"batch_id={batch_id}"]
        if len(old) < _FOLDERS_MAX:
            return
        merged = self._bronze([(day, name) for name in old])
        assert merged is not None
        staged = (_STAGING, "merged")
        merged.drop("day").coalesce(1).write.option("compression", "zstd").parquet(self.files.path(*staged))
        self.files.rename(staged, ("bronze", f"day={day}", f"batch_id=before-{batch_id}"))
        for name in old:
            self.files.remove("bronze", f"day={day}", name)


def _first_rows(batches: Iterator[Any]) -> Iterator[Any]:
    """Return the rows of one Spark partition up to the first row that is too much for a look.

    The other rows are read and discarded. If a worker stops reading early, Spark's thread that feeds it gets a broken
    pipe, which Spark prints as an error.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    records, size = 0, 0
    for batch in batches:
        if records > _LOOK_RECORDS_MAX or size > _LOOK_BYTES_MAX:
            continue
        sizes = pc.cumulative_sum(pc.fill_null(pc.binary_length(batch.column("value")), 0).cast(pa.int64()))
        fitting = int(pc.sum(pc.less_equal(sizes, _LOOK_BYTES_MAX - size)).as_py() or 0)
        wanted = min(batch.num_rows, fitting + 1, _LOOK_RECORDS_MAX + 1 - records)
        yield batch.slice(0, wanted)
        records += wanted
        size += int(sizes[wanted - 1].as_py()) if wanted else 0
