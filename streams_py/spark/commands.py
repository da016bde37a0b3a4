"""The commands ``telemetry run | report | placement | moves``.

``app()`` is a Typer application; ``python -m streams_py.spark.commands`` runs it by itself. Only ``run`` starts Spark.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from streams_py.errors import StreamsError

__all__ = ["app"]

_Folder = Annotated[str, typer.Option("--tables", help="Folder of the group's tables.")]


def run(
    group: Annotated[str, typer.Option(help="The application's application.id.")],
    tables: _Folder,
    bootstrap: Annotated[str, typer.Option(help="host:port[,host:port] of the cluster.")],
    once: Annotated[bool, typer.Option("--once", help="Read what is there, then end.")] = False,
    interval_s: Annotated[int, typer.Option(min=1, help="Seconds between looks at the topic.")] = 60,
    option: Annotated[
        list[str] | None,
        typer.Option(help="Option of streams-kafka as KEY=VALUE, e.g. kafka.sasl.password=env:PASSWORD; repeatable."),
    ] = None,
    master: Annotated[str | None, typer.Option(help="Spark master; all local cores by default.")] = None,
) -> None:
    """Keep the tables of a group current from its events topic.

    Needs Java 17 or later and the extra `spark`. The application must run with assignment.events.level=rebalances or
    tasks.
    """
    given = {"kafka.bootstrap.servers": bootstrap}
    for text in option or ():
        key, equals, value = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--option")
        given[key.strip()] = value
    with _explained():
        from streams_py.spark.session import spark_session
        from streams_py.spark.telemetry import start_telemetry

        session = spark_session(f"telemetry of {group}", master=master)
        session.sparkContext.setLogLevel("ERROR")
        try:
            query = start_telemetry(session, group, tables, given, once=once, interval_s=interval_s)
            query.awaitTermination()
        except KeyboardInterrupt:
            _console().print("stopped; the tables are complete up to the last look")
        finally:
            session.stop()
    if once:
        _console().print(f"tables of {group} are in {tables}; see `telemetry report --tables {tables}`")


def report(
    tables: _Folder, out: Annotated[Path, typer.Option(help="The HTML file to write.")] = Path("telemetry.html")
) -> None:
    """Write the report: one HTML file, light and dark, without a network."""
    with _explained():
        from streams_py.spark.report.page import report_page
        from streams_py.spark.report.tables import read_tables

        page = report_page(read_tables(tables))
        target = out / "telemetry.html" if out.is_dir() else out
        target.write_text(page, encoding="utf-8")
    _console().print(f"wrote {target}")


def placement(tables: _Folder) -> None:
    """Who has what after the last rebalance."""
    found = _read(tables)
    shown = Table(
        "client", "active", "waiting for", "standby", "warm-up", title=f"{found.group}: placement", title_justify="left"
    )
    by_client: dict[str, Counter[str]] = {}
    for row in found["placement"]:
        by_client.setdefault(row["client"], Counter())[row["role"]] += 1
    for client in sorted(by_client):
        of = by_client[client]
        shown.add_row(client, *(str(of[role]) for role in ("active", "target", "standby", "warmup")))
    _console().print(shown if by_client else f"no placement of {found.group} is recorded yet")


def moves(
    tables: _Folder, last: Annotated[int, typer.Option(min=1, help="How many rebalances, newest first.")] = 10
) -> None:
    """What the last rebalances moved, and what that cost."""
    found = _read(tables)
    rebalances = sorted(found["rebalance"], key=lambda row: row["at"], reverse=True)[:last]
    kinds: dict[str, Counter[str]] = {}
    records: Counter[str] = Counter()
    for row in found["move"]:
        kinds.setdefault(row["rebalance_id"], Counter())[row["kind"]] += 1
        if row["kind"] == "move_cold":
            records[row["rebalance_id"]] += row["restore_records"] or 0
    shown = Table(title=f"{found.group}: moves", title_justify="left")
    shown.add_column("at (UTC)", no_wrap=True)
    for name in ("generation", "because", "free", "warm", "cold", "to restore", "outcome"):
        shown.add_column(name, overflow="fold")
    for row in rebalances:
        of = kinds.get(row["rebalance_id"], Counter())
        figures = [str(of[kind]) for kind in ("move_free", "move_warm", "move_cold")]
        if of["unknown_base"]:
            figures = ["?"] * 3
        shown.add_row(
            f"{row['at']:%Y-%m-%d %H:%M:%S}",
            str(row["generation"]),
            ", ".join(row["trigger"]),
            *figures,
            f"{records[row['rebalance_id']]:,}",
            row["outcome"],
        )
    _console().print(shown if rebalances else f"no rebalance of {found.group} is recorded yet")


def _read(tables: str) -> Any:
    with _explained():
        from streams_py.spark.report.tables import read_tables

        return read_tables(tables)


class _explained:  # noqa: N801  # reads as a word: `with _explained():`
    """Our own errors end the command with one sentence and status 1."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, StreamsError | ModuleNotFoundError):
            remedy = "; install kafka-streams-py[spark]" if isinstance(error, ModuleNotFoundError) else ""
            Console(stderr=True).print(f"error: {error}{remedy}", style="red", highlight=False)
            raise typer.Exit(1) from error


def _console() -> Console:
    return Console(highlight=False)


def app() -> typer.Typer:
    """The commands under one name."""
    made = typer.Typer(
        name="telemetry",
        help="What the rebalances of a group did and cost.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    for command in (run, report, placement, moves):
        made.command()(command)
    return made


if __name__ == "__main__":
    app()()
