"""The commands ``backtest`` and ``backtest generate``.

``app`` is a Typer application, which ``python -m streams_py.cli.spark.backtest`` runs. Exit status: 0; 1 if a
candidate cannot be used; 2 if the command line is wrong or no decision could be computed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streams_py.cli.spark.outcome import console, explained
from streams_py.cli.spark.own_session import own_session
from streams_py.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streams_py.backtest.candidates import Candidate
    from streams_py.backtest.folder import RunFolder
    from streams_py.backtest.kernel import Orders
    from streams_py.backtest.summary import Summary

LOCAL_ROWS_MAX = 10_000
"""Number of rows above which the engine ``auto`` starts Spark."""

_UNUSABLE = 1


class Engine(StrEnum):
    """Where decisions are computed."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


_Assume = Annotated[
    list[str] | None, typer.Option(metavar="KEY=VALUE", help="With --live: a setting of the group; repeatable.")
]
_Config = Annotated[
    Path | None, typer.Option("--config", help="With --live: the application's .toml or .properties file.")
]
_Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar="BOOTSTRAP",
        help="With --live: host:port of a broker. Default: the value in --config, or localhost:9092.",
    ),
]
_Live = Annotated[
    bool, typer.Option("--live", help="Decide for the present situation of a running group, Java or Python; read-only.")
]
_Loop = Annotated[
    bool, typer.Option(help="Apply the recorded joins, losses and lags to a separate group for each candidate.")
]
_Rounds = Annotated[
    int, typer.Option(min=0, help="Maximum number of rebalances to follow a group for; 0: first decision only.")
]
_PyFiles = Annotated[list[Path] | None, typer.Option(exists=True, help="Python files for Spark's workers; repeatable.")]
_Conf = Annotated[
    list[str] | None, typer.Option(help="Spark setting as KEY=VALUE, e.g. spark.driver.memory=2g; repeatable.")
]
_Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="Try every candidate with KEY=VALUE,VALUE; repeatable: tries all combinations."),
]
_WhatIf = Annotated[
    list[str] | None,
    typer.Option(
        help="Change the situations before the decisions, e.g. 'lose_zone(zone=b) add_standby(1)'; repeatable."
    ),
]
_Candidates = Annotated[
    list[str] | None,
    typer.Option(
        help="[NAME=]SPEC[;KEY=VALUE].. where SPEC is one of recorded, builtin:high_availability, builtin:sticky, "
        "builtin:static, package.module:Class, path/to/file.py:Class; repeatable."
    ),
]
_Inputs = Annotated[
    Path | None, typer.Option(help="Instead of --tables: a JSONL file of situations, or of records of an events topic.")
]


def backtest(
    context: typer.Context,
    tables: Annotated[str | None, typer.Option(help="Folder of a group's tables, written by `telemetry run`.")] = None,
    inputs: _Inputs = None,
    candidate: _Candidates = None,
    out: Annotated[str, typer.Option(help="Folder for scores and report; must be new or empty.")] = "backtest",
    what_if: _WhatIf = None,
    settings: _Settings = None,
    base: Annotated[str | None, typer.Option(help="Candidate to compare the others with.")] = None,
    engine: Annotated[Engine, typer.Option(help="auto uses Spark for more than 10,000 rows.")] = Engine.AUTO,
    master: Annotated[str | None, typer.Option(help="Spark master. Default: all local cores.")] = None,
    conf: _Conf = None,
    py_files: _PyFiles = None,
    seed: Annotated[int, typer.Option(help="Random seed for candidates and what-ifs.")] = 0,
    limit_s: Annotated[float, typer.Option("--limit-s", help="Time limit for one decision, in seconds.")] = 60.0,
    rounds: _Rounds = 50,
    loop: _Loop = True,
    restore_rate: Annotated[int, typer.Option(min=1, help="Restore rate of a task, in records per second.")] = 50_000,
    produce_rate: Annotated[int, typer.Option(min=0, help="Growth of a changelog, in records per second.")] = 0,
    keep_decisions: Annotated[bool, typer.Option("--keep-decisions", help="Write decisions into the scores.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted run.")] = False,
    live: _Live = False,
    group: Annotated[str | None, typer.Option("--group", "-g", help="With --live: the group's application.id.")] = None,
    bootstrap: _Bootstrap = None,
    config: _Config = None,
    assume: _Assume = None,
    as_json: Annotated[bool, typer.Option("--json", help="With --live: print JSON instead of tables.")] = False,
) -> None:
    """Show what another assignor or setting would have done in the recorded rebalances.

    Situations come from --tables or --inputs, or from `backtest generate`. Scores and a report are written to --out.

    With --live, each candidate decides for the present situation of a running group, rebalance by rebalance, until a
    rebalance changes nothing. The command prints the decisions. It joins no group and changes nothing. Settings that
    are not visible from outside have Kafka's defaults, unless --assume or the application's own file (--config) gives
    them:

      streams-py backtest --live --group orders -b localhost:9092 --what-if '' --what-if 'remove_clients(1)'

    Exit status: 0 done; 1 a candidate cannot be used; 2 wrong usage, an unknown group, or no answer from the cluster.
    """
    if context.invoked_subcommand is not None:
        return
    if live == (group is None):
        raise typer.BadParameter("--live and --group require each other", param_hint="--group")
    if (tables is not None) + (inputs is not None) + live != 1:
        raise typer.BadParameter("give exactly one of --tables, --inputs and --live", param_hint="--tables")
    with explained("interrupted" if live else "interrupted; repeat the command with --resume to continue"):
        from streams_py.backtest.kernel import Orders
        from streams_py.backtest.rounds import RoundSettings

        _find_modules(py_files or ())
        orders = Orders(
            _candidates(candidate, settings or [], live=live),
            scenarios=_scenarios(what_if),
            seed=seed,
            limit_s=limit_s,
            rounds=rounds > 0,
            round_settings=RoundSettings(restore_rate, produce_rate, max(1, rounds)),
            keep_decisions=keep_decisions,
            loop=loop,
        )
        if group is not None:
            from streams_py.cli.groups.deciding_live import decide_live

            raise typer.Exit(decide_live(group, bootstrap, config, assumed=assume, orders=orders, as_json=as_json))
        run = _Run(orders, tables or str(inputs), out, resume=resume, base=base)
        session = dict(_setting(text) for text in conf or ())
        summary = run.on_spark(master, py_files or [], session) if run.chooses_spark(engine) else run.locally()
    raise typer.Exit(_UNUSABLE if summary.has_errors else 0)


def _find_modules(py_files: Iterable[Path]) -> None:
    """Let Python find assignors in the current folder and next to the files for Spark's workers."""
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # `python -m` does this; the installed command does not
    sys.path.extend(str(path.parent.resolve()) for path in py_files)


def _candidates(given: list[str] | None, settings: list[str], *, live: bool) -> Sequence[Candidate]:
    """Return the candidates, each with every combination of ``settings``.

    Raises:
        ConfigError: A candidate cannot be used.
    """
    from streams_py.backtest.candidates import RECORDED, choose, parse_candidate, sweep

    given = given or ["recorded", "high_availability=builtin:high_availability", "sticky=builtin:sticky"]
    if live and not any(parse_candidate(text).assignor == RECORDED for text in given):
        given = ["recorded", *given]  # the present assignment of the group
    candidates = sweep([parse_candidate(text) for text in given], settings)
    for candidate in candidates:
        choose(candidate)
    return candidates


def _scenarios(what_if: list[str] | None) -> tuple[str, ...]:
    from streams_py.backtest.what_if import check_what_if

    for text in what_if or ():
        check_what_if(text)
    return tuple(what_if or ("",))


def generate(
    out: Annotated[Path, typer.Option(help="JSONL file to write; must not exist yet.")],
    count: Annotated[int, typer.Option(min=1, help="Number of situations.")] = 100,
    tasks: Annotated[int, typer.Option(min=1, help="Number of tasks of the application.")] = 100,
    clients: Annotated[int, typer.Option(min=1, help="Number of instances at the start.")] = 10,
    threads: Annotated[int, typer.Option(min=1, help="Number of stream threads per instance.")] = 2,
    zones: Annotated[str, typer.Option(help="Zones of instances and brokers; empty: no zones.")] = "a,b,c",
    standbys: Annotated[int, typer.Option(min=0, help="num.standby.replicas.")] = 1,
    records: Annotated[int, typer.Option(min=0, help="Mean size of a changelog partition, in records.")] = 1_000_000,
    seed: Annotated[int, typer.Option(help="The same seed gives the same file.")] = 0,
) -> None:
    """Write a synthetic history: a group with joins, losses and restarts."""
    with explained():
        from streams_py.backtest.generate import History
        from streams_py.backtest.generate import generate as situations

        if out.exists():
            raise ConfigError(f"{out} exists; name a new file")
        named = tuple(zone.strip() for zone in zones.split(",") if zone.strip())
        history = History(tasks, clients, threads, named, standbys, records=records, seed=seed)
        with out.open("w", encoding="utf-8") as file:
            file.writelines(f"{text}\n" for text in situations(history, count))
    console().print(f"wrote {count:,} situations to {out}", soft_wrap=True)


class _Run:
    """One run, on either engine."""

    def __init__(self, orders: Orders, source: str, out: str, *, resume: bool, base: str | None) -> None:
        names = [candidate.name for candidate in orders.candidates]
        if base is not None and base not in names:
            raise ConfigError(f"--base {base!r} is not a candidate; use one of {', '.join(names[:20])}")
        self._orders = orders
        self._source = source
        self._out = out
        self._resume = resume
        self._base = base

    def chooses_spark(self, engine: Engine) -> bool:
        """Whether to use Spark. With the engine ``auto``, prints the choice and its reason."""
        if engine is not Engine.AUTO:
            return engine is Engine.SPARK
        if "://" in self._source:
            console().print("engine: spark, because the tables are not on this host")
            return True
        from streams_py.backtest.sources import Skipped, situations_in

        each = len(self._orders.candidates) * len(self._orders.all_scenarios)
        rows = 0
        for _ in situations_in(self._source, Skipped()):
            rows += each
            if rows > LOCAL_ROWS_MAX:
                console().print(f"engine: spark, because there are more than {LOCAL_ROWS_MAX:,} rows to compute")
                return True
        console().print(f"engine: local, because {rows:,} rows take less time than starting Spark")
        return False

    def locally(self) -> Summary:
        """Evaluate in this process, without Spark."""
        from streams_py.backtest.folder import RunFolder
        from streams_py.backtest.run import evaluate_locally
        from streams_py.backtest.sources import Skipped, situations_in
        from streams_py.system.markup import plain_text

        skipped = Skipped()
        situations = situations_in(self._source, skipped)
        try:
            with _progress() as tick:
                summary = evaluate_locally(
                    self._orders,
                    situations,
                    self._out,
                    inputs=self._source,
                    resume=self._resume,
                    base=self._base,
                    tick=tick,
                )
        finally:
            if skipped.lines:
                console().print(
                    f"[yellow]{skipped.lines:,} lines could not be read[/yellow] ({plain_text(skipped.reason)})"
                )
        self._finish(summary, RunFolder(self._out))
        return summary

    def on_spark(self, master: str | None, py_files: list[Path], conf: dict[str, str]) -> Summary:
        """Evaluate in a Spark session of this command."""
        from streams_py.spark.backtest import evaluate_on_spark, folder_of

        with own_session("backtest", master, conf) as session:
            with _progress() as tick:
                summary = evaluate_on_spark(
                    session,
                    self._orders,
                    self._source,
                    self._out,
                    resume=self._resume,
                    base=self._base,
                    py_files=[str(path) for path in py_files],
                    tick=tick,
                )
            self._finish(summary, folder_of(session, self._out))
            return summary

    def _finish(self, summary: Summary, folder: RunFolder) -> None:
        """Print the summary and write the report."""
        from streams_py.backtest.report import report_page
        from streams_py.backtest.run import finish
        from streams_py.backtest.terminal import print_summary
        from streams_py.backtest.verdict import verdict_of

        verdict = verdict_of(summary)
        print_summary(console(), summary, verdict)
        page = report_page(summary, verdict, title=Path(self._source).name or self._source)
        console().print(f"report: {finish(folder, summary, verdict, page)}", soft_wrap=True)


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not key.startswith("spark."):
        raise ConfigError(f"--conf {text!r} is not a Spark setting; use spark.KEY=VALUE")
    return key, value


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on a terminal.

    Elsewhere nothing is shown, because the result is complete.
    """
    out = console()
    if not out.is_terminal:
        yield lambda _done, _all: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=out, transient=True) as bar:
        task = bar.add_task("situations", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


app = typer.Typer(
    name="backtest",
    help="Show what another assignor or setting would have done in the recorded rebalances.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.callback(invoke_without_command=True)(backtest)
app.command()(generate)


if __name__ == "__main__":
    app()
