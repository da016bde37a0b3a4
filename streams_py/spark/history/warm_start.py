"""The steps of a warm start that need Spark: run the stages, write the changelogs, read them back.

See :mod:`streams_py.history.bootstrap` for all steps and their order.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streams_protocol.types import TopicPartition
from streams_py.history.bootstrap import BootstrapCluster, BootstrapPlan, Step
from streams_py.history.bootstrap_ends import check_not_started
from streams_py.history.bootstrap_topics import check_topics, check_written, kept_from, prepare, written
from streams_py.history.global_tables import AS_OF_END
from streams_py.history.loading import TopologySource
from streams_py.history.plan import sink_counts, sinks_of
from streams_py.history.refuse import Allowances
from streams_py.history.task import ordered_changelogs, versioned_changelogs
from streams_py.spark.columns import with_headers_for_python
from streams_py.spark.history.blocks import STATE
from streams_py.spark.history.cluster_options import check_options
from streams_py.spark.history.progress import Tick
from streams_py.spark.history.run import Results, run
from streams_py.spark.history.sinks import announce_sinks, check_writers, write_sinks
from streams_py.spark.history.work import check_work
from streams_py.spark.kafka.options import for_reader, for_writer
from streams_py.spark.kafka.planning import ids_option
from streams_py.spark.kafka.source import register
from streams_py.spark.session import check_writes_once

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from streams_py.topology.topology import Topology

_WRITTEN = ("topic", "partition", "timestamp_ms", "key", "value", "headers")


@dataclass(frozen=True, slots=True)
class StateWritten:
    """The result of writing the changelogs.

    Attributes:
        plan: the plan after this step.
        left_out: changelog -> number of records left out, because the topic would delete them immediately.
        dropped: sub-topology -> number of records that its tasks have dropped.
    """

    plan: BootstrapPlan
    left_out: Mapping[str, int]
    dropped: Mapping[int, int]


def write_changelogs(
    spark: SparkSession,
    path: Path,
    config: Mapping[str, Any],
    cluster: BootstrapCluster,
    options: Mapping[str, str],
    *,
    sinks: bool = False,
    work: str | None = None,
    replication_factor: int = -1,
    tick: Tick | None = None,
) -> StateWritten:
    """Run the plan in the file ``path`` and write the changelogs.

    All checks run before anything is changed.

    Args:
        spark: the session.
        path: the plan's file.
        config: settings of the application.
        cluster: the cluster of the application.
        options: options of ``streams-kafka``, with the address of the cluster.
        sinks: also write outputs, after the changelogs, exactly once.
        work: see :func:`streams_py.spark.run`.
        replication_factor: replication factor of internal topics; -1 for the broker's default.
        tick: see :func:`streams_py.spark.run`.
    """
    plan = BootstrapPlan.load(path)
    settings = {**config, "application.id": plan.application_id}
    topology = TopologySource(plan.topology, settings).build()
    outputs = _outputs(plan, topology, cluster.partition_counts(), sinks=sinks)
    plan = _checked(spark, plan, topology, settings, cluster, options, outputs if sinks else None, work)
    plan.save(path)
    prepare(plan, cluster, replication_factor)
    register(spark)
    with run(
        plan.topology,
        _inputs(plan, options),
        config=settings,
        partitions=outputs,
        work=work,
        allow_side_effects=plan.side_effects,
        global_tables=AS_OF_END if plan.tables else None,
        spark=spark,
        tick=tick,
    ) as results:
        ordered = ordered_changelogs(topology, plan.application_id) & results.changelogs.keys()
        kept, left_out = _kept(results, kept_from(plan, int(time.time() * 1000)), ordered)
        versioned = versioned_changelogs(topology, plan.application_id)
        untimed = _write_state(kept, options, versioned, ordered)
        if sinks:
            plan = _write_outputs(results, plan, path, options, sorted(outputs))
        sums = _sums_of_all(kept, untimed, versioned)
        dropped = results.dropped()
        summaries = [done for each in results.summaries().values() for done in each]
        read_of_tables = results.read_of_tables
    plan = written(plan, sums, untimed, summaries, _ends(plan, cluster), read_of_tables)
    plan.save(path)
    return StateWritten(plan, left_out, dropped)


def _outputs(plan: BootstrapPlan, topology: Topology, counts: Mapping[str, int], *, sinks: bool) -> dict[str, int]:
    """Return the partition counts of the output topics.

    Raises:
        ConfigError: Outputs are written, and a topic does not exist.
    """
    plan.check(topology, Step.PLANNED, Step.ABORTED)
    plan.check_outputs(sinks=sinks)
    if sinks:
        return sink_counts(topology, plan.application_id, counts, plan.outputs)
    # Outputs are not written, but functions may choose among their partitions.
    return {topic: counts.get(topic, 1) for topic in sinks_of(topology, plan.application_id) | set(plan.outputs)}


def _checked(
    spark: SparkSession,
    plan: BootstrapPlan,
    topology: Topology,
    settings: Mapping[str, Any],
    cluster: BootstrapCluster,
    options: Mapping[str, str],
    written_to: Mapping[str, int] | None,
    work: str | None,
) -> BootstrapPlan:
    """Check everything before the first change. Returns the plan of the run, which writes outputs to ``written_to``."""
    reading = check_options(options, writes=True)
    if written_to is not None:
        plan = plan.writing_to(cluster.topic_ids(written_to))
    allowed = Allowances(plan.outputs, plan.side_effects, bool(plan.tables))
    allowed.check(topology, plan.application_id, settings, to_topics=written_to is not None)
    check_work(spark, work)
    check_writes_once(spark)
    check_not_started(plan, cluster)
    check_topics(plan, cluster, skip_gone=reading.skip_gone)
    if written_to is not None:
        check_writers(options, plan.writers, min(written_to, default=""))
    return replace(plan, step=Step.RUNNING)


def _inputs(plan: BootstrapPlan, options: Mapping[str, str]) -> dict[str, Mapping[str, str]]:
    """Return topic -> options for reading the range that the plan has fixed."""
    given = for_reader(options)
    topics = sorted({topic for topic, *_ in (*plan.ranges, *plan.tables)})
    return {topic: given | plan.options_for(topic) | ids_option(topic, plan.topic_ids) for topic in topics}


def _ends(plan: BootstrapPlan, cluster: BootstrapCluster) -> Mapping[TopicPartition, int]:
    """Return the end offsets of the internal topics."""
    made = {**plan.changelogs, **plan.repartitions}
    return cluster.ends([TopicPartition(topic, p) for topic, count in made.items() for p in range(count)])


def _write_outputs(
    results: Results, plan: BootstrapPlan, path: Path, options: Mapping[str, str], topics: list[str]
) -> BootstrapPlan:
    """Write the outputs exactly once. Returns the plan after this step; :meth:`BootstrapPlan.save` follows later."""
    place = min(topics, default="")
    names = announce_sinks(results, options, plan.id, place, plan.writers)
    plan = replace(plan, writers=names, outputs_begun=True, written_to=topics)
    plan.save(path)
    write_sinks(results, options, plan.id, place)
    return replace(plan, outputs_begun=False)


def _kept(
    results: Results, from_ms: Mapping[str, int], ordered: Collection[str]
) -> tuple[dict[str, DataFrame], dict[str, int]]:
    """Return the folds without records that are too old for their changelog, and the number of these records."""
    from pyspark.sql import functions as f

    kept, left_out = dict(results.changelogs), {}
    kept |= {topic: results.rows(STATE, topic, numbered=True) for topic in ordered}
    for topic, first_ms in from_ms.items():
        is_old = (f.col("timestamp_ms") >= 0) & (f.col("timestamp_ms") < first_ms)
        if count := kept[topic].where(is_old).count():
            left_out[topic] = count
            kept[topic] = kept[topic].where(~is_old)
    return kept, left_out


def _write_state(
    changelogs: Mapping[str, DataFrame],
    options: Mapping[str, str],
    versioned: Collection[str],
    ordered: Collection[str],
) -> list[str]:
    """Write the folds. Returns the changelogs whose records have no timestamps.

    Versions are written in the order of time. A store that is restored rejects a version that is older than its
    history, and compaction keeps the last version of a key.
    """
    from pyspark.sql import functions as f

    untimed = []
    for topic, rows in changelogs.items():
        if rows.where("timestamp_ms < 0").limit(1).count():
            untimed.append(topic)
            rows = rows.withColumn("timestamp_ms", f.lit(None).cast("bigint"))
        if topic in versioned:
            rows = rows.repartition("partition").sortWithinPartitions("partition", "timestamp_ms", "key")
        if topic in ordered:
            rows = rows.repartition("partition").sortWithinPartitions("partition", "seq")
        _write(rows, options)
    return untimed


def _write(rows: DataFrame, options: Mapping[str, str]) -> None:
    made = with_headers_for_python(rows.select(*_WRITTEN))
    made.write.format("streams-kafka").options(**for_writer(options)).mode("append").save()


def _sums_of_all(
    changelogs: Mapping[str, DataFrame], untimed: Collection[str], versioned: Collection[str]
) -> dict[str, tuple[int, int]]:
    sums: dict[str, tuple[int, int]] = {}
    for topic, rows in changelogs.items():
        sums |= _sums(_newest(rows) if topic in versioned else rows, timed=topic not in untimed)
    return sums


def _newest(rows: DataFrame) -> DataFrame:
    """Return the newest version of each key, which compaction keeps."""
    from pyspark.sql import functions as f

    last = f.max_by(f.struct("value", "timestamp_ms"), "timestamp_ms").alias("last")
    newest = rows.groupBy("topic", "partition", "key").agg(last)
    return newest.select("topic", "partition", "key", "last.value", "last.timestamp_ms")


def _sums(rows: DataFrame, *, timed: bool) -> dict[str, tuple[int, int]]:
    """Return partition -> number of distinct records, and the sum of their hashes.

    Records that were written twice count once.
    """
    from pyspark.sql import functions as f

    columns = ["topic", "partition", "key", "value", *(["timestamp_ms"] if timed else [])]
    distinct = rows.select(*columns).dropDuplicates()
    hashed = f.xxhash64(*columns[2:]).cast("decimal(38,0)")
    found = distinct.groupBy("topic", "partition").agg(f.count("*").alias("n"), f.sum(hashed).alias("h")).collect()
    return {f"{row['topic']}-{row['partition']}": (int(row["n"]), int(row["h"])) for row in found}


def verify_changelogs(
    spark: SparkSession,
    path: Path,
    config: Mapping[str, Any],
    options: Mapping[str, str],
    recount: Callable[[BootstrapPlan], object] | None = None,
) -> BootstrapPlan:
    """Read the changelogs back and compare them with the written records, and count the inputs again.

    ``recount`` counts the inputs, see :func:`~streams_py.spark.history.recounted.recount_plan`. If a check fails, the
    plan is no longer verified, even if an earlier call has verified it.

    Raises:
        StreamsError: the changelogs differ from the written records, or the counts of the inputs differ.
    """
    plan = BootstrapPlan.load(path)
    topology = TopologySource(plan.topology, config).build()
    plan.check(topology, Step.WRITTEN, Step.VERIFIED)
    check_options(options, writes=False)
    register(spark)
    plan = replace(plan, step=Step.WRITTEN)
    plan.save(path)
    made = {
        topic: spark.read.format("streams-kafka").options(**{**for_reader(options), "topics": topic}).load()
        for topic in sorted(plan.changelogs)
    }
    check_written(plan, _sums_of_all(made, plan.untimed, versioned_changelogs(topology, plan.application_id)))
    counted = "" if recount is None else str(recount(plan))
    plan = replace(plan, step=Step.VERIFIED, recounted=counted)
    plan.save(path)
    return plan
