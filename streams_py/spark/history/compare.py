"""Compares the outputs of two versions of a topology over the same history, before the new version is deployed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from streams_py.history.needs import history_needed
from streams_py.history.plan import sinks_of
from streams_py.history.travel import TopologySource
from streams_py.spark.history.inputs import GivenInputs, archive, fixed_inputs, newest_of
from streams_py.spark.history.progress import HistoryProgress, Tick
from streams_py.spark.history.run import Results, run, settings_of, topics_of
from streams_py.spark.history.work import check_work

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from streams_py.history.travel import GivenTopology


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
    """Run both versions over ``inputs(topology)`` and compare their outputs.

    A record is its key, value, timestamp and headers. Repeated equal records count separately. Records that
    arrive in a topic or archive during the runs are not read.

    Args:
        spark: the session.
        old: the old version.
        new: the new version.
        inputs: returns the inputs of a topology.
        config: settings of the application.
        outputs: topics that functions choose or handlers write to, in addition to the topics of sinks.
        partitions: partition counts of topics that are read or written, if they are not known otherwise.
        allow_side_effects: see :func:`streams_py.spark.run`.
        global_tables: see :func:`streams_py.spark.run`.
        last_ms: compare only outputs of this period, in ms, before the newest input. If functions create timestamps,
            before the newest output. Only the inputs on which these outputs depend are read, which are all inputs if
            stores keep old records (:func:`streams_py.history.needs.history_needed`).
        sample: number of differing records per topic in the result.
        work: see :func:`streams_py.spark.run`.
        tick: see :func:`streams_py.spark.run`.
        check: called after each run, with the timestamp from which it has read records (None: all records).

    Returns:
        Topic -> difference.
    """
    from pyspark.sql import functions as f

    found = {}
    runs: list[Results] = []
    asked = [inputs(topology) for topology in (old, new)]
    written = dict.fromkeys(outputs, 1)
    folders = [None if work is None else f"{work.rstrip('/')}/{name}" for name in ("old", "new")]
    for folder in folders:
        check_work(spark, folder)
    allowed: dict[str, Any] = {"allow_side_effects": allow_side_effects, "global_tables": global_tables}
    given = [
        fixed_inputs(one, topics_of(topology, config, partitions=written, **allowed))
        for one, topology in zip(asked, (old, new), strict=True)
    ]
    for topic, one in [*given[0].items()]:
        other = given[1].get(topic)
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            given[1][topic] = one
        elif isinstance(one, str) and one == other:
            given[0][topic] = given[1][topic] = archive(spark, topic, one)
    settings = settings_of(config)
    described = [TopologySource(topology, settings).build() for topology in (old, new)]
    needs = [history_needed(one, settings) for one in described]
    is_retimed = any(need.retimed for need in needs)
    outputs_since = None
    if last_ms is not None and not is_retimed:
        newest = [
            newest_of(spark, one, {topic: rows for topic, rows in fixed.items() if topic not in built.global_topics})
            for one, fixed, built in zip(asked, given, described, strict=True)
        ]
        outputs_since = max((found for found in newest if found is not None), default=0) - last_ms
    try:
        names = ("old", "new")
        for name, folder, topology, one, built, need in zip(
            names, folders, (old, new), given, described, needs, strict=True
        ):
            since = None if outputs_since is None else need.since(outputs_since)
            told = None if tick is None else partial(_named, tick, name)
            mine = {*one, *sinks_of(built, str(settings["application.id"])), *outputs}
            known = {topic: count for topic, count in partitions.items() if topic in mine}
            done = run(
                topology,
                one,
                config=config,
                partitions={**written, **known},
                since=since,
                work=folder,
                spark=spark,
                tick=told,
                **allowed,
            )
            runs.append(done)
            check(done, since)
        before, after = runs
        if last_ms is not None and is_retimed:
            outputs_since = _newest_output(runs) - last_ms
        for topic in sorted({*before.sinks, *after.sinks}):
            counts: DataFrame | None = None
            for name, results in (("old", before), ("new", after)):
                if topic not in results.sinks:
                    continue
                rows = results.sinks[topic]
                if outputs_since is not None:
                    rows = rows.where((f.col("timestamp_ms") >= outputs_since) | (f.col("timestamp_ms") < 0))
                rows = rows.select("key", "value", "timestamp_ms", "headers")
                rows = rows.withColumns(
                    {"old": f.lit(int(name == "old")).cast("bigint"), "new": f.lit(int(name == "new")).cast("bigint")}
                )
                counts = rows if counts is None else counts.unionByName(rows)
            assert counts is not None
            found[topic] = _difference(counts, sample)
    finally:
        for results in runs:
            results.close()
    return found


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
