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
Measures this library beside its peers, in one run, and prints one table.

[bold]What is measured[/bold] (--only takes these names)

map, count, count-cached: records through a real Apache Kafka on this machine's JVM (Java 17+; Maven fetches the jars
once), beside a bare confluent-kafka loop, Java Kafka Streams (compiled with javac on the spot) and Quix Streams
(installed on first use into .venv-bench, because it pins other versions of the clients). One thread, 4 partitions.

processes: the map in four processes of one group, started by one command, beside one process, over twice the input.
processes-work: the same with a map whose function works for some 25 us on each record.

exactly-once: the count with commits every 100 ms, exactly once beside at least once.

window, table-join, stream-join: the same with windows of 10 s, with a table of 100,000 rows, and with two streams whose
records meet within 100 ms, beside Kafka Streams (and Quix Streams, for windows).

join-growth: the windowed join over four times as many records: time for each, and memory. No broker.

reading: reads of a store from another thread while records are counted. snapshots: an empty disk filled from a
snapshot, beside the same records replayed. No broker.

recovery: processes killed with SIGKILL while they count, with a store of a million keys
($STREAMS_PY_BENCH_RECOVERY_KEYS): the only one, under exactly-once, started again on its disk; and one of two that keep
copies for each other. Seconds until every partition has output again, session time-out (6 s) included.

gaps: partitions that are silent while members join, leave, drain and are killed, at 2,000 records/s with a standby
each, beside Kafka Streams. About nine minutes.

restore: a store of two million keys ($STREAMS_PY_BENCH_RESTORE_KEYS) restored from its changelog, beside Kafka Streams;
keys in no order, as compaction leaves them, and in their order. About six minutes.

inspect: a group of 100 members and 5,000 tasks looked at by the command, and by the page in a real Chromium, of which
members end one after the other (skipped without one). No broker.

async: map_values_async with look-ups of 10 ms, 64 at a time. chain: ten map and filter operators beside ten calls.

protocol: SubscriptionInfo v11 beside json.

start, imports, memory: fresh processes, embedded cluster.

assignors: the task assignors and the leader's assign step, beside Kafka Streams' own classes on a warm JVM (a JDK is
needed). Processor time; decisions are compared. What takes the JVM longer than 100 s (60 s with more than one standby)
is given up ($STREAMS_PY_BENCH_JVM_LIMIT_S). About 12 minutes.

simulator: whole groups in virtual time, checkers on.

connect: a round of 1,000 Connect workers, what moves when workers come and go, a file through a topic into PostgreSQL
(Debian's postgresql) by one worker process, beside a bare loop.

events: the leader's step with assignment events on beside off; the import with the extra spark beside without.

spark-read, telemetry, backtest: a topic read by the data source streams-kafka beside a bare loop; telemetry's tables
from 10,000 to 1,000,000 events; recorded rebalances decided again beside a plain loop, and from 1,000 to 100,000 of
them. All need the extra spark, and about three minutes each.

spark-history: word count over a million lines on Spark beside the live application, on two workers beside one, and ten
times as many records in files: time for each and memory. Needs the extra spark; about ten minutes.

[bold]How records are timed[/bold]

The output topic is stamped by the broker; a figure is the input worked off between the first and the last output, over
the time between them. Every peer commits equally often, runs alone, and has its results checked: a map must write each
record once, counts must add up to the input. Peers take turns, and the table shows medians.

Commits come every second, with a cache four times a second, because it writes only then and must be timed; Kafka
Streams' default of 30 s would be longer than the run. The bare loop commits nothing.

[bold]Examples[/bold]

python3 run.py bench --only map --records 50000 --runs 1    (a quick look)

python3 run.py bench --only protocol,imports    (no broker needed)

python3 run.py bench --only count --peers ours,java --runs 5
"""


def _unwrapped(text: str) -> str:
    """Paragraphs in one line each: the terminal's width decides where they break."""
    return "\n\n".join(" ".join(paragraph.split("\n")) for paragraph in text.strip().split("\n\n"))


def _names(text: str, known: tuple[str, ...], option: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(known)}", param_hint=option)
    return names


def bench(
    only: Annotated[str, typer.Option(help=f"Comma list of {', '.join(_GROUPS)}.")] = ",".join(_GROUPS),
    peers: Annotated[str, typer.Option(help=f"Comma list of {', '.join(PEERS)}; ours is always in.")] = ",".join(PEERS),
    records: Annotated[int, typer.Option(min=1000, help="Input records of about 100 bytes.")] = 1_000_000,
    keys: Annotated[int, typer.Option(min=1, help="Different keys among them.")] = 10_000,
    commit_interval_ms: Annotated[
        int | None, typer.Option(min=1, help="commit.interval.ms of every peer, for all jobs.")
    ] = None,
    runs: Annotated[int, typer.Option(min=1, help="Runs of each; the table shows the median.")] = 3,
) -> None:
    """Run what was asked for."""
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
                name, runs, lambda what: progress.update(task, description=what), beside_jvm=JAVA in chosen
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
    """The command."""
    made = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)
    made.command(help=_unwrapped(_HELP))(bench)
    return made


def main() -> None:
    """Entry point."""
    try:
        app()(prog_name="run.py bench")
    except KeyboardInterrupt:
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
