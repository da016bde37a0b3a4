"""The command ``backfill``: runs an application over its history on Spark, and writes its outputs."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from streams_py.cli.options import BOOTSTRAP
from streams_py.cli.spark.backfill_plan import Order
from streams_py.cli.spark.backfill_targets import Folder, Target, Topics
from streams_py.cli.spark.history_bar import progress
from streams_py.cli.spark.history_inputs import check_program, check_writes, partitions_of, sources_of
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
    kafka_options,
    say_dropped,
    say_frozen,
    settings_from,
    spark_of,
)
from streams_py.cli.spark.outcome import console, explained
from streams_py.errors import ConfigError

if TYPE_CHECKING:
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


def _target(out: str | None, plan: Path | None, *, sinks: bool, accept_retention: bool) -> Target:
    if (out is None) == (not sinks):
        raise ConfigError("choose where to write outputs: --out FOLDER, or --sinks for their topics")
    if out is None:
        return Topics(plan or _PLAN_FILE, accept_retention)
    if plan is not None:
        raise ConfigError(
            f"--plan {plan}: plans are only for outputs to topics (--sinks), because a folder gets all outputs or "
            "none; remove --plan",
            key="--plan",
        )
    return Folder(out)


def _say_results(results: Results, counted: object, there: int) -> None:
    if there:
        console().print(f"{there:,} records existed already, from an earlier attempt")
    if counted is not None:
        console().print(str(counted))
    say_dropped(results.dropped())
    for topic in results.sinks:
        console().print(f"{topic}: {results.written(topic):,} records")
