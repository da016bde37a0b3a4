"""The commands ``streams-py telemetry run | report | placement | moves``.

``app`` is a Typer application, which ``python -m streams_py.cli.spark.telemetry`` runs. Only ``run`` starts Spark.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from streams_py.cli.spark.outcome import console, explained, signals_to_end
from streams_py.cli.spark.own_session import own_session
from streams_py.cli.usage import pairs_of
from streams_py.errors import ConfigError, StreamsError
from streams_py.system.quiet_logs import quiet_logs

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from rich.table import Table

app = typer.Typer(
    name="telemetry",
    help="Show what the rebalances of a group did and cost.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

_Folder = Annotated[str, typer.Option("--tables", help="Folder of the group's tables.")]
_CHECK_TIMEOUT_MS: Final = "15000"
_LOOK_S: Final = 1
_STANDS: Final = "the tables are complete up to the last read of the topic; the next run continues from there"
_LONGEST_WORD: Final = len("subscription") + 1


class _Format(StrEnum):
    PARQUET = "parquet"
    DELTA = "delta"


_Option = Annotated[
    list[str] | None,
    typer.Option(help="Option of streams-kafka as KEY=VALUE, e.g. kafka.sasl.password=env:PASSWORD; repeatable."),
]


@app.command()
def run(
    group: Annotated[str, typer.Option(help="The application.id of the group.")],
    tables: _Folder,
    bootstrap: Annotated[
        str, typer.Option("--bootstrap", "-b", envvar="BOOTSTRAP", help="host:port[,host:port] of the cluster.")
    ],
    once: Annotated[bool, typer.Option("--once", help="Read the existing records, then stop.")] = False,
    interval_s: Annotated[int, typer.Option(min=1, help="Interval between two reads of the topic, in seconds.")] = 60,
    option: _Option = None,
    conf: Annotated[
        list[str] | None, typer.Option(help="Spark setting as KEY=VALUE, e.g. spark.executor.memory=1g; repeatable.")
    ] = None,
    master: Annotated[str | None, typer.Option(help="Spark master. Default: all local cores.")] = None,
    table_format: Annotated[
        _Format, typer.Option("--format", help="Format of the tables; delta needs the package delta-spark.")
    ] = _Format.PARQUET,
) -> None:
    """Keep the tables of a group current from its events topic.

    Needs Java 17 or later and the extra `spark`. The application must run with assignment.events.level=rebalances or
    tasks.

    Example: streams-py telemetry run --group word-count --tables tables -b localhost:9092 --once
    """
    # Hide log lines about single connection attempts; the final error is printed below.
    with quiet_logs(below=logging.ERROR), explained(f"interrupted; {_STANDS}"):
        from streams_py.cli.spark.source_options import CLUSTER, source_options
        from streams_py.spark.session import check_platform

        given = {"kafka.bootstrap.servers": bootstrap} | source_options(option, CLUSTER)
        settings = pairs_of(conf, "--conf")
        check_platform()
        from streams_py.spark.files import Folder
        from streams_py.spark.redelivered import redelivered_records
        from streams_py.spark.telemetry import start_telemetry
        from streams_py.system.file_locks import alone
        from streams_py.telemetry.delta import delta_settings

        if table_format is _Format.DELTA:
            settings = delta_settings() | settings

        begun = _check_topic(group, given)
        console().print("starting Spark")
        with (
            own_session(f"telemetry of {group}", master, settings) as session,
            # Two runs would delete each other's unfinished files.
            alone(Folder(session, tables).lock("--tables"), f"keeps the tables in {tables} current", option="--tables"),
        ):
            query = start_telemetry(
                session, group, tables, given, once=once, interval_s=interval_s, table_format=table_format.value
            )
            ended = _follow(query, begun, lambda: redelivered_records(session))
        if once and not ended:
            raise KeyboardInterrupt
    if ended:
        console().print(f"tables of {group} are in {tables}; see `streams-py telemetry report --tables {tables}`")
    else:
        console().print(f"stopped; {_STANDS}")


def _check_topic(group: str, given: Mapping[str, str]) -> Mapping[str, int | str]:
    """Read the topic once with a shorter timeout, before a JVM starts.

    Returns:
        The offsets where a query without a checkpoint starts.
    """
    from streams_py.spark.kafka.source import StreamsKafkaSource
    from streams_py.spark.telemetry import events_topic

    asked = {"topics": events_topic(group), "on.gone": "skip", **given}
    asked.setdefault("poll.timeout.ms", _CHECK_TIMEOUT_MS)
    reader = StreamsKafkaSource(asked).streamReader(schema=None)  # type: ignore[arg-type]  # not used
    try:
        return reader.initialOffset()
    except ConfigError as error:
        if error.key != "topics":
            raise
        raise ConfigError(
            f"{error}; the application writes events when it runs with assignment.events.level=rebalances or tasks"
        ) from None
    finally:
        reader.stop()


def _follow(query: StreamingQuery, begun: Mapping[str, int | str], redelivered: Callable[[], int]) -> bool:
    """Wait until the query ends (True) or a signal arrives (False).

    Prints a line for each micro-batch.

    Replaces PySpark's handler of Ctrl-C, which interrupts a running call to the JVM and prints long errors.

    Args:
        begun: Offsets where the query started.
        redelivered: Returns the number of records that clients have delivered more than once so far.
    """
    stopped = threading.Event()
    for number in signals_to_end():
        signal.signal(number, lambda *_: stopped.set())
    seen, known = -1, redelivered()
    while True:
        is_over = not query.isActive
        for progress in query.recentProgress:
            if progress["batchId"] > seen and progress["numInputRows"]:
                seen = progress["batchId"]
                before, known = known, redelivered()
                again = f"; {known - before:,} delivered more than once" if known > before else ""
                console().print(f"{_progress_line(progress, begun)}{again}")
        if is_over:
            query.awaitTermination()  # raises the query's error
            return True
        if stopped.wait(_LOOK_S):
            query.stop()
            return False


def _progress_line(progress: Any, begun: Mapping[str, int | str]) -> str:
    from streams_py.spark.kafka.progress import records_behind, records_read

    left, rows = sum(records_behind(progress).values()), records_read(progress, begun)
    took_s = progress["durationMs"].get("triggerExecution", 0) / 1_000
    more = f"; {left:,} left, about {left * took_s / rows:,.0f} s" if left > 0 and rows > 0 else ""
    return f"{time.strftime('%H:%M:%S')}  {rows:,} records in {took_s:,.1f} s{more}"


@app.command()
def report(
    tables: _Folder,
    out: Annotated[
        Path, typer.Option(help="The HTML file to write, or an existing folder for it and its charts (PNG files).")
    ] = Path("telemetry.html"),
) -> None:
    """Write the report: one HTML file, with a light and a dark theme, that works offline.

    Example: streams-py telemetry report --tables tables --out report.html
    """
    with explained():
        from streams_py.telemetry.report.page import report_page

        found = _read(tables, "rebalance")
        target = out / "telemetry.html" if out.is_dir() else out
        images: list[Path] = []
        try:
            target.write_text(report_page(found), encoding="utf-8")
            if out.is_dir():
                from streams_py.telemetry.report.images import write_images

                images = write_images(found, out)
        except OSError as error:
            raise ConfigError(f"{target} cannot be written: {error.strerror}; choose another --out") from None
    console().print(f"wrote {target}" + (f" and {len(images)} PNG files" if images else ""))


@app.command()
def placement(tables: _Folder) -> None:
    """Show the tasks of each client after the last rebalance.

    Waiting: tasks whose old owner has not revoked them yet.

    Example: streams-py telemetry placement --tables tables
    """
    from streams_py.system.markup import plain_text

    found = _read(tables, "placement")
    shown = _table(f"{found.group}: placement", "client", "active", "waiting", "standby", "warm-up")
    by_client: dict[str, Counter[str]] = {}
    for row in found["placement"]:
        by_client.setdefault(row["client"], Counter())[row["role"]] += 1
    for client in sorted(by_client):
        of = by_client[client]
        shown.add_row(plain_text(client), *(str(of[role]) for role in ("active", "target", "standby", "warmup")))
    console().print(shown)


@app.command()
def moves(
    tables: _Folder, last: Annotated[int, typer.Option(min=1, help="Number of rebalances, newest first.")] = 10
) -> None:
    """Show what the last rebalances moved, and the cost: records to restore for cold moves.

    Example: streams-py telemetry moves --tables tables --last 20
    """
    from streams_py.system.markup import plain_text

    found = _read(tables, "rebalance")
    rebalances = sorted(found["rebalance"], key=lambda row: row["at"], reverse=True)[:last]
    kinds: dict[str, Counter[str]] = {}
    records: Counter[str] = Counter()
    for row in found["move"]:
        kinds.setdefault(row["rebalance_id"], Counter())[row["kind"]] += 1
        if row["kind"] == "move_cold":
            records[row["rebalance_id"]] += row["restore_records"] or 0
    head = ("at (UTC)", "gen.", "because", "free", "warm", "cold", "restore", "outcome")
    shown = _table(f"{found.group}: moves", *head)
    for row in rebalances:
        of = kinds.get(row["rebalance_id"], Counter())
        counts = [str(of[kind]) for kind in ("move_free", "move_warm", "move_cold")]
        if of["unknown_base"]:
            counts = ["?"] * 3
        shown.add_row(
            f"{row['at']:%Y-%m-%d %H:%M:%S}",
            str(row["generation"]),
            plain_text(", ".join(row["trigger"]).replace("_", " ")),
            *counts,
            f"{records[row['rebalance_id']]:,}",
            plain_text(row["outcome"]),
        )
    console().print(shown)


def _read(tables: str, needed: str) -> Any:
    """Return the tables in a folder.

    Exits with an error if the table ``needed`` is empty: there would be nothing to show.
    """
    with explained():
        from streams_py.telemetry.report.tables import read_tables

        found = read_tables(tables)
        if not found[needed]:
            raise StreamsError(
                f"the tables in {tables} contain no {needed} of {found.group} yet; run `streams-py telemetry run "
                f"--group {found.group} --tables {tables}`, and check that the application writes events "
                "(assignment.events.level)"
            )
        return found


def _table(title: str, *columns: str) -> Table:
    """Create a table with rows of one line each, even in 80 columns. The first column is never cut off."""
    from rich import box
    from rich.table import Table

    from streams_py.system.markup import plain_text

    made = Table(title=plain_text(title), title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 0), pad_edge=False)
    for number, name in enumerate(columns):
        made.add_column(name, no_wrap=number == 0, min_width=_LONGEST_WORD if name == "because" else None)
    return made


if __name__ == "__main__":
    app()
