"""``streams_py.spark.preview``: a topology as a query of Structured Streaming.

    rows = preview("shop.app:topology", {"kafka.bootstrap.servers": "localhost:9092"})
    rows.writeStream.format("parquet").option("checkpointLocation", "check").start("totals")

A Spark group is a task, not a key, because stream time, grace periods and the end of windows belong to the task. Spark
checkpoints the state of the task: its position, and the entries of its changelogs. A worker that still has the task of
the previous micro-batch continues with it. Any other worker restores the task from the entries. A random word, which is
saved with the position, identifies the task in the worker's memory. So a repeated micro-batch never uses a task that
its first attempt has left in a worker.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from streams_py.errors import ConfigError, StreamsError
from streams_py.history.loading import GivenTopology, TopologySource
from streams_py.history.plan import external_topics, plan_history
from streams_py.history.records import HistoryRecord
from streams_py.history.refuse import Allowances, RefusedTopologyError
from streams_py.history.refuse_preview import preview_findings
from streams_py.history.resumable import Change, ResumableTask, TaskPosition
from streams_py.history.task import StageOrders, StageTopology
from streams_py.spark.columns import SPARK_HEADERS
from streams_py.spark.history.serdes_on_the_way import cannot_travel
from streams_py.topology.partitioning import partition_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from streams_py.topology.topology import Topology

PREVIEW_COLUMNS: Final = (
    "topic string, partition int, timestamp_ms bigint, key binary, value binary, "
    f"headers {SPARK_HEADERS}, task int, seq bigint"
)
"""Columns of the result. ``seq`` numbers the records of a task for a topic."""
_POSITION: Final = "offset bigint, text string, known string, word string"
_ENTRY: Final = "topic string, key binary"
_VALUE: Final = "value binary, timestamp_ms bigint"
_CREATE_TIME: Final = 1
_RECORDS_AT_ONCE: Final = 2_000
_KEPT_MAX: Final = 16
_PROVIDER: Final = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

_kept: dict[str, _Live] = {}
"""Word of the saved position -> task that this worker process keeps for the next micro-batch."""


def preview(
    topology: GivenTopology,
    options: Mapping[str, str],
    *,
    config: Mapping[str, Any] | None = None,
    partitions: Mapping[str, int] | None = None,
    allow_side_effects: bool = False,
    spark: SparkSession | None = None,
) -> DataFrame:
    """Return a streaming DataFrame of the records that a topology writes. Start it with ``writeStream``.

    It supports topologies with one input topic and without a repartition: stateless steps, aggregates, windows and
    sessions. State is in the memory of workers and in the checkpoint.

    It sets ``spark.sql.streaming.stateStore.providerClass`` of the session to RocksDB, which Spark requires for this.

    Args:
        topology: a topology, a builder, a function that returns one of these, or ``module:name``.
        options: options of ``streams-kafka``. ``starting`` applies when a checkpoint is new. ``rows.per.trigger`` is
            the size limit of a micro-batch.
        config: settings of the application.
        partitions: partition counts of the output topics; default: the count of the input topic.
        allow_side_effects: whether functions of ``peek`` and ``foreach`` may be called again for the same record.
        spark: the session; default: the active session, or a new one.

    Returns:
        A DataFrame with the columns of :data:`PREVIEW_COLUMNS`.

    Raises:
        RefusedTopologyError: lists all obstacles.
    """
    from pyspark.sql import functions as f

    from streams_py.spark.history.fixed_ranges import count_partitions
    from streams_py.spark.history.run import settings_of
    from streams_py.spark.kafka.source import register
    from streams_py.spark.session import MOSTLY_PYTHON, check_classic, spark_session

    if spark is not None:
        check_classic(spark)
    settings = settings_of(config)
    source, given = TopologySource(topology, settings), partitions or {}
    application_id = str(settings["application.id"])
    described = source.build()
    topic = _checked_topic(described, settings, options, Allowances(given, allow_side_effects))
    session = spark or spark_session("streams-py preview", **MOSTLY_PYTHON)
    register(session)
    session.conf.set(_PROVIDER, _ROCKSDB)
    plan = plan_history(described, application_id, settings, {topic: count_partitions(topic, options)}, given)
    rows = session.readStream.format("streams-kafka").options(**options, topics=topic).load()
    columns = ("offset", "timestamp_ms", "key", "value", "headers")
    tasks = rows.select(f.col("partition").alias("task"), *columns).groupBy("task")
    orders = StageOrders(source, settings, plan.stages[0])
    try:
        return tasks.transformWithState(PreviewProcessor(orders), PREVIEW_COLUMNS, "Append", "None")
    except Exception as error:
        refused = cannot_travel(error, f"the preview of {application_id}", source, settings)
        if refused is None:
            raise
        raise refused from error


def _checked_topic(
    described: Topology, settings: Mapping[str, Any], options: Mapping[str, str], allowed: Allowances
) -> str:
    """Check that a topology has a preview. Returns its input topic."""
    application_id = str(settings["application.id"])
    found = preview_findings(described, application_id, settings, allowed)
    if found:
        raise RefusedTopologyError(found)
    (topic,) = external_topics(described.metadata(application_id, settings))
    for key in ("topics", "assign"):
        if key in options:
            raise ConfigError(f"{key} cannot be given: the topology reads {topic}", key=key)
    return topic


class PreviewProcessor(StatefulProcessor):
    """The processor that Spark calls for each task of a micro-batch."""

    def __init__(self, orders: StageOrders) -> None:
        self._orders = orders
        self._topology: StageTopology | None = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state."""
        self._position = handle.getValueState("position", _POSITION)
        self._entries = handle.getMapState("changelogs", _ENTRY, _VALUE)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803  # Spark's names
        """Process the records of one task in one micro-batch, which may have any order. Skips processed records."""
        number = int(key[0])
        kept = self._position.get() if self._position.exists() else None
        first = 0 if kept is None else kept[0]
        new = sorted((row for row in rows if row.offset >= first), key=lambda row: row.offset)
        if not new:
            return
        live = _kept.pop(kept[3], None) if kept is not None else None
        if live is None:
            live = self._made(number, kept)
        try:
            (topic,) = self._orders.stage.inputs
            for at in range(0, len(new), _RECORDS_AT_ONCE):
                live.task.feed([_record(topic, number, row) for row in new[at : at + _RECORDS_AT_ONCE]])
                yield from live.rows(self._orders.stage.outputs)
            self._keep(live)
        except BaseException as error:
            live.task.close()
            if isinstance(error, StreamsError):
                raise error.with_traceback(None)  # noqa: B904  # its cause is the error of user code
            raise

    def _made(self, number: int, kept: Any) -> _Live:
        if self._topology is None:
            self._topology = self._orders.load()
        if kept is None:
            return _Live(ResumableTask(self._topology, number), number, {})
        offset, text, known, _ = kept
        told = json.loads(known)
        entries = sorted(
            Change(at[0], bytes(at[1]), bytes(value), time_ms) for at, (value, time_ms) in self._entries.iterator()
        )
        task = ResumableTask(self._topology, number, TaskPosition(offset, text), entries)
        return _Live(task, number, told["written"])

    def _keep(self, live: _Live) -> None:
        place, changes = live.task.commit()
        for change in changes:
            if change.value is None:
                self._entries.removeKey((change.topic, change.key))
            else:
                self._entries.updateValue((change.topic, change.key), (change.value, change.timestamp_ms))
        word = uuid.uuid4().hex
        known = json.dumps({"written": live.written})
        self._position.update((place.offset, place.text, known, word))
        while len(_kept) >= _KEPT_MAX:
            _kept.pop(next(iter(_kept))).task.close()
        _kept[word] = live

    def close(self) -> None:
        """Do nothing: tasks are kept for the next micro-batch."""


def _record(topic: str, number: int, row: Any) -> HistoryRecord:
    headers = [(header["key"], _bytes(header["value"])) for header in row.headers] if row.headers else None
    stamp = (_CREATE_TIME, row.timestamp_ms)
    return HistoryRecord((topic, number, row.offset, _bytes(row.key), _bytes(row.value), stamp, headers))


def _bytes(data: Any) -> bytes | None:
    return None if data is None else bytes(data)


class _Live:
    """A task, and the number of records that it has written to each topic."""

    def __init__(self, task: ResumableTask, number: int, written: dict[str, int]) -> None:
        self.task, self.number, self.written = task, number, written

    def rows(self, counts: Mapping[str, int]) -> Iterator[Row]:
        """Yield the records that were written since the last call."""
        for topic, columns in self.task.columns.items():
            count, first = counts[topic], self.written.get(topic, 0)
            self.written[topic] = first + len(columns)
            together = zip(columns.timestamps, columns.keys, columns.values, strict=True)
            for at, (timestamp_ms, key, value) in enumerate(together):
                place = columns.partitions.get(at)
                if place is None:
                    place = self.number % count if key is None else partition_for(key, count)
                headers = columns.headers.get(at)
                given = [Row(key=name, value=content) for name, content in headers] if headers else None
                yield Row(
                    topic=topic,
                    partition=place,
                    timestamp_ms=timestamp_ms,
                    key=key,
                    value=value,
                    headers=given,
                    task=self.number,
                    seq=first + at,
                )
            columns.clear()
