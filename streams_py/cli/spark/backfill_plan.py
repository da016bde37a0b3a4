"""The input of ``backfill``, and the plan that fixes it for outputs to topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streams_py.cli.spark.history_options import Program, now_ms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streams_py.history.backfill import BackfillPlan
    from streams_py.history.cluster import HistoryCluster


@dataclass(frozen=True, slots=True)
class Order:
    """What a backfill reads.

    Attributes:
        program: The application.
        sources: Topic -> folder, or options for reading from Kafka.
        partitions: Partition counts of topics, as far as the user or the plan gives them.
        until: Read only records before this timestamp, in ms.
        kafka: Options of ``streams-kafka``.
        option: ``--option`` as given.
    """

    program: Program
    sources: Mapping[str, str | Mapping[str, str]]
    partitions: Mapping[str, int]
    until: int | None
    kafka: Mapping[str, str]
    option: list[str] | None


def plan_backfill(
    cluster: HistoryCluster, begun: BackfillPlan | None, file: Path, order: Order, *, accept_retention: bool
) -> BackfillPlan:
    """Return the plan of a started backfill, or a new plan that is not saved yet.

    A new plan reads up to the present end offsets.

    Args:
        cluster: The cluster that outputs are written to.
        begun: The plan in ``file``, if the backfill was started before.
        file: The plan's file.
        order: Its options of ``streams-kafka`` may limit where reading starts and ends.
        accept_retention: Whether topics may delete written records.
    """
    if begun is None:
        return _new_plan(cluster, order, accept_retention=accept_retention)
    _check_begun(cluster, begun, file, order)
    return begun


def _check_begun(cluster: HistoryCluster, begun: BackfillPlan, file: Path, order: Order) -> None:
    """Raise ConfigError if the command differs from the one that started the backfill, or topics have changed."""
    from streams_py.cli.spark.source_options import positions_in
    from streams_py.history.fingerprint import check_settings, fingerprint_of
    from streams_py.spark.history.sinks import check_writers

    program = order.program
    fingerprint = fingerprint_of(program.topology())
    begun.check(file, fingerprint, program.application_id, order.until, cluster.id())
    begun.check_archives(file, order.sources)
    begun.check_partitions(file, order.partitions)
    begun.check_asked(file, positions_in(order.kafka))
    check_settings(begun.settings, program.settings, str(file))
    begun.check_topics(file, cluster.topic_ids(begun.topic_ids), cluster.partition_counts())
    check_writers(order.kafka, begun.writers, begun.place)


def _new_plan(cluster: HistoryCluster, order: Order, *, accept_retention: bool) -> BackfillPlan:
    """Create a plan. All checks come before the first write."""
    from streams_py.cli.spark.source_options import positions_in
    from streams_py.history.backfill import BackfillPlan
    from streams_py.history.fingerprint import fingerprint_of, marks_of
    from streams_py.history.plan import sink_counts
    from streams_py.history.retention import check_retention
    from streams_py.spark.history.fixed_ranges import fixed_options, ranges_of

    program, sources = order.program, order.sources
    topology, application_id = program.topology(), program.application_id
    counts = sink_counts(topology, application_id, cluster.partition_counts(), program.outputs)
    program.allowed.check(topology, application_id, program.settings, to_topics=True)
    fixed: dict[str, Any] = dict(sources)
    ranges = []
    for topic, given in sources.items():
        if isinstance(given, str):
            continue
        options = fixed_options(topic, given)
        fixed[topic] = {key: options[key] for key in ("starting", "ending")}
        ranges += [] if topic in topology.global_topics else ranges_of(topic, options)
    if not accept_retention:
        check_retention(cluster, counts, ranges, now_ms())
    read = [topic for topic, given in sources.items() if not isinstance(given, str)]
    return BackfillPlan(
        application_id,
        program.what,
        fingerprint_of(topology),
        fixed,
        order.until,
        cluster.id(),
        place=min(counts),
        asked=positions_in(order.kafka),
        topic_ids=dict(cluster.topic_ids({*read, *counts})),
        settings=marks_of(program.settings),
        outputs=counts,
        partitions=dict(order.partitions),
    )


def check_archives(spark: SparkSession, cluster: HistoryCluster, program: Program, planned: BackfillPlan) -> None:
    """Raise ConfigError if topics would delete results of old records in archives.

    Only Spark reads any archive.
    """
    from streams_py.history.retention import check_retention_of
    from streams_py.spark.history.inputs import bytes_in, oldest_in

    tables = program.topology().global_topics
    read = {topic: given for topic, given in planned.inputs.items() if topic not in tables and isinstance(given, str)}
    oldest_ms = {topic: ms for topic, given in read.items() if (ms := oldest_in(spark, topic, given)) is not None}
    kept = cluster.retentions(planned.outputs)
    is_limited = any(retention.bytes >= 0 for retention in kept.values())
    size = sum(bytes_in(spark, topic, given) for topic, given in read.items()) if is_limited else 0
    check_retention_of(kept, planned.outputs, oldest_ms, size, now_ms())


def planned_input(planned: BackfillPlan, topic: str, kafka: Mapping[str, str]) -> str | dict[str, str]:
    """Return the path or the options for reading a topic, as planned."""
    from streams_py.spark.kafka.options import for_reader
    from streams_py.spark.kafka.planning import ids_option

    given = planned.inputs[topic]
    return given if isinstance(given, str) else for_reader(kafka) | given | ids_option(topic, planned.topic_ids)
