"""The commands ``backfill`` and ``diff``: run an application over its history, on Spark."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from streams_py.cli.options import BOOTSTRAP
from streams_py.cli.spark.bootstrap import bootstrap_app
from streams_py.cli.spark.history_bar import progress
from streams_py.cli.spark.history_inputs import (
    check_kafka_options,
    check_sources,
    check_topology,
    check_writes,
    partitions_of,
    sources_of,
)
from streams_py.cli.spark.history_options import (
    ApplicationId,
    Conf,
    Config,
    Effects,
    GlobalTables,
    Master,
    Outputs,
    Partitions,
    PyFiles,
    Recount,
    Retention,
    SourceOption,
    What,
    Work,
    built_topology,
    connected,
    kafka_options,
    now_ms,
    say_dropped,
    say_frozen,
    settings_from,
    spark_of,
)
from streams_py.cli.spark.outcome import console, explained
from streams_py.cli.spark.output_folder import check_new, held_folder, write_new
from streams_py.cli.usage import FAILED, NOT_DONE
from streams_py.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streams_py.history.backfill import BackfillPlan
    from streams_py.history.cluster import HistoryCluster
    from streams_py.history.recount import Recounted
    from streams_py.spark.history.run import Results

_BACKFILL_FILE: Final = Path("backfill.plan.json")


def backfill(
    what: What,
    out: Annotated[str | None, typer.Option(help="Folder for the outputs: one Parquet folder per topic.")] = None,
    sinks: Annotated[
        bool, typer.Option("--sinks", help="Write outputs to their topics, exactly once (in transactions).")
    ] = False,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input", help="TOPIC=PATH of a Parquet folder or Delta table, to read instead of Kafka; repeatable."
        ),
    ] = None,
    partitions: Partitions = None,
    until: Annotated[int | None, typer.Option(help="Read only records before this timestamp, in ms.")] = None,
    plan: Annotated[
        Path | None,
        typer.Option(
            help="With --sinks: file of the plan, which fixes the input. A repeated run with it continues.",
            show_default=str(_BACKFILL_FILE),
        ),
    ] = None,
    bootstrap: BOOTSTRAP = None,
    application_id: ApplicationId = None,
    config: Config = None,
    outputs: Outputs = None,
    side_effects: Effects = False,
    global_tables: GlobalTables = None,
    recount: Recount = False,
    accept_retention: Retention = False,
    option: SourceOption = None,
    work: Work = None,
    py_files: PyFiles = None,
    conf: Conf = None,
    master: Master = None,
) -> None:
    """Run a topology over its whole history and write its outputs to files or topics.

    Needs Java 17 or later and the extra `spark`. Does not touch the running application and its state.

    Examples:

      streams-py backfill app.py --input orders=archive/orders --out outputs

      streams-py backfill app.py --sinks --application-id word-count
    """
    is_complete = False

    def interrupted() -> str:
        if is_complete:
            return "interrupted; all records are written"
        return (
            "interrupted; repeat the command to continue"
            if sinks
            else f"interrupted; no output is in {out}, and the same command starts from the beginning"
        )

    def stands() -> str:
        is_begun = planned is not None and planned.writers and not is_complete
        return "the written records stay; fix the error and repeat the command to continue" if is_begun else ""

    cluster: HistoryCluster | None = None
    planned: BackfillPlan | None = None
    with explained(interrupted, stands), contextlib.ExitStack() as until_the_end:
        if (out is None) == (not sinks):
            raise ConfigError("choose where to write outputs: --out FOLDER, or --sinks for their topics")
        if plan is not None and not sinks:
            raise ConfigError(
                f"--plan {plan}: plans are only for outputs to topics (--sinks), because a folder gets all outputs or "
                "none; remove --plan",
                key="--plan",
            )
        file = plan or _BACKFILL_FILE
        settings = settings_from(bootstrap, application_id, config, "backfill")
        kafka = kafka_options(settings, option)
        sources = sources_of(what, settings, inputs, kafka)
        check_topology(what, settings, outputs, side_effects=side_effects, global_tables=global_tables)
        written = check_writes([what], settings, outputs)
        known = partitions_of(partitions, sources, () if sinks else written)
        say_frozen(built_topology(what, settings))
        if sinks:
            from streams_py.history import backfill as plans
            from streams_py.history.plan_files import held

            begun = until_the_end.enter_context(held(file, plans.BackfillPlan.load))
            check_kafka_options(kafka, writes=True)
            cluster = until_the_end.enter_context(connected(settings))
            planned = _backfill_plan(
                cluster,
                begun,
                file,
                what,
                settings,
                sources,
                until,
                kafka,
                known,
                outputs=outputs or (),
                side_effects=side_effects,
                global_tables=global_tables,
                accept_retention=accept_retention,
            )
            sources = {topic: _planned(planned, topic, kafka) for topic in sources}
            known = planned.partitions
        else:
            check_sources(settings, option, kafka, sources.values())
        with spark_of(master, conf, py_files) as spark, progress() as tick:
            from streams_py.spark.history.recounted import recount_results
            from streams_py.spark.history.run import run as run_history
            from streams_py.spark.history.sinks import announce_sinks, write_sinks
            from streams_py.spark.history.work import check_work
            from streams_py.spark.session import check_writes_once

            if out is not None:
                until_the_end.enter_context(held_folder(spark, out))
                check_new(spark, out, what, settings, outputs or ())
            counts = dict.fromkeys(outputs or (), 1)
            if planned is not None and cluster is not None:
                check_writes_once(spark)
                check_work(spark, work)
                counts = {**_sink_counts(cluster, what, settings, outputs or ()), **planned.outputs}
                if not file.exists():
                    if not accept_retention:
                        _check_archives(spark, cluster, what, settings, planned)
                    planned.save(file)
            with run_history(
                what,
                sources,
                config=settings,
                partitions={**counts, **known},
                until=until,
                work=work,
                allow_side_effects=side_effects,
                global_tables=global_tables,
                spark=spark,
                tick=tick,
            ) as results:
                seed = planned.id if planned is not None else str(out)
                counted = recount_results(results, seed, whole=recount, until_ms=until)
                there = 0
                if planned is not None:
                    writers = announce_sinks(results, kafka, planned.id, planned.place, planned.writers)
                    planned = replace(planned, writers=writers)
                    planned.save(file)
                    there = sum(task.skipped for task in write_sinks(results, kafka, planned.id, planned.place))
                    replace(planned, done=True).save(file)
                if out is not None:
                    write_new(spark, out, results.sinks)
                is_complete = True
                if there:
                    console().print(f"{there:,} records existed already, from an earlier attempt")
                if counted is not None:
                    console().print(str(counted))
                say_dropped(results.dropped())
                for topic in results.sinks:
                    console().print(f"{topic}: {results.written(topic):,} records")


def _backfill_plan(
    cluster: HistoryCluster,
    planned: BackfillPlan | None,
    file: Path,
    what: str,
    settings: Mapping[str, Any],
    sources: Mapping[str, Any],
    until: int | None,
    kafka: Mapping[str, str],
    partitions: Mapping[str, int],
    *,
    outputs: Sequence[str],
    side_effects: bool,
    global_tables: str | None,
    accept_retention: bool,
) -> BackfillPlan:
    """Return the plan of a started backfill, or a new plan that is not saved yet.

    A new plan reads up to the present end offsets.

    Args:
        planned: The plan in ``file``, if the backfill was started before.
        kafka: Options of ``streams-kafka``, which may limit where reading starts and ends.
        partitions: Partition counts of archives, as far as the user gives them.
    """
    from streams_py.cli.spark.source_options import positions_in
    from streams_py.history.backfill import BackfillPlan
    from streams_py.history.fingerprint import fingerprint_of
    from streams_py.history.plan import sink_counts
    from streams_py.history.refuse import check_allowed
    from streams_py.history.result_settings import check_settings, marks_of
    from streams_py.history.retention import check_retention
    from streams_py.spark.history.fixed_ranges import fixed_options, ranges_of
    from streams_py.spark.history.sinks import check_writers

    asked = positions_in(kafka)
    topology, application_id = built_topology(what, settings), str(settings["application.id"])
    fingerprint = fingerprint_of(topology)
    if planned is not None:
        planned.check(file, fingerprint, application_id, until, cluster.id())
        planned.check_archives(file, sources)
        planned.check_partitions(file, partitions)
        planned.check_asked(file, asked)
        check_settings(planned.settings, settings, str(file))
        planned.check_topics(file, cluster.topic_ids(planned.topic_ids), cluster.partition_counts())
        check_writers(kafka, planned.writers, planned.place)
        return planned
    # All checks come before the first write.
    counts = sink_counts(topology, application_id, cluster.partition_counts(), outputs)
    check_allowed(
        topology,
        application_id,
        settings,
        outputs=outputs,
        allow_side_effects=side_effects,
        to_topics=True,
        frozen_tables=global_tables is not None,
    )
    read = [topic for topic, given in sources.items() if not isinstance(given, str)]
    topic_ids = cluster.topic_ids({*read, *counts})
    fixed: dict[str, Any] = dict(sources)
    ranges = []
    for topic in read:
        options = fixed_options(topic, sources[topic])
        fixed[topic] = {key: options[key] for key in ("starting", "ending")}
        ranges += [] if topic in topology.global_topics else ranges_of(topic, options)
    if not accept_retention:
        check_retention(cluster, counts, ranges, now_ms())
    marks = marks_of(settings)
    return BackfillPlan.new(
        application_id, what, fingerprint, fixed, until, cluster.id(), counts, asked, topic_ids, marks, partitions
    )


def _check_archives(
    spark: SparkSession, cluster: HistoryCluster, what: str, settings: Mapping[str, Any], planned: BackfillPlan
) -> None:
    """Raise ConfigError if topics would delete results of old records in archives.

    Only Spark reads any archive.
    """
    from streams_py.history.retention import check_retention_of
    from streams_py.spark.history.inputs import bytes_in, oldest_in

    tables = built_topology(what, settings).global_topics
    read = {topic: given for topic, given in planned.inputs.items() if topic not in tables and isinstance(given, str)}
    oldest_ms = {topic: ms for topic, given in read.items() if (ms := oldest_in(spark, topic, given)) is not None}
    kept = cluster.retentions(planned.outputs)
    is_limited = any(retention.bytes >= 0 for retention in kept.values())
    size = sum(bytes_in(spark, topic, given) for topic, given in read.items()) if is_limited else 0
    check_retention_of(kept, planned.outputs, oldest_ms, size, now_ms())


def _planned(planned: BackfillPlan, topic: str, kafka: Mapping[str, str]) -> str | dict[str, str]:
    """Return the path or the options for reading a topic, as planned."""
    from streams_py.spark.kafka.options import for_reader
    from streams_py.spark.kafka.planning import ids_option

    given = planned.inputs[topic]
    return given if isinstance(given, str) else for_reader(kafka) | given | ids_option(topic, planned.topic_ids)


def diff(
    old: Annotated[str, typer.Argument(help="module:name of the present topology.")],
    new: Annotated[str, typer.Argument(help="module:name of the new topology.")],
    last: Annotated[str | None, typer.Option(help="Compare only the newest outputs, e.g. of 1d, 6h, 30m.")] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input", help="TOPIC=PATH of a Parquet folder or Delta table, to read instead of Kafka; repeatable."
        ),
    ] = None,
    partitions: Partitions = None,
    sample: Annotated[int, typer.Option(min=0, help="Number of differing records to show per topic.")] = 5,
    report: Annotated[Path | None, typer.Option(help="Write the result as JSON to this file.")] = None,
    bootstrap: BOOTSTRAP = None,
    config: Config = None,
    outputs: Outputs = None,
    side_effects: Effects = False,
    global_tables: GlobalTables = None,
    recount: Recount = False,
    option: SourceOption = None,
    work: Work = None,
    py_files: PyFiles = None,
    conf: Conf = None,
    master: Master = None,
) -> None:
    """Run two versions of a topology over the same history, and compare their outputs.

    Exit status: 0 no output differs; 1 an output differs; 2 wrong usage, or the run failed.
    Needs Java 17 or later and the extra `spark`. Writes nothing but the report.

    Example: streams-py diff old/app.py:build_topology app.py:build_topology --last 1d --report diff.json
    """
    with explained("interrupted; nothing was written", failed=NOT_DONE):
        from streams_py.spark.history.compare import compare_runs
        from streams_py.spark.history.recounted import recount_results

        settings = settings_from(bootstrap, None, config, "diff")
        last_ms = None if last is None else _duration_ms(last)
        if report is not None and not report.parent.is_dir():  # fail now, not after hours of work
            raise ConfigError(f"--report {report}: folder {report.parent} does not exist; create it", key="--report")
        if report is not None and report.is_dir():
            raise ConfigError(f"--report {report} is a folder; name a file", key="--report")
        for what in (old, new):
            check_topology(what, settings, outputs, side_effects=side_effects, global_tables=global_tables)
            say_frozen(built_topology(what, settings))
        written = check_writes([old, new], settings, outputs)
        kafka = kafka_options(settings, option)
        read = {what: sources_of(what, settings, inputs, kafka) for what in (old, new)}
        sources = {topic: given for one in read.values() for topic, given in one.items()}
        known = partitions_of(partitions, sources, written)
        check_sources(settings, option, kafka, [given for one in read.values() for given in one.values()])
        out = console()
        for what in (old, new) if last is not None else ():
            out.print(_reads(what, settings), soft_wrap=True, markup=False)
        counted: list[Recounted] = []

        def check(results: Results, since_ms: int | None) -> None:
            """Count the input as well. Records that no version has read would cause no difference."""
            one = recount_results(results, f"{old} {new}", whole=recount, until_ms=None, since_ms=since_ms)
            counted.extend([] if one is None else [one])

        with spark_of(master, conf, py_files) as spark, progress() as tick:
            found = compare_runs(
                spark,
                old,
                new,
                read.__getitem__,
                config=settings,
                outputs=outputs or (),
                partitions=known,
                allow_side_effects=side_effects,
                global_tables=global_tables,
                last_ms=last_ms,
                sample=sample,
                work=work,
                tick=tick,
                check=check,
            )
        for text in dict.fromkeys(map(str, counted)):
            out.print(text, soft_wrap=True)
        for topic, one in found.items():
            out.print(f"{topic}: {one.same:,} records the same, {one.only_old:,} only old, {one.only_new:,} only new")
            for which, row in one.sample:
                out.print(f"  {which} {row}", soft_wrap=True, markup=False)
        if report is not None:
            report.write_text(json.dumps({topic: one.as_dict() for topic, one in found.items()}, indent=1))
    raise typer.Exit(FAILED if any(one.only_old or one.only_new for one in found.values()) else 0)


def _reads(what: str, settings: Mapping[str, Any]) -> str:
    """Describe how much input the newest outputs of a topology need."""
    from streams_py.history.needs import history_needed

    need = history_needed(built_topology(what, settings), settings)
    if need.retimed:
        listed = ", ".join(need.retimed)
        return f"{what}: reads the whole history, because functions set the timestamps at {listed}"
    if need.before_ms is None:
        listed = ", ".join(need.endless)
        return f"{what}: reads the whole history, because any record may be in the state of {listed}"
    before = f", and {timedelta(milliseconds=need.before_ms)} before, for records in windows" if need.before_ms else ""
    return f"{what}: reads only the newest records{before}"


def add_to(app: typer.Typer) -> None:
    """Add these commands to ``app``."""
    app.add_typer(bootstrap_app, name="bootstrap")
    app.command()(backfill)
    app.command()(diff)


def _duration_ms(text: str) -> int:
    units = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000}
    if text[-1:] not in units or not text[:-1].isdecimal():
        raise ConfigError(f"--last {text!r} is not a duration; use for example 1d, 6h or 30m", key="--last")
    return int(text[:-1]) * units[text[-1]]


def _sink_counts(
    cluster: HistoryCluster, what: str, settings: Mapping[str, Any], more: Sequence[str]
) -> dict[str, int]:
    """Return the partition counts of the output topics.

    Raises ConfigError if a topic does not exist.
    """
    from streams_py.history.plan import sink_counts

    counts = cluster.partition_counts()
    return sink_counts(built_topology(what, settings), str(settings["application.id"]), counts, more)
