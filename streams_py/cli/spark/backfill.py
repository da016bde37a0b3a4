"""The command ``backfill``: runs an application over its history on Spark, and writes its outputs."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Protocol

import typer

from streams_py.cli.options import BOOTSTRAP
from streams_py.cli.spark.backfill_plan import Order, check_archives, plan_backfill, planned_input
from streams_py.cli.spark.history_bar import progress
from streams_py.cli.spark.history_inputs import (
    check_kafka_options,
    check_program,
    check_sources,
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
    InputPaths,
    Master,
    Outputs,
    Partitions,
    Program,
    PyFiles,
    Recount,
    Retention,
    SourceOption,
    What,
    Work,
    connected,
    kafka_options,
    say_dropped,
    say_frozen,
    settings_from,
    spark_of,
)
from streams_py.cli.spark.outcome import console, explained
from streams_py.cli.spark.output_folder import check_new, held_folder, write_new
from streams_py.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streams_py.history.backfill import BackfillPlan
    from streams_py.history.cluster import HistoryCluster
    from streams_py.spark.history.run import Results

_PLAN_FILE: Final = Path("backfill.plan.json")

_Plan = Annotated[
    Path | None,
    typer.Option(
        help="With --sinks: file of the plan, which fixes the input. A repeated run with it continues.",
        show_default=str(_PLAN_FILE),
    ),
]
_Sinks = Annotated[bool, typer.Option("--sinks", help="Write outputs to their topics, exactly once (in transactions).")]


def backfill(
    what: What,
    out: Annotated[str | None, typer.Option(help="Folder for the outputs: one Parquet folder per topic.")] = None,
    sinks: _Sinks = False,
    inputs: InputPaths = None,
    partitions: Partitions = None,
    until: Annotated[int | None, typer.Option(help="Read only records before this timestamp, in ms.")] = None,
    plan: _Plan = None,
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
    with explained():
        target = _target(out, plan, sinks=sinks, accept_retention=accept_retention)
    with explained(target.interrupted, target.stands), contextlib.ExitStack() as until_the_end:
        settings = settings_from(bootstrap, application_id, config, "backfill")
        program = Program(what, settings, outputs or (), side_effects, global_tables)
        order = _order(program, inputs, partitions, until, option, to_files=not sinks)
        say_frozen(program.topology())
        order = target.prepare(order, until_the_end)
        with spark_of(master, conf, py_files) as spark, progress() as tick:
            from streams_py.spark.history.recounted import recount_results
            from streams_py.spark.history.run import run as run_history

            counts = target.begin(order, spark, work, until_the_end)
            with run_history(
                what,
                order.sources,
                config=settings,
                partitions={**counts, **order.partitions},
                until=until,
                work=work,
                allow_side_effects=side_effects,
                global_tables=global_tables,
                spark=spark,
                tick=tick,
            ) as results:
                counted = recount_results(results, target.seed, whole=recount, until_ms=until)
                there = target.write(order, spark, results)
                _say_results(results, counted, there)


def _order(
    program: Program,
    inputs: list[str] | None,
    partitions: list[str] | None,
    until: int | None,
    option: list[str] | None,
    *,
    to_files: bool,
) -> Order:
    """Return what to read, after all checks that need neither a cluster nor Spark."""
    kafka = kafka_options(program.settings, option)
    sources = sources_of(program.what, program.settings, inputs, kafka)
    check_program(program)
    written = check_writes([program])
    known = partitions_of(partitions, sources, written if to_files else ())
    return Order(program, sources, known, until, kafka, option)


class _Target(Protocol):
    """The place of the outputs: a folder, or topics."""

    @property
    def seed(self) -> str:
        """Selects the inputs to count again."""

    def interrupted(self) -> str:
        """Return the message after a signal."""

    def stands(self) -> str:
        """Return what an error leaves behind, or an empty text."""

    def prepare(self, order: Order, until_the_end: contextlib.ExitStack) -> Order:
        """Check everything that needs no Spark, and fix the input where the target requires it."""

    def begin(
        self, order: Order, spark: SparkSession, work: str | None, until_the_end: contextlib.ExitStack
    ) -> Mapping[str, int]:
        """Check the rest before the run. Returns the partition counts of the output topics."""

    def write(self, order: Order, spark: SparkSession, results: Results) -> int:
        """Write the outputs. Returns the number of records that existed already."""


def _target(out: str | None, plan: Path | None, *, sinks: bool, accept_retention: bool) -> _Target:
    if (out is None) == (not sinks):
        raise ConfigError("choose where to write outputs: --out FOLDER, or --sinks for their topics")
    if out is None:
        return _Topics(plan or _PLAN_FILE, accept_retention)
    if plan is not None:
        raise ConfigError(
            f"--plan {plan}: plans are only for outputs to topics (--sinks), because a folder gets all outputs or "
            "none; remove --plan",
            key="--plan",
        )
    return _Folder(out)


class _Folder:
    """One Parquet folder per output topic. A run writes all of them or none."""

    def __init__(self, out: str) -> None:
        self.seed = out
        self._is_complete = False

    def interrupted(self) -> str:
        if self._is_complete:
            return "interrupted; all records are written"
        return f"interrupted; no output is in {self.seed}, and the same command starts from the beginning"

    def stands(self) -> str:
        return ""

    def prepare(self, order: Order, until_the_end: contextlib.ExitStack) -> Order:
        check_sources(order.program.settings, order.option, order.kafka, order.sources.values())
        return order

    def begin(
        self, order: Order, spark: SparkSession, work: str | None, until_the_end: contextlib.ExitStack
    ) -> Mapping[str, int]:
        program = order.program
        until_the_end.enter_context(held_folder(spark, self.seed))
        check_new(spark, self.seed, program.what, program.settings, program.outputs)
        return dict.fromkeys(program.outputs, 1)

    def write(self, order: Order, spark: SparkSession, results: Results) -> int:
        write_new(spark, self.seed, results.sinks)
        self._is_complete = True
        return 0


class _Topics:
    """The output topics, written exactly once. The plan in a file lets an interrupted backfill continue."""

    def __init__(self, file: Path, accept_retention: bool) -> None:
        self._file = file
        self._accept_retention = accept_retention
        self._plan: BackfillPlan | None = None
        self._cluster: HistoryCluster | None = None
        self._is_complete = False

    @property
    def seed(self) -> str:
        return self._planned.id

    @property
    def _planned(self) -> BackfillPlan:
        assert self._plan is not None, "not prepared"
        return self._plan

    def interrupted(self) -> str:
        if self._is_complete:
            return "interrupted; all records are written"
        return "interrupted; repeat the command to continue"

    def stands(self) -> str:
        if self._plan is None or not self._plan.writers or self._is_complete:
            return ""
        return "the written records stay; fix the error and repeat the command to continue"

    def prepare(self, order: Order, until_the_end: contextlib.ExitStack) -> Order:
        from streams_py.history.backfill import BackfillPlan
        from streams_py.history.plan_files import held

        begun = until_the_end.enter_context(held(self._file, BackfillPlan.load))
        check_kafka_options(order.kafka, writes=True)
        self._cluster = until_the_end.enter_context(connected(order.program.settings))
        self._plan = plan_backfill(self._cluster, begun, self._file, order, accept_retention=self._accept_retention)
        sources = {topic: planned_input(self._plan, topic, order.kafka) for topic in order.sources}
        return replace(order, sources=sources, partitions=self._plan.partitions)

    def begin(
        self, order: Order, spark: SparkSession, work: str | None, until_the_end: contextlib.ExitStack
    ) -> Mapping[str, int]:
        from streams_py.history.plan import sink_counts
        from streams_py.spark.history.work import check_work
        from streams_py.spark.session import check_writes_once

        assert self._cluster is not None, "not prepared"
        program, plan = order.program, self._planned
        check_writes_once(spark)
        check_work(spark, work)
        now = self._cluster.partition_counts()
        counts = sink_counts(program.topology(), program.application_id, now, program.outputs)
        if not self._file.exists():
            if not self._accept_retention:
                check_archives(spark, self._cluster, program, plan)
            plan.save(self._file)
        return {**counts, **plan.outputs}

    def write(self, order: Order, spark: SparkSession, results: Results) -> int:
        from streams_py.spark.history.sinks import announce_sinks, write_sinks

        plan = self._planned
        writers = announce_sinks(results, order.kafka, plan.id, plan.place, plan.writers)
        self._plan = plan = replace(plan, writers=writers)
        plan.save(self._file)
        there = sum(task.skipped for task in write_sinks(results, order.kafka, plan.id, plan.place))
        replace(plan, done=True).save(self._file)
        self._is_complete = True
        return there


def _say_results(results: Results, counted: object, there: int) -> None:
    if there:
        console().print(f"{there:,} records existed already, from an earlier attempt")
    if counted is not None:
        console().print(str(counted))
    say_dropped(results.dropped())
    for topic in results.sinks:
        console().print(f"{topic}: {results.written(topic):,} records")
