"""The commands ``backfill``, ``bootstrap`` and ``diff``: an application over its history, on Spark."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from streams_py.cli.spark.outcome import console, explained
from streams_py.cli.usage import FAILED, pairs_of
from streams_py.config import StreamsConfig
from streams_py.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streams_py.history.backfill import BackfillPlan
    from streams_py.history.bootstrap import BootstrapPlan
    from streams_py.history.cluster import HistoryCluster

__all__ = ["add_to", "bootstrap_app"]

bootstrap_app = typer.Typer(
    help="Start an application warm: with the state that its history leaves, made on Spark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

_What = Annotated[str, typer.Argument(help="module:name of the topology, or file.py[:name].", metavar="APP:TOPOLOGY")]
_Bootstrap = Annotated[str, typer.Option("--bootstrap", "-b", envvar="BOOTSTRAP", help="host:port of a broker.")]
_Id = Annotated[str | None, typer.Option("--application-id", help="application.id, if --config does not say it.")]
_Config = Annotated[Path | None, typer.Option("--config", help="The application's .toml or .properties file.")]
_Plan = Annotated[Path, typer.Option("--plan", help="The plan's file; it says how far the warm start got.")]
_Conf = Annotated[list[str] | None, typer.Option(help="Setting of Spark as KEY=VALUE; repeatable.")]
_Option = Annotated[
    list[str] | None,
    typer.Option(help="Option of streams-kafka as KEY=VALUE, e.g. kafka.sasl.password=env:PASSWORD; repeatable."),
]
_Master = Annotated[str | None, typer.Option(help="Spark master; all local cores by default.")]
_PyFiles = Annotated[
    list[Path] | None, typer.Option("--py-files", help="Python files or zips for Spark's workers; repeatable.")
]
_Work = Annotated[str | None, typer.Option(help="Folder that all workers share, for what stages write.")]
_Effects = Annotated[
    bool, typer.Option("--allow-side-effects", help="peek and foreach may be called again for the same record.")
]
_Retention = Annotated[
    bool, typer.Option("--accept-retention", help="Topics may delete outputs that are as old as their retention.ms.")
]
_PLAN_FILE: Final = Path("bootstrap.plan.json")
_BACKFILL_FILE: Final = Path("backfill.plan.json")


@bootstrap_app.command()
def plan(
    what: _What,
    bootstrap: _Bootstrap = "localhost:9092",
    application_id: _Id = None,
    config: _Config = None,
    file: _Plan = _PLAN_FILE,
    replace_: Annotated[
        bool, typer.Option("--replace", help="Give up committed offsets and changelogs that are there.")
    ] = False,
    partial: Annotated[
        bool, typer.Option("--accept-partial-history", help="The beginning of topics may be deleted already.")
    ] = False,
    side_effects: _Effects = False,
) -> None:
    """Say what will be done, or everything that stands against it. Needs no Spark, and changes nothing.

    The plan is kept in a file, which the other steps read: plan, run, verify, commit, in this order, or abort.

    Example: streams-py bootstrap plan app.py:build_topology --application-id word-count -b localhost:9092
    """
    from streams_py.history.bootstrap import Allowances, make_plan

    with explained(), _connected(bootstrap, application_id, config) as (cluster, settings):
        allowed = Allowances(replace_, partial, side_effects)
        topology = _built(what, settings)
        made, stages = make_plan(what, topology, settings["application.id"], settings, cluster, allowed)
        made.save(file)
        records = sum(end - start for _, _, start, end in made.ranges)
        out = console()
        out.print(f"{len(made.ranges)} partitions with up to {records:,} records:")
        for topic in sorted({topic for topic, *_ in made.ranges}):
            out.print(f"  {topic}: {sum(end - start for name, _, start, end in made.ranges if name == topic):,}")
        out.print("stages: " + ", ".join(f"{stage.id} ({stage.tasks} tasks)" for stage in stages.stages))
        for name, count, _ in made.topics:
            out.print(f"internal topic {name}, {count} partitions")
        out.print(
            f"plan: {file}\nAfter `run` has begun and until `commit`, do not start the application: "
            "it would count on top of what is written. `abort` takes it back.\n"
            f"Instances that ran before must not keep their state: streams-py reset "
            f"{made.application_id} --state-dir DIR, on each machine"
        )


@bootstrap_app.command()
def run(
    bootstrap: _Bootstrap = "localhost:9092",
    config: _Config = None,
    file: _Plan = _PLAN_FILE,
    sinks: Annotated[bool, typer.Option("--sinks", help="Write outputs to their topics too, exactly once.")] = False,
    and_commit: Annotated[bool, typer.Option("--commit", help="Verify and commit as well.")] = False,
    side_effects: _Effects = False,
    accept_retention: _Retention = False,
    option: _Option = None,
    work: _Work = None,
    py_files: _PyFiles = None,
    conf: _Conf = None,
    master: _Master = None,
) -> None:
    """Make the internal topics, run the stages on Spark, write the changelogs. Commits nothing without --commit.

    Needs Java 17 or later and the extra `spark`. What was broken off is taken back with abort, and begun again.

    Example: streams-py bootstrap run --master spark://host:7077 --work /shared/folder --commit
    """
    with _on_plan(file, bootstrap, config) as (planned, cluster, settings), _session(master, conf, py_files) as spark:
        from streams_py.history.plan import sink_counts
        from streams_py.history.retention import check_retention
        from streams_py.spark.history.warm_start import write_changelogs

        if sinks and not accept_retention:
            topology = _built(planned.topology, settings)
            counts = sink_counts(topology, planned.application_id, cluster.partition_counts())
            check_retention(cluster, counts, planned.ranges, _now_ms())
        options = {**cluster.options(), **pairs_of(option, "--option")}
        with _progress("stages") as tick:
            made = write_changelogs(
                spark,
                file,
                settings,
                cluster,
                options,
                sinks=sinks,
                work=work,
                side_effects=side_effects,
                replication_factor=int(settings.get("replication.factor", -1)),
                tick=tick,
            )
        records = sum(count for count, _ in made.written.values())
        console().print(f"{records:,} records are in {len(made.changelogs)} changelogs; next: verify, then commit")
        if and_commit:
            _verify(spark, file, settings, options)
            _commit(file, cluster, settings)


@bootstrap_app.command()
def verify(
    bootstrap: _Bootstrap = "localhost:9092",
    config: _Config = None,
    file: _Plan = _PLAN_FILE,
    option: _Option = None,
    conf: _Conf = None,
    master: _Master = None,
) -> None:
    """Read the changelogs back and compare them with what was written.

    Example: streams-py bootstrap verify -b localhost:9092
    """
    with _on_plan(file, bootstrap, config) as (_, cluster, settings), _session(master, conf) as spark:
        _verify(spark, file, settings, {**cluster.options(), **pairs_of(option, "--option")})


@bootstrap_app.command()
def commit(bootstrap: _Bootstrap = "localhost:9092", config: _Config = None, file: _Plan = _PLAN_FILE) -> None:
    """Commit the positions: from now on the application starts there.

    Refused before verify, and when somebody is in the group.

    Example: streams-py bootstrap commit -b localhost:9092
    """
    with _on_plan(file, bootstrap, config) as (_, cluster, settings):
        _commit(file, cluster, settings)


@bootstrap_app.command()
def abort(bootstrap: _Bootstrap = "localhost:9092", config: _Config = None, file: _Plan = _PLAN_FILE) -> None:
    """Take back what was written: delete the changelogs. The application starts from the beginning then.

    Example: streams-py bootstrap abort -b localhost:9092
    """
    with _on_plan(file, bootstrap, config) as (planned, cluster, _):
        from streams_py.history import bootstrap as steps

        if planned.step is steps.Step.COMMITTED:
            raise ConfigError(
                f"the warm start of {planned.application_id} is committed; to begin again, reset the application"
            )
        gone = steps.abort(planned, cluster) if planned.step is not steps.Step.PLANNED else []
        replace(planned, step=steps.Step.ABORTED).save(file)
        console().print(f"deleted: {', '.join(gone) or 'nothing'}")


def _verify(spark: SparkSession, file: Path, settings: Mapping[str, Any], options: Mapping[str, str]) -> None:
    from streams_py.spark.history.warm_start import verify_changelogs

    made = verify_changelogs(spark, file, settings, options)
    console().print(f"verified: {sum(count for count, _ in made.written.values()):,} records are as they were written")


def _commit(file: Path, cluster: HistoryCluster, settings: Mapping[str, Any]) -> None:
    from streams_py.history import bootstrap as steps

    planned = steps.BootstrapPlan.load(file)
    planned.check(_built(planned.topology, settings), steps.Step.VERIFIED)
    steps.commit(planned, cluster)
    replace(planned, step=steps.Step.COMMITTED).save(file)
    console().print(f"committed {len(planned.positions)} positions of {planned.application_id}: start it now")


def backfill(
    what: _What,
    out: Annotated[
        str | None, typer.Option(help="Parquet folder for the outputs, one below it for each topic.")
    ] = None,
    sinks: Annotated[
        bool, typer.Option("--sinks", help="Write outputs to their topics, exactly once, in transactions.")
    ] = False,
    inputs: Annotated[
        list[str] | None, typer.Option("--input", help="TOPIC=PATH of a Parquet folder; Kafka otherwise; repeatable.")
    ] = None,
    until: Annotated[int | None, typer.Option(help="Only records before this timestamp, in ms.")] = None,
    file: Annotated[
        Path, typer.Option("--plan", help="With --sinks: a file that says what is read; with it again, it goes on.")
    ] = _BACKFILL_FILE,
    bootstrap: _Bootstrap = "localhost:9092",
    application_id: _Id = None,
    config: _Config = None,
    side_effects: _Effects = False,
    accept_retention: _Retention = False,
    option: _Option = None,
    work: _Work = None,
    py_files: _PyFiles = None,
    conf: _Conf = None,
    master: _Master = None,
) -> None:
    """Run a topology over all of its history and write its outputs, to Parquet or to their topics.

    Needs Java 17 or later and the extra `spark`. The live application and its state are left alone.

    Examples:

      streams-py backfill app.py --input orders=archive/orders --out outputs

      streams-py backfill app.py --sinks --application-id word-count
    """
    with explained():
        if (out is None) == (not sinks):
            raise ConfigError("say where outputs go: --out FOLDER, or --sinks for their topics")
        settings = _settings(bootstrap, application_id or "backfill", config)
        kafka = {"kafka.bootstrap.servers": bootstrap, **pairs_of(option, "--option")}
        sources = _sources(what, settings, inputs, kafka)
        planned = None
        if sinks:
            planned = _backfill_plan(
                file, what, settings, sources, until, side_effects=side_effects, accept_retention=accept_retention
            )
        if planned is not None:
            sources = {topic: _planned(planned.inputs[topic], kafka) for topic in sources}
        with _session(master, conf, py_files) as spark, _progress("stages") as tick:
            from streams_py.spark.history.run import run as run_history
            from streams_py.spark.history.sinks import write_sinks

            with run_history(
                what,
                sources,
                config=settings,
                partitions=_sink_counts(what, settings) if sinks else None,
                until=until,
                work=work,
                allow_side_effects=side_effects,
                spark=spark,
                tick=tick,
            ) as results:
                if planned is not None:
                    there = sum(task.skipped for task in write_sinks(results, kafka, planned.id))
                    replace(planned, done=True).save(file)
                    if there:
                        console().print(f"{there:,} records were there already, from an earlier attempt")
                for topic, rows in results.sinks.items():
                    if out is not None:
                        rows.write.mode("errorifexists").parquet(f"{out.rstrip('/')}/{topic}")
                    console().print(f"{topic}: {rows.count():,} records")


def _backfill_plan(
    file: Path,
    what: str,
    settings: Mapping[str, Any],
    sources: Mapping[str, Any],
    until: int | None,
    *,
    side_effects: bool,
    accept_retention: bool,
) -> BackfillPlan:
    """The plan that has begun, or a new one, with ends fixed now."""
    from streams_py.history.backfill import BackfillPlan
    from streams_py.history.bootstrap import fingerprint_of
    from streams_py.history.cluster import HistoryCluster
    from streams_py.history.plan import sink_counts
    from streams_py.history.refuse import check_allowed
    from streams_py.history.retention import check_retention
    from streams_py.spark.history.fixed_ranges import fixed_options, ranges_of

    topology, application_id = _built(what, settings), str(settings["application.id"])
    fingerprint = fingerprint_of(topology)
    planned = BackfillPlan.load(file)
    if planned is not None:
        planned.check(file, fingerprint, application_id, until)
        return planned
    with contextlib.closing(HistoryCluster(StreamsConfig.of(dict(settings)))) as cluster:
        # What is refused is refused before anything is begun.
        counts = sink_counts(topology, application_id, cluster.partition_counts())
        check_allowed(topology, application_id, settings, outputs=counts, allow_side_effects=side_effects)
        fixed: dict[str, Any] = {}
        ranges = []
        for topic, given in sources.items():
            fixed[topic] = given
            if not isinstance(given, str):
                options = fixed_options(topic, given)
                fixed[topic] = {key: options[key] for key in ("starting", "ending")}
                ranges += ranges_of(topic, options)
        if not accept_retention:
            check_retention(cluster, counts, ranges, _now_ms())
    planned = BackfillPlan.new(application_id, what, fingerprint, fixed, until)
    planned.save(file)
    return planned


def _planned(given: Any, kafka: Mapping[str, str]) -> str | dict[str, str]:
    return given if isinstance(given, str) else {**kafka, **given}


def diff(
    old: Annotated[str, typer.Argument(help="module:name of the topology as it is.")],
    new: Annotated[str, typer.Argument(help="module:name of the topology as it shall be.")],
    last: Annotated[str | None, typer.Option(help="Only the newest outputs, e.g. of 1d, 6h, 30m.")] = None,
    inputs: Annotated[
        list[str] | None, typer.Option("--input", help="TOPIC=PATH of a Parquet folder; Kafka otherwise; repeatable.")
    ] = None,
    sample: Annotated[int, typer.Option(min=0, help="So many differing records of each topic are shown.")] = 5,
    report: Annotated[Path | None, typer.Option(help="Write the result as JSON to this file.")] = None,
    bootstrap: _Bootstrap = "localhost:9092",
    config: _Config = None,
    option: _Option = None,
    work: _Work = None,
    py_files: _PyFiles = None,
    conf: _Conf = None,
    master: _Master = None,
) -> None:
    """Run two versions of a topology over the same history: which outputs differ? Exit status 1 if any does.

    Needs Java 17 or later and the extra `spark`. Nothing is written but the report.

    Example: streams-py diff old/app.py:build_topology app.py:build_topology --last 1d --report diff.json
    """
    with explained():
        from streams_py.spark.history.compare import compare_runs

        settings = _settings(bootstrap, "diff", config)
        kafka = {"kafka.bootstrap.servers": bootstrap, **pairs_of(option, "--option")}
        out = console()
        for what in (old, new) if last is not None else ():
            out.print(_reads(what, settings), soft_wrap=True, markup=False)
        with _session(master, conf, py_files) as spark, _progress("stages") as tick:
            found = compare_runs(
                spark,
                old,
                new,
                lambda what: _sources(what, settings, inputs, kafka),
                config=settings,
                last_ms=None if last is None else _duration_ms(last),
                sample=sample,
                work=work,
                tick=tick,
            )
        for topic, one in found.items():
            out.print(f"{topic}: {one.same:,} records the same, {one.only_old:,} only old, {one.only_new:,} only new")
            for which, row in one.sample:
                out.print(f"  {which} {row}", soft_wrap=True, markup=False)
        if report is not None:
            report.write_text(json.dumps({topic: one.as_dict() for topic, one in found.items()}, indent=1))
    raise typer.Exit(FAILED if any(one.only_old or one.only_new for one in found.values()) else 0)


def _reads(what: str, settings: Mapping[str, Any]) -> str:
    """How much the newest outputs of a topology make necessary to read."""
    from streams_py.history.needs import history_needed

    need = history_needed(_built(what, settings))
    if need.before_ms is None:
        listed = ", ".join(need.endless)
        return f"{what}: all of the history is read, because any record may be in the state of {listed}"
    before = f", and {timedelta(milliseconds=need.before_ms)} before for what windows keep" if need.before_ms else ""
    return f"{what}: only the newest records are read{before}"


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    app.add_typer(bootstrap_app, name="bootstrap")
    app.command()(backfill)
    app.command()(diff)


def _now_ms() -> int:
    return int(time.time() * 1000)


def _duration_ms(text: str) -> int:
    units = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000}
    if text[-1:] not in units or not text[:-1].isdecimal():
        raise ConfigError(f"--last {text!r} is no duration; write for example 1d, 6h or 30m", key="--last")
    return int(text[:-1]) * units[text[-1]]


def _sources(
    what: str, settings: Mapping[str, Any], given: list[str] | None, kafka: Mapping[str, str]
) -> dict[str, str | Mapping[str, str]]:
    """Topic -> the folder that was named for it, else the cluster."""
    from streams_py.history.plan import external_topics

    topology = _built(what, settings)
    paths = pairs_of(given, "--input")
    if topology.has_patterns:
        return dict(paths)
    topics = external_topics(topology.metadata(str(settings["application.id"]), settings))
    unknown = sorted(paths.keys() - topics)
    if unknown:
        raise ConfigError(f"--input {unknown[0]}: {what} reads {', '.join(sorted(topics))}")
    return {topic: paths.get(topic, kafka) for topic in sorted(topics)}


def _sink_counts(what: str, settings: Mapping[str, Any]) -> dict[str, int]:
    """Partitions of the topics that are written. ConfigError for one that does not exist."""
    from streams_py.history.cluster import HistoryCluster
    from streams_py.history.plan import sink_counts

    with contextlib.closing(HistoryCluster(StreamsConfig.of(dict(settings)))) as cluster:
        return sink_counts(_built(what, settings), str(settings["application.id"]), cluster.partition_counts())


def _built(what: str, settings: Mapping[str, Any]) -> Any:
    from streams_py.history.travel import TopologySource

    return TopologySource(what, settings).build()


def _settings(bootstrap: str, application_id: str | None, config: Path | None) -> dict[str, Any]:
    given = {} if config is None else dict(StreamsConfig.of(config, bootstrap_servers=bootstrap).original)
    if application_id is not None:
        given.setdefault("application.id", application_id)
    if "application.id" not in given:
        raise ConfigError("name the application with --application-id, or give its --config", key="application.id")
    return {**given, "bootstrap.servers": bootstrap}


@contextlib.contextmanager
def _connected(
    bootstrap: str, application_id: str | None, config: Path | None
) -> Iterator[tuple[HistoryCluster, dict[str, Any]]]:
    from streams_py.history.cluster import HistoryCluster

    settings = _settings(bootstrap, application_id, config)
    with contextlib.closing(HistoryCluster(StreamsConfig.of(settings))) as cluster:
        yield cluster, settings


@contextlib.contextmanager
def _on_plan(
    file: Path, bootstrap: str, config: Path | None
) -> Iterator[tuple[BootstrapPlan, HistoryCluster, dict[str, Any]]]:
    """The plan of a warm start, its cluster and settings; errors are explained."""
    with explained():
        from streams_py.history.bootstrap import BootstrapPlan

        planned = BootstrapPlan.load(file)
        with _connected(bootstrap, planned.application_id, config) as (cluster, settings):
            yield planned, cluster, settings


@contextlib.contextmanager
def _session(master: str | None, conf: list[str] | None, py_files: list[Path] | None = None) -> Iterator[SparkSession]:
    """A session of our own, or the one that this process has, which stays. ``py_files`` go to its workers."""
    from streams_py.spark.session import QUIET, check_platform, spark_session

    check_platform()
    from pyspark.sql import SparkSession

    before = SparkSession.getActiveSession()
    settings: dict[str, object] = {**QUIET, **pairs_of(conf, "--conf")}
    session = spark_session("streams-py history", master=master, **settings)
    session.sparkContext.setLogLevel("OFF")  # what goes wrong is said in a sentence
    for path in py_files or ():
        session.sparkContext.addPyFile(str(path))
    try:
        yield session
    finally:
        if before is None:
            session.stop()


@contextlib.contextmanager
def _progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on a terminal, lines elsewhere."""
    out = console()
    if not out.is_terminal:
        yield lambda done, total: out.print(f"{what}: {done} of {total} done")
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=out, transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
