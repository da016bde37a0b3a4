"""The command line of the benchmarks."""

from __future__ import annotations

import contextlib
import os
import platform
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from benchmarks.local import LOCAL, local_rows
from benchmarks.peers import JAVA, OURS, PEERS
from benchmarks.records import JOBS, Settings, record_rows, steps
from benchmarks.table import Row, line_of, table_of

_GROUPS = (*JOBS, *LOCAL)

_HELP = """
Measures this library and its peers in one run, and prints one table.

[bold]Measurements[/bold] (names for --only)

map, count, count-cached: records through a real Apache Kafka on this machine's JVM (Java 17+; Maven downloads the jars
once). Compared with a bare confluent-kafka loop, Java Kafka Streams (compiled with javac) and Quix Streams (installed
on first use into .venv-bench, because it pins other versions of the clients). One thread, 4 partitions.

processes: the map in four processes of one group, started by one command, compared with one process, over twice the
input. processes-work: the same with a map function that takes about 25 us per record.

exactly-once: the count with commits every 100 ms, exactly-once compared with at-least-once.

window, table-join, stream-join: the same with windows of 10 s, with a table of 100,000 rows, and with two streams whose
records join within 100 ms. Compared with Kafka Streams (and Quix Streams, for windows).

join-growth: the windowed join over four times as many records: time per record, and memory. No broker.

reading: reads of a store from another thread while records are counted. snapshots: an empty disk filled from a
snapshot, compared with a replay of the same records. No broker.

recovery: processes killed with SIGKILL while they count, with a store of a million keys
($STREAMS_PY_BENCH_RECOVERY_KEYS). First a single process under exactly-once, which is restarted on its disk; then one
of two processes that keep standby copies for each other. Seconds until every partition has output again, including the
session timeout (6 s).

gaps: time without output of partitions while members join, leave, drain and are killed, at 2,000 records/s with a
standby each, compared with Kafka Streams. About nine minutes.

takeover: time without output after SIGKILL of one of three processes, and during a rolling restart, at Kafka's default
session timeout of 45 s: with siblings on the host, below run(processes=3), with a restart on the same volume, and with
exactly-once. Compared with Kafka Streams (at most 3 runs). About three minutes for each run, 15 with Kafka Streams.

restore: a store of two million keys ($STREAMS_PY_BENCH_RESTORE_KEYS) restored from its changelog, compared with Kafka
Streams; keys in random order, as compaction leaves them, and in key order. About six minutes.

inspect: a group of 100 members and 5,000 tasks shown by the command, and by the page in a real Chromium while members
stop one after the other (skipped without Chromium). No broker.

async: map_values_async with look-ups of 10 ms, 64 at a time. chain: ten map and filter operators compared with ten
calls.

protocol: SubscriptionInfo v11 compared with json.

start, imports, memory: new processes, embedded cluster.

assignors: the task assignors and the leader's assign step, compared with Kafka Streams' own classes on a warm JVM
(needs a JDK). Processor time; decisions are compared. Runs that take the JVM longer than 100 s (60 s with more than one
standby) are stopped ($STREAMS_PY_BENCH_JVM_LIMIT_S). About 12 minutes.

simulator: whole groups in virtual time, with all checkers.

connect: a round of 1,000 Connect workers; the jobs that move when workers join and leave; a file through a topic into
PostgreSQL (Debian's postgresql) by one worker process, compared with a bare loop.

events: the leader's step with and without assignment events; the import with and without the extra spark.

spark-read, telemetry, backtest: a topic read by the data source streams-kafka, compared with a bare loop; telemetry's
tables from 10,000 to 1,000,000 events; recorded rebalances repeated, compared with a plain loop, and with 1,000 to
100,000 situations. All need the extra spark, and about three minutes each.

spark-history: word count over a million lines on Spark, compared with the live application; two workers compared with
one; ten times as many records in files: time per record and memory. Needs the extra spark; about ten minutes.

[bold]How records are timed[/bold]

The broker stamps the records of the output topic. A rate is the input processed between the first and the last output,
divided by the time between them. All peers have the same commit interval and run alone, and their results are checked:
a map must write each record once, and counts must add up to the input. Peers take turns, and the table shows medians.

The commit interval is one second, or a quarter of a second with a cache, because a cache writes only at commits. Kafka
Streams' default of 30 s would be longer than the run. The bare loop commits nothing.

[bold]Examples[/bold]

python3 run.py bench --only map --records 50000 --runs 1    (a short run)

python3 run.py bench --only protocol,imports    (no broker needed)

python3 run.py bench --only count --peers ours,java --runs 5
"""


def _unwrapped(text: str) -> str:
    """Join the lines of each paragraph, so that it wraps at the terminal's width."""
    return "\n\n".join(" ".join(paragraph.split("\n")) for paragraph in text.strip().split("\n\n"))


def _names(text: str, known: tuple[str, ...], option: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise typer.BadParameter(f"{name!r} is not one of {', '.join(known)}", param_hint=option)
    return names


def bench(
    only: Annotated[str, typer.Option(help=f"Comma-separated list of {', '.join(_GROUPS)}.")] = ",".join(_GROUPS),
    peers: Annotated[
        str, typer.Option(help=f"Comma-separated list of {', '.join(PEERS)}; ours always runs.")
    ] = ",".join(PEERS),
    records: Annotated[int, typer.Option(min=1000, help="Number of input records of about 100 bytes.")] = 1_000_000,
    keys: Annotated[int, typer.Option(min=1, help="Number of different keys.")] = 10_000,
    commit_interval_ms: Annotated[
        int | None, typer.Option(min=1, help="commit.interval.ms of every peer, for all jobs.")
    ] = None,
    runs: Annotated[int, typer.Option(min=1, help="Runs of each measurement; the table shows the median.")] = 3,
) -> None:
    """Run the chosen benchmarks and print the table."""
    groups = _names(only, _GROUPS, "--only")
    chosen = [OURS, *(PEERS[name] for name in _names(peers, tuple(PEERS), "--peers") if name != OURS.name)]
    settings = Settings(records, keys, commit_interval_ms, runs, tuple(chosen))
    jobs = [JOBS[name] for name in groups if name in JOBS]
    local = [name for name in groups if name in LOCAL]
    console = Console() if sys.stdout.isatty() else Console(width=120)
    rows: list[Row] = []
    progress = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )
    stopped = False
    with progress, contextlib.suppress(KeyboardInterrupt):
        stopped = True
        task = progress.add_task("", total=steps(jobs, settings) + len(local))

        def tick_record(what: str) -> None:
            progress.update(task, description=what, advance=1)

        for name in local:
            progress.update(task, advance=1)
            for row in local_rows(
                name, runs, lambda what: progress.update(task, description=what), with_jvm=JAVA in chosen
            ):
                rows.append(row)
                progress.console.print(line_of(row))
        if jobs:
            rows += record_rows(jobs, settings, tick_record, lambda text: progress.console.print(text, style="yellow"))
        stopped = False
    title = f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.machine()}"
    if jobs:
        title += f"; {records:,} records of 100 bytes, {keys:,} keys"
    console.print(table_of(rows, title=f"{title}; {runs} run{'s' if runs > 1 else ''}{'; stopped' if stopped else ''}"))
    if stopped:
        raise typer.Exit(130)
    failed = sum(row.failed for row in rows)
    if failed:
        console.print(f"{failed} of {len(rows)} rows failed: see FAILED above", style="red")
        raise typer.Exit(1)


def app() -> typer.Typer:
    """Return the command."""
    made = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)
    made.command(help=_unwrapped(_HELP))(bench)
    return made


def main() -> None:
    """Run the command."""
    try:
        app()(prog_name="run.py bench")
    except KeyboardInterrupt:
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
