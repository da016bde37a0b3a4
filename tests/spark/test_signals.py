"""Commands on Spark that are stopped by Ctrl-C, SIGTERM or SIGHUP, sent to all of their processes together.

Terminals (also when they are closed), `timeout`, and service managers send signals in this way. The JVM gets them, too.
Other tests kill only the JVM, as the kernel does when memory is short.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from operator import attrgetter
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer

from streams_py.backtest.generate import History, generate
from streams_py.cli.usage import FAILED, NOT_DONE
from streams_py.history.bootstrap import BootstrapPlan, Step
from tests.support.spark.cluster import Cluster
from tests.support.spark.source import read
from tests.support.waiting import until

pytestmark = [pytest.mark.broker, pytest.mark.weekly, pytest.mark.timeout(900)]

_REPOSITORY: Final = Path(__file__).parents[2]
_INTERRUPTED: Final = 130
_SAID_BY_JVM: Final = "WARNING: Using incubator modules"  # when it starts
_PROGRAM: Final = """
import time
from pathlib import Path

from streams_py import StreamsBuilder, serdes


def slow(line):
    Path({mark!r}).touch()
    time.sleep(0.2)
    return line.upper()


def topology():
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    upper = builder.stream({lines!r}).map_values(slow)
    upper.to({out!r})
    upper.group_by_key().count(store="counts")
    return builder.build()
"""
_SIGNALS: Final = [signal.SIGTERM, signal.SIGINT]


class Commands:
    """An application with so many records that no command over its history finishes during a test."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.bootstrap, self.folder = cluster.bootstrap, folder
        self.lines, self.out = cluster.topic(2), cluster.topic(2)
        self.id = f"told-to-end-{self.lines}"
        self.plan, self.mark, self.temporary = folder / "plan.json", folder / "there", folder / "temporary"
        self.temporary.mkdir()
        program = folder / "app.py"
        program.write_text(_PROGRAM.format(lines=self.lines, out=self.out, mark=str(self.mark)))
        self.topology = f"{program}:topology"
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for at in range(4_000):
            producer.produce(self.lines, f"line {at}", f"k{at % 9}", at % 2)
        assert producer.flush(30) == 0

    def ended(
        self, how: signal.Signals, when: Callable[[int], object], *command: str, module: str = "streams_py"
    ) -> tuple[int, str, str]:
        """Stop a command and return its status and both outputs. SIGKILL is sent only to its JVM."""
        with self._started(module, *command) as process:
            until(lambda: when(process.pid) or process.poll() is not None, "the point to end it at", timeout_s=300)
            places = [place for jvm in jvms_of(process.pid) for place in temporary_of(jvm)]
            if when != jvms_of:
                assert [block for place in places for block in place.glob("blockmgr-*")], "Spark's folders are in there"
            if how is signal.SIGKILL:
                for jvm in jvms_of(process.pid):
                    os.kill(jvm, how)
            else:
                os.killpg(process.pid, how)
                os.killpg(process.pid, how)  # `timeout` does it twice
            output, said = process.communicate(timeout=120)
        assert not [place for place in places if place.exists()], "what the JVM has left is gone"
        # The next process removes folders of killed workers.
        assert not [*self.temporary.glob("streams-py-history-*/stage-*")], said
        lines = [line for line in said.splitlines(keepends=True) if not line.startswith(_SAID_BY_JVM)]
        return process.returncode, output, "".join(lines)

    @contextmanager
    def _started(self, *command: str) -> Iterator[subprocess.Popen[str]]:
        ours = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # these tests may run under `nohup`, the command does not
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", *command],
                cwd=_REPOSITORY, env={**os.environ, "TMPDIR": str(self.temporary), "COLUMNS": "400"}, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
        finally:
            signal.signal(signal.SIGHUP, ours)
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(60)

    @property
    def of_plan(self) -> tuple[str, ...]:
        """Options of the steps of a warm start."""
        return "--plan", str(self.plan), "--bootstrap", self.bootstrap

    def make_plan(self) -> None:
        """The first step of a warm start."""
        command = [sys.executable, "-m", "streams_py", "bootstrap", "plan", self.topology, *self.of_plan]
        subprocess.run([*command, "--application-id", self.id], cwd=_REPOSITORY, check=True, capture_output=True)

    def at_work(self, _: int) -> bool:
        """The topology has a record."""
        return self.mark.exists()


@pytest.fixture
def commands(cluster: Cluster, tmp_path: Path) -> Commands:
    return Commands(cluster, tmp_path)


def jvms_of(group: int) -> list[int]:
    """The JVMs among the processes of a group."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            head, _, rest = stat.read_text().rpartition(")")
            if head.endswith("(java") and int(rest.split()[2]) == group:
                found.append(int(stat.parent.name))
    return found


def temporary_of(jvm: int) -> list[Path]:
    """The temporary folder of a JVM, if its command line has it. The command line of a launcher does not."""
    option = "-Djava.io.tmpdir="
    words = Path(f"/proc/{jvm}/cmdline").read_text().split("\0")
    return [Path(word.removeprefix(option)) for word in words if word.startswith(option)]


@pytest.mark.parametrize("how", [*_SIGNALS, signal.SIGHUP], ids=attrgetter("name"))
def test_backfill_to_files_leaves_nothing_of_them(commands: Commands, how: signal.Signals) -> None:
    out = commands.folder / "made"
    place = ("--out", str(out), "--bootstrap", commands.bootstrap)
    status, _, said = commands.ended(how, commands.at_work, "backfill", commands.topology, *place)
    assert said == f"error: interrupted; no output is in {out}, and the same command starts from the beginning\n"
    assert status == _INTERRUPTED
    assert not out.exists()


@pytest.mark.parametrize("how", _SIGNALS, ids=attrgetter("name"))
def test_command_whose_jvm_is_starting_ends_with_a_sentence(commands: Commands, how: signal.Signals) -> None:
    out = commands.folder / "made"
    place = ("--out", str(out), "--bootstrap", commands.bootstrap)
    status, _, said = commands.ended(how, jvms_of, "backfill", commands.topology, *place)
    assert said == f"error: interrupted; no output is in {out}, and the same command starts from the beginning\n"
    assert status == _INTERRUPTED


@pytest.mark.parametrize("how", _SIGNALS, ids=attrgetter("name"))
def test_backfill_to_topics_lets_go_of_its_plan(commands: Commands, how: signal.Signals) -> None:
    more = ("--sinks", "--application-id", commands.id, "--plan", str(commands.plan), "--bootstrap", commands.bootstrap)
    status, _, said = commands.ended(how, commands.at_work, "backfill", commands.topology, *more)
    assert said == "error: interrupted; repeat the command to continue\n"
    assert status == _INTERRUPTED
    assert commands.plan.exists()
    assert not [*commands.folder.glob(".*")], "its lock is gone"
    assert not read({"kafka.bootstrap.servers": commands.bootstrap, "topics": commands.out})


@pytest.mark.parametrize("how", _SIGNALS, ids=attrgetter("name"))
def test_warm_start_says_how_it_is_taken_back(commands: Commands, how: signal.Signals) -> None:
    commands.make_plan()
    status, _, said = commands.ended(how, commands.at_work, "bootstrap", "run", *commands.of_plan)
    assert said == (
        f"error: interrupted; the warm start of {commands.id} is running: it was interrupted, so abort it "
        "and run it again\n"
    )
    assert status == _INTERRUPTED
    assert BootstrapPlan.load(commands.plan).step is Step.RUNNING
    assert not [*commands.folder.glob(".*")], "its lock is gone"


@pytest.mark.parametrize("how", _SIGNALS, ids=attrgetter("name"))
def test_comparison_writes_nothing(commands: Commands, how: signal.Signals) -> None:
    report = commands.folder / "report.json"
    both = [commands.topology] * 2
    more = ("--report", str(report), "--bootstrap", commands.bootstrap)
    status, _, said = commands.ended(how, commands.at_work, "diff", *both, *more)
    assert said == "error: interrupted; nothing was written\n"
    assert status == _INTERRUPTED
    assert not report.exists()


def telemetry_of(commands: Commands, cluster: Cluster) -> tuple[Callable[[int], object], *tuple[str, ...]]:
    """The condition that the command is working, and the command."""
    events, tables = f"{commands.id}-assignment-events", commands.folder / "tables"
    cluster.topic(1, name=events)
    producer = Producer({"bootstrap.servers": commands.bootstrap})
    producer.produce(events, b"garbage")
    assert producer.flush(30) == 0
    where = ("--tables", str(tables), "--bootstrap", commands.bootstrap)
    is_at_work = (tables / "_checkpoint" / "offsets" / "0").exists
    return lambda _: is_at_work(), "telemetry", "run", "--group", commands.id, *where


@pytest.mark.parametrize("how", _SIGNALS, ids=attrgetter("name"))
def test_telemetry_ends_with_complete_tables(commands: Commands, cluster: Cluster, how: signal.Signals) -> None:
    status, output, said = commands.ended(how, *telemetry_of(commands, cluster))
    assert said == ""
    assert output.splitlines()[-1].startswith("stopped; the tables are complete up to the last read of the topic")
    assert status == 0


def backtest_of(commands: Commands) -> tuple[Callable[[int], object], *tuple[str, ...]]:
    """The condition that the command is working, and the command."""
    inputs, out = commands.folder / "in.jsonl", commands.folder / "out"
    inputs.write_text("\n".join(generate(History(tasks=40, clients=6), 300)), encoding="utf-8")
    has_begun = (out / "backtest.json").exists
    return lambda _: has_begun(), "backtest", "--inputs", str(inputs), "--out", str(out), "--engine", "spark"


@pytest.mark.parametrize("how", _SIGNALS, ids=attrgetter("name"))
def test_backtest_can_be_resumed(commands: Commands, how: signal.Signals) -> None:
    status, _, said = commands.ended(how, *backtest_of(commands))
    assert said == "error: interrupted; repeat the command with --resume to continue\n"
    assert status == _INTERRUPTED


_KILLED: Final = (
    "Spark's JVM was killed (SIGKILL), possibly by the system because memory is short (dmesg shows it): use fewer "
    "cores or a smaller spark.driver.memory, or give the machine or the container more memory\n"
)


@pytest.mark.parametrize("name", ["backfill", "bootstrap", "diff"])
def test_command_over_a_history_that_loses_its_jvm_says_so(commands: Commands, name: str) -> None:
    where, application, stands = ("--bootstrap", commands.bootstrap), name, ""
    match name:
        case "backfill":
            command = (name, commands.topology, "--out", str(commands.folder / "made"), *where)
        case "diff":
            command = (name, *[commands.topology] * 2, *where)
        case _:
            commands.make_plan()
            command, application = (name, "run", *commands.of_plan), commands.id
            stands = f"; the warm start of {commands.id} is running: it was interrupted, so abort it and run it again"
    status, _, said = commands.ended(signal.SIGKILL, commands.at_work, *command)
    assert said == f"error: sub-topology 0 of {application}: {_KILLED.strip()}{stands}\n"
    assert status == (NOT_DONE if name == "diff" else FAILED), "1 is what diff says of outputs that differ"
    assert not (commands.folder / "made").exists()


def test_comparison_that_loses_its_jvm_when_both_runs_are_done_says_so(commands: Commands) -> None:
    report = commands.folder / "report.json"
    few = json.dumps({commands.lines: {"0": 1, "1": 1}})
    more = ("--option", f"ending={few}", "--report", str(report), "--bootstrap", commands.bootstrap)
    there = commands.folder / "compared"
    command = (str(there), "diff", *[commands.topology] * 2, *more)
    status, _, said = commands.ended(
        signal.SIGKILL, lambda _: there.exists(), *command, module="tests.support.spark.stopped_diff"
    )
    assert said == f"error: {_KILLED}"
    assert status == NOT_DONE
    assert not report.exists()


def test_telemetry_that_loses_its_jvm_says_so(commands: Commands, cluster: Cluster) -> None:
    status, _, said = commands.ended(signal.SIGKILL, *telemetry_of(commands, cluster))
    assert said == f"error: {_KILLED}"
    assert status == FAILED


def test_backtest_that_loses_its_jvm_says_so_and_can_be_resumed(commands: Commands) -> None:
    status, _, said = commands.ended(signal.SIGKILL, *backtest_of(commands))
    assert said == f"error: {_KILLED}"
    assert status == FAILED
