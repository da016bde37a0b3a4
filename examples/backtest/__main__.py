"""Choose an assignor for a group from the group's history.

    python3 run.py backtest [FOLDER]
    BOOTSTRAP=localhost:9092 python3 run.py backtest

1. Three processes run the word count. They join and leave, and one is killed (history.py). The group records every
   rebalance.
2. Telemetry reads the records with Spark and writes tables and a report about the rebalances and their cost.
3. The backtest repeats every recorded assignment with three assignors: the default (high availability), the sticky
   one, and the custom one of examples/custom_assignor.py.
4. A few events are not enough for a choice. So the backtest also runs on a generated history of 200 situations, to
   find out whether the default assignor should warm up more copies at a time.

What to look at: the tables, the sentence below each of them, then the reports. Needs Java 17+ and the extra `spark`.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from examples.backtest.history import LiveGroup
from examples.word_count.demo import DemoError
from streams_py import StreamsError

_CANDIDATES = (
    "recorded",
    "high_availability=builtin:high_availability",
    "sticky=builtin:sticky",
    "heavy_on_large=examples.custom_assignor:HeavyOnLarge;app.heavy=1",
)
_LONG_CANDIDATES = (
    "default=builtin:high_availability",
    "warm=builtin:high_availability;max.warmup.replicas=10;acceptable.recovery.lag=1000",
)
_LONG_SITUATIONS = 200
_EVENT = "topic string, partition int, offset bigint, timestamp_ms bigint, value binary"
_SCENARIOS = ("",)


def make_tables(group: str, events: list[dict[str, Any]], folder: Path) -> Path:
    """Run telemetry: create tables and a report from records of the events topic."""
    from streams_py.spark.session import spark_session
    from streams_py.spark.telemetry import TableFolder
    from streams_py.telemetry.report.page import report_page
    from streams_py.telemetry.report.tables import read_tables

    tables = folder / "tables"
    session = spark_session("rebalance backtest", master="local[2]", **{"spark.sql.shuffle.partitions": 2})
    session.sparkContext.setLogLevel("ERROR")
    try:
        made = TableFolder(session, str(tables), group)
        made.claim()
        made.add(session.createDataFrame(events, _EVENT), 0)
    finally:
        session.stop()
    (folder / "telemetry.html").write_text(report_page(read_tables(tables)), encoding="utf-8")
    return tables


def generated(folder: Path) -> Path:
    """Generate a long history of a fictitious group; the same file in every run."""
    from streams_py.backtest.generate import History, generate

    path = folder / "generated.jsonl"
    history = History(tasks=30, clients=6, zones=("a", "b", "c"))
    path.write_text("".join(f"{text}\n" for text in generate(history, _LONG_SITUATIONS)), encoding="utf-8")
    return path


def compare(situations: Path, candidates: Sequence[str], out: Path, title: str, console: Console) -> Path:
    """Run the backtest: repeat the assignment of every situation with each candidate."""
    from streams_py.backtest.candidates import parse_candidate
    from streams_py.backtest.folder import RunFolder
    from streams_py.backtest.kernel import Orders
    from streams_py.backtest.report import report_page
    from streams_py.backtest.run import evaluate_locally, finish
    from streams_py.backtest.sources import Skipped, situations_in
    from streams_py.backtest.terminal import print_summary
    from streams_py.backtest.verdict import verdict_of

    orders = Orders([parse_candidate(text) for text in candidates], _SCENARIOS)
    summary = evaluate_locally(orders, situations_in(situations, Skipped()), out)
    verdict = verdict_of(summary)
    print_summary(console, summary, verdict)
    return Path(finish(RunFolder(str(out)), summary, verdict, report_page(summary, verdict, title=title)))


def main(arguments: list[str]) -> int:
    """Run the command; return 0 if all steps succeeded."""
    console = Console(highlight=False)

    def say(text: str) -> None:
        console.print(f"[dim]{time.strftime('%H:%M:%S')}[/dim] {text}")

    try:
        from streams_py.spark.session import check_platform

        check_platform()
        folder = Path(arguments[0]) if arguments else Path(tempfile.mkdtemp(prefix="rebalance-backtest-"))
        folder.mkdir(parents=True, exist_ok=True)
        with (
            tempfile.TemporaryDirectory(prefix="streams-py-backtest-") as state,
            LiveGroup(os.environ.get("BOOTSTRAP", "embedded"), Path(state), say) as group,
        ):
            group.play()
            events = group.events()  # before the processes are closed: the report shows the running group
            group.end_processes()
            say("telemetry: from the record to tables")
            tables = make_tables(group.name, events, folder)
        say("backtest: every situation again, with other assignors")
        report = compare(tables, _CANDIDATES, folder / "backtest", "word count", console)
        say(f"backtest: a generated history of {_LONG_SITUATIONS} situations, and two settings of the default assignor")
        long_report = compare(generated(folder), _LONG_CANDIDATES, folder / "generated", "generated history", console)
    except KeyboardInterrupt:
        console.print("ended by Ctrl-C")
        return 130
    except (DemoError, StreamsError, ModuleNotFoundError) as error:
        console.print(f"[red]failed:[/red] {error}", markup=True)
        return 1
    console.print(f"what happened: {folder / 'telemetry.html'}", soft_wrap=True)
    console.print(f"report: {report}", soft_wrap=True)
    console.print(f"report of the generated history: {long_report}", soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
