"""Compares the outputs of two versions of a topology over the same history, before the new version is deployed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from streams_py.history.loading import TopologySource
from streams_py.history.needs import history_needed
from streams_py.history.plan import sinks_of
from streams_py.spark.history.inputs import GivenInputs, archive, fixed_inputs, newest_of
from streams_py.spark.history.progress import HistoryProgress, Tick
from streams_py.spark.history.run import Results, run, settings_of, topics_of
from streams_py.spark.history.work import check_work

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from streams_py.history.loading import GivenTopology
    from streams_py.topology.topology import Topology


@dataclass(frozen=True, slots=True)
class TopicDifference:
    """Numbers of one topic's records that both versions write, or only one of them.

    ``sample`` has differing records as (``old`` or ``new``, record).
    """

    same: int
    only_old: int
    only_new: int
    sample: list[tuple[str, dict[str, Any]]]

    def as_dict(self) -> dict[str, Any]:
        """Return a dict for JSON. Bytes are text if they are printable text, otherwise hexadecimal digits."""
        return asdict(self)


def compare_runs(
    spark: SparkSession,
    old: GivenTopology,
    new: GivenTopology,
    inputs: Callable[[Any], GivenInputs],
    *,
    config: Mapping[str, Any] | None = None,
    outputs: Collection[str] = (),
    partitions: Mapping[str, int] = MappingProxyType({}),
    allow_side_effects: bool = False,
    global_tables: str | None = None,
    last_ms: int | None = None,
    sample: int = 5,
    work: str | None = None,
    tick: Tick | None = None,
    check: Callable[[Results, int | None], object] = lambda results, since_ms: None,
) -> dict[str, TopicDifference]:
    """Run both versions over ``inputs(topology)`` and compare their outputs. Returns topic -> difference.

    A record is its key, value, timestamp and headers. Repeated equal records count separately. Records that
    arrive in a topic or archive during the runs are not read.

    The arguments that are not below are those of :func:`streams_py.spark.run`.

    Args:
        inputs: returns the inputs of a topology.
        outputs: topics that functions choose or handlers write to, in addition to the topics of sinks.
        partitions: partition counts of topics that are read or written, if they are not known otherwise.
        last_ms: compare only outputs of this period, in ms, before the newest input. If functions create timestamps,
            before the newest output. Only the inputs on which these outputs depend are read, which are all inputs if
            stores keep old records (:func:`streams_py.history.needs.history_needed`).
        sample: number of differing records per topic in the result.
        check: called after each run, with the timestamp from which it has read records (None: all records).
    """
    allowed: dict[str, Any] = {"allow_side_effects": allow_side_effects, "global_tables": global_tables}
    settings = settings_of(config)
    versions = [
        _Version(name, topology, inputs(topology), TopologySource(topology, settings).build(), settings, outputs, work)
        for name, topology in (("old", old), ("new", new))
    ]
    for version in versions:
        check_work(spark, version.work)
    for version in versions:
        version.fix(topics_of(version.topology, config, partitions=version.written, **allowed))
    _read_the_same(spark, *versions)
    is_retimed = any(version.need.retimed for version in versions)
    outputs_since = None if last_ms is None or is_retimed else _newest_input(spark, versions) - last_ms
    with contextlib.ExitStack() as until_the_end:
        runs: list[Results] = []
        for version in versions:
            since = None if outputs_since is None else version.need.since(outputs_since)
            told = None if tick is None else partial(_named, tick, version.name)
            given = {"config": config, "partitions": version.counts(partitions), "work": version.work, **allowed}
            done = run(version.topology, version.inputs, since=since, spark=spark, tick=told, **given)
            runs.append(until_the_end.enter_context(done))
            check(done, since)
        if last_ms is not None and is_retimed:
            outputs_since = _newest_output(runs) - last_ms
        topics = sorted({topic for results in runs for topic in results.sinks})
        return {topic: _difference(_counted(topic, runs, outputs_since), sample) for topic in topics}


class _Version:
    """One of the two versions, with its inputs."""

    def __init__(
        self,
        name: str,
        topology: GivenTopology,
        asked: GivenInputs,
        described: Topology,
        settings: Mapping[str, Any],
        outputs: Collection[str],
        work: str | None,
    ) -> None:
        self.name = name
        self.work = None if work is None else f"{work.rstrip('/')}/{name}"
        self.written = dict.fromkeys(outputs, 1)
        self.topology = topology
        self.need = history_needed(described, settings)
        self.inputs: dict[str, Any] = {}
        self._asked = asked
        self._described = described
        self._application_id = str(settings["application.id"])

    def fix(self, topics: frozenset[str]) -> None:
        """Fix the range to read of each input."""
        self.inputs = fixed_inputs(self._asked, topics)

    def newest(self, spark: SparkSession) -> int | None:
        """Return the newest timestamp of the inputs; None without records. Global tables do not count."""
        tables = self._described.global_topics
        read = {topic: rows for topic, rows in self.inputs.items() if topic not in tables}
        return newest_of(spark, self._asked, read)

    def counts(self, partitions: Mapping[str, int]) -> dict[str, int]:
        """Return the partition counts of the topics that this version reads or writes."""
        mine = {*self.inputs, *sinks_of(self._described, self._application_id), *self.written}
        return self.written | {topic: count for topic, count in partitions.items() if topic in mine}


def _read_the_same(spark: SparkSession, old: _Version, new: _Version) -> None:
    """Let both versions read the same records of each topic, although more arrive meanwhile."""
    for topic, one in [*old.inputs.items()]:
        other = new.inputs.get(topic)
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            new.inputs[topic] = one
        elif isinstance(one, str) and one == other:
            old.inputs[topic] = new.inputs[topic] = archive(spark, topic, one)


def _counted(topic: str, runs: Sequence[Results], since_ms: int | None) -> DataFrame:
    """Return the records of both versions, each with a 1 in the column ``old`` or ``new``."""
    from pyspark.sql import functions as f

    counts: DataFrame | None = None
    for name, results in zip(("old", "new"), runs, strict=True):
        if topic not in results.sinks:
            continue
        rows = results.sinks[topic]
        if since_ms is not None:
            rows = rows.where((f.col("timestamp_ms") >= since_ms) | (f.col("timestamp_ms") < 0))
        rows = rows.select("key", "value", "timestamp_ms", "headers")
        rows = rows.withColumns(
            {"old": f.lit(int(name == "old")).cast("bigint"), "new": f.lit(int(name == "new")).cast("bigint")}
        )
        counts = rows if counts is None else counts.unionByName(rows)
    assert counts is not None, "one of them has the topic"
    return counts


def _newest_input(spark: SparkSession, versions: Collection[_Version]) -> int:
    newest = [version.newest(spark) for version in versions]
    return max((found for found in newest if found is not None), default=0)


def _newest_output(runs: Collection[Results]) -> int:
    from pyspark.sql import functions as f

    rows = [rows.agg(f.max("timestamp_ms")).first() for results in runs for rows in results.sinks.values()]
    return max((int(row[0]) for row in rows if row is not None and row[0] is not None), default=0)


def _named(tick: Tick, name: str, progress: HistoryProgress) -> None:
    tick(progress._replace(run=name))


def _difference(rows: DataFrame, sample: int) -> TopicDifference:
    from pyspark.sql import functions as f

    by_record = rows.groupBy("key", "value", "timestamp_ms", "headers").agg(
        f.sum("old").alias("old"), f.sum("new").alias("new")
    )
    by_record = by_record.persist()
    try:
        sums = by_record.agg(
            f.coalesce(f.sum(f.least("old", "new")), f.lit(0)).alias("same"),
            f.coalesce(f.sum(f.greatest(f.col("old") - f.col("new"), f.lit(0))), f.lit(0)).alias("only_old"),
            f.coalesce(f.sum(f.greatest(f.col("new") - f.col("old"), f.lit(0))), f.lit(0)).alias("only_new"),
        ).first()
        assert sums is not None
        differing = by_record.where("old <> new").orderBy("timestamp_ms", "key", "value").limit(sample).collect()
    finally:
        by_record.unpersist()
    shown = [
        (
            "old" if row["old"] > row["new"] else "new",
            {
                "key": _shown(row["key"]),
                "value": _shown(row["value"]),
                "timestamp_ms": row["timestamp_ms"],
                **({"headers": [[name, _shown(value)] for name, value in row["headers"]]} if row["headers"] else {}),
            },
        )
        for row in differing
    ]
    return TopicDifference(int(sums["same"]), int(sums["only_old"]), int(sums["only_new"]), shown)


def _shown(data: bytes | None) -> str | None:
    if data is None:
        return None
    try:
        text = bytes(data).decode()
    except UnicodeDecodeError:
        return bytes(data).hex()
    return text if text.isprintable() else bytes(data).hex()
