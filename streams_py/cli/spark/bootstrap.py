"""The command ``bootstrap``: builds an application's state from its history on Spark."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from streams_protocol.types import TopicPartition
from streams_py.cli.options import BOOTSTRAP
from streams_py.cli.spark.history_bar import progress
from streams_py.cli.spark.history_options import (
    ApplicationId,
    Conf,
    Config,
    Effects,
    GlobalTables,
    Master,
    Outputs,
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
from streams_py.errors import ConfigError
from streams_py.ports.rights import CLUSTER, missing_right

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streams_py.history.bootstrap import BootstrapPlan
    from streams_py.history.cluster import HistoryCluster
    from streams_py.spark.history.warm_start import StateWritten
    from streams_py.topology.topology import Topology

bootstrap_app = typer.Typer(
    help="Start an application warm: build its state from its history on Spark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

_Plan = Annotated[
    Path, typer.Option("--plan", help="File of the plan, which also keeps the progress of the warm start.")
]
_PLAN_FILE: Final = Path("bootstrap.plan.json")


@bootstrap_app.command()
def plan(
    what: What,
    bootstrap: BOOTSTRAP = None,
    application_id: ApplicationId = None,
    config: Config = None,
    file: _Plan = _PLAN_FILE,
    replace_: Annotated[
        bool, typer.Option("--replace", help="Discard existing committed offsets and internal topics.")
    ] = False,
    partial: Annotated[
        bool, typer.Option("--accept-partial-history", help="Accept topics whose first records have been deleted.")
    ] = False,
    side_effects: Effects = False,
    global_tables: GlobalTables = None,
    outputs: Outputs = None,
) -> None:
    """Print what the warm start will do, or every reason that prevents it.

    Needs no Spark, and changes nothing.

    Writes the plan to a file. The other steps read it, in this order: plan, run, verify, commit; or abort.

    Example: streams-py bootstrap plan app.py:build_topology --application-id word-count -b localhost:9092
    """
    from streams_py.history.bootstrap import check_file_is_free
    from streams_py.history.bootstrap_planning import BootstrapAllowances, make_plan
    from streams_py.history.global_tables import check_global_tables
    from streams_py.history.plan_files import held

    with explained(), held(file, check_file_is_free) as before:
        settings = settings_from(bootstrap, application_id, config)
        topology = built_topology(what, settings)
        with connected(settings) as cluster:
            allowed = BootstrapAllowances(
                outputs=outputs or (),
                side_effects=side_effects,
                frozen_tables=check_global_tables(global_tables),
                replace=replace_,
                partial_history=partial,
            )
            made, stages = make_plan(what, topology, settings["application.id"], settings, cluster, allowed, before)
            made.save(file)
            _say_inputs(made, cluster)
            out = console()
            say_frozen(topology)
            listed = ", ".join(f"{stage.id} ({stage.tasks} tasks)" for stage in stages.stages)
            out.print(f"stages: sub-topologies {listed}, in this order")
            for name, count, _ in made.topics:
                out.print(f"internal topic {name}, {count} partitions")
            for refused in _refusals_of_run(made, topology, cluster):
                out.print(refused, soft_wrap=True)
            out.print(
                f"plan: {file}\nAfter `run` has started, do not start the application before `commit`: it would count "
                "on top of the written records. `abort` undoes the warm start.\n"
                f"{_wiped('before', made.application_id)}"
            )


def _say_inputs(made: BootstrapPlan, cluster: HistoryCluster) -> None:
    """Print the number of records of each input topic, and their size if the user may see it."""
    from rich.filesize import decimal

    out = console()
    records = sum(end - start for _, _, start, end in made.ranges)
    out.print(f"{len(made.ranges)} partitions with up to {records:,} records:")
    is_any_untold = False
    for topic in sorted({topic for topic, *_ in made.ranges}):
        ranges = [(partition, end - start) for name, partition, start, end in made.ranges if name == topic]
        size = cluster.bytes_of([TopicPartition(topic, partition) for partition, _ in ranges])
        on_disk = "" if size is None else f", {decimal(size)} on disk"
        is_any_untold = is_any_untold or size is None
        out.print(f"  {topic}: {sum(count for _, count in ranges):,} records{on_disk}")
    if is_any_untold:
        out.print(f"sizes on disk are unknown: {missing_right('DESCRIBE', CLUSTER)}", soft_wrap=True)


def _refusals_of_run(made: BootstrapPlan, topology: Topology, cluster: HistoryCluster) -> Iterator[str]:
    """Yield the reasons for which ``run`` refuses this plan without further options."""
    for command, check in (("run", _check_state_kept), ("run --sinks", _check_outputs_kept)):
        try:
            check(made, topology, cluster)
        except ConfigError as error:
            yield f"`{command}` will be refused: {error}"


def _check_state_kept(made: BootstrapPlan, topology: Topology, cluster: HistoryCluster) -> None:
    """Raise ConfigError if changelogs would delete written records."""
    from streams_py.history.retention import check_state_retention

    check_state_retention(cluster, made, now_ms())


def _check_outputs_kept(made: BootstrapPlan, topology: Topology, cluster: HistoryCluster) -> None:
    """Raise ConfigError if output topics would delete written records."""
    from streams_py.history.plan import sink_counts
    from streams_py.history.retention import check_retention

    counts = sink_counts(topology, made.application_id, cluster.partition_counts(), made.outputs)
    check_retention(cluster, counts, made.ranges, now_ms())


@bootstrap_app.command()
def run(
    bootstrap: BOOTSTRAP = None,
    config: Config = None,
    file: _Plan = _PLAN_FILE,
    sinks: Annotated[bool, typer.Option("--sinks", help="Also write outputs to their topics, exactly once.")] = False,
    and_commit: Annotated[bool, typer.Option("--commit", help="Verify and commit as well.")] = False,
    recount: Recount = False,
    accept_retention: Retention = False,
    option: SourceOption = None,
    work: Work = None,
    py_files: PyFiles = None,
    conf: Conf = None,
    master: Master = None,
) -> None:
    """Create the internal topics, run the stages on Spark, write the changelogs.

    Commits nothing without --commit.

    Needs Java 17 or later and the extra `spark`. After an interrupted run, undo it with abort and run again.

    Example: streams-py bootstrap run --master spark://host:7077 --work /shared/folder --commit
    """
    with _on_plan(file, bootstrap, config) as (planned, cluster, settings):
        from streams_py.history.bootstrap import Step
        from streams_py.history.fingerprint import check_settings

        options = kafka_options(settings, option, is_planned=True)
        topology = built_topology(planned.topology, settings)
        planned.check(topology, Step.PLANNED, Step.ABORTED)
        planned.check_outputs(sinks=sinks)
        check_settings(planned.settings, settings, str(file))
        if not accept_retention:
            _check_state_kept(planned, topology, cluster)
        if sinks and not accept_retention:
            _check_outputs_kept(planned, topology, cluster)
        with spark_of(master, conf, py_files) as spark:
            from streams_py.spark.history.warm_start import write_changelogs

            with progress() as tick:
                done = write_changelogs(
                    spark,
                    file,
                    settings,
                    cluster,
                    options,
                    sinks=sinks,
                    work=work,
                    replication_factor=int(settings.get("replication.factor", -1)),
                    tick=tick,
                )
            _say_written(done)
            if and_commit:
                _verify(spark, file, settings, options, recount=recount)
                _commit(file, cluster, settings)


def _say_written(done: StateWritten) -> None:
    for topic, count in done.left_out.items():
        console().print(
            f"{topic}: {count:,} records left out, because they are older than its retention.ms; "
            "the application continues without these windows"
        )
    say_dropped(done.dropped)
    records = sum(count for count, _ in done.plan.written.values())
    console().print(f"{records:,} records are in {len(done.plan.changelogs)} changelogs; next: verify, then commit")


@bootstrap_app.command()
def verify(
    bootstrap: BOOTSTRAP = None,
    config: Config = None,
    file: _Plan = _PLAN_FILE,
    recount: Recount = False,
    option: SourceOption = None,
    conf: Conf = None,
    master: Master = None,
) -> None:
    """Check the written changelogs and the inputs that were read.

    Compares the changelogs with the records that were written, and counts the inputs again.

    Example: streams-py bootstrap verify -b localhost:9092
    """
    with _on_plan(file, bootstrap, config) as (_, _, settings):
        options = kafka_options(settings, option, is_planned=True)
        with spark_of(master, conf) as spark:
            _verify(spark, file, settings, options, recount=recount)


@bootstrap_app.command()
def commit(bootstrap: BOOTSTRAP = None, config: Config = None, file: _Plan = _PLAN_FILE) -> None:
    """Commit the positions: the application will start there.

    Refused before verify, and while the group has members.

    Example: streams-py bootstrap commit -b localhost:9092
    """
    with _on_plan(file, bootstrap, config) as (_, cluster, settings):
        _commit(file, cluster, settings)


@bootstrap_app.command()
def abort(bootstrap: BOOTSTRAP = None, config: Config = None, file: _Plan = _PLAN_FILE) -> None:
    """Undo the run: delete the internal topics. The application then starts from the beginning.

    The plan can be run again with the same records. A new `plan` includes the records that have arrived since.

    Example: streams-py bootstrap abort -b localhost:9092
    """
    with _on_plan(file, bootstrap, config) as (planned, cluster, _):
        from streams_py.history import bootstrap_ends

        gone = bootstrap_ends.abort(planned, cluster)
        planned.aborted().save(file)
        console().print(f"deleted: {', '.join(gone) or 'nothing'}")
        if planned.written_to:
            console().print(
                f"outputs in {', '.join(planned.written_to)} stay: `run --sinks` of this plan skips the outputs "
                "that are written already, and a new plan is refused as long as they exist",
                soft_wrap=True,
            )
        if gone:
            console().print(_wiped("meanwhile", planned.application_id))


def _wiped(when: str, application_id: str) -> str:
    return (
        f"On each host where an instance ran {when}, delete its state: "
        f"streams-py reset -a {application_id} --state-dir DIR"
    )


def _verify(
    spark: SparkSession, file: Path, settings: Mapping[str, Any], options: Mapping[str, str], *, recount: bool
) -> None:
    from streams_py.spark.history.recounted import recount_plan
    from streams_py.spark.history.warm_start import verify_changelogs

    made = verify_changelogs(spark, file, settings, options, partial(recount_plan, options=options, whole=recount))
    records = sum(count for count, _ in made.written.values())
    console().print(f"verified: {records:,} records match what was written; {made.recounted}", soft_wrap=True)


def _commit(file: Path, cluster: HistoryCluster, settings: Mapping[str, Any]) -> None:
    from streams_py.history import bootstrap_ends
    from streams_py.history.bootstrap import BootstrapPlan, Step

    planned = BootstrapPlan.load(file)
    planned.check(built_topology(planned.topology, settings), Step.VERIFIED, Step.COMMITTING)
    bootstrap_ends.commit(planned, file, cluster)
    console().print(
        f"committed {len(planned.positions)} positions of {planned.application_id}: start it now (brokers delete the "
        "positions of a group without members after offsets.retention.minutes, seven days by default)"
    )


@contextlib.contextmanager
def _on_plan(
    file: Path, bootstrap: str | None, config: Path | None
) -> Iterator[tuple[BootstrapPlan, HistoryCluster, dict[str, Any]]]:
    """Yield the plan of a warm start, locked meanwhile, its cluster and its settings.

    Errors are explained.
    """
    from streams_py.history.bootstrap import BootstrapPlan, Step, check_cluster
    from streams_py.history.plan_files import held

    before: Step | None = None

    def interrupted() -> str:
        with contextlib.suppress(ConfigError):
            return f"interrupted; {BootstrapPlan.load(file).next_step()}"
        return "interrupted"

    def stands() -> str:
        with contextlib.suppress(ConfigError):
            left = BootstrapPlan.load(file)
            if before is not None and left.step is not before and left.step in (Step.RUNNING, Step.COMMITTING):
                return left.next_step()
        return ""

    with explained(interrupted, stands), held(file, BootstrapPlan.load) as planned:
        before = planned.step
        settings = settings_from(bootstrap, planned.application_id, config)
        with connected(settings) as cluster:
            check_cluster(planned, cluster)
            yield planned, cluster, settings
