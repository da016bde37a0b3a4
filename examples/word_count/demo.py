"""Word count with two processes in one group. One is killed with SIGKILL and restarts, and the counts are still right.

    python3 run.py demo [FILE|FOLDER]

Counts the words of Python's own standard library (or of FILE, or of the text files in FOLDER), then compares the output
topic with a plain Counter over the same text. Runs on the embedded cluster, or on BOOTSTRAP=host:port.

What to look at: the table of tasks and members. Tasks move when the second process joins. All of them move to the other
process when it is killed, and some move back when it restarts. The kill happens between two batches of input.
Processing is at-least-once, so a kill during a batch would process its uncommitted records again and count them twice.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from streams_py import (
    BEGINNING,
    AdminError,
    KafkaClients,
    StreamsConfig,
    StreamsError,
    TaskId,
    TopicPartition,
    TopicSpec,
    create_topics,
)

_PARTITIONS = 4
_STEP_TIMEOUT_S = 120
_BYTES_MAX = 6_000_000
"""Approximate number of characters that are used of a large input, so that the demo does not take too long."""
_SUFFIXES = {".py", ".txt", ".md", ".rst", ".log", ".csv", ".json", ".toml", ".html", ".c", ".h", ".java"}


class DemoError(Exception):
    """The demo failed; the message says why."""


# -- input -------------------------------------------------------------------------------------------------------


def read_lines(source: Path) -> list[str]:
    """Return the non-empty lines of a file, or of the text files of a folder, in a fixed order."""
    if source.is_file():
        files: Iterator[Path] | list[Path] = [source]
    elif source.is_dir():
        files = sorted(path for path in source.rglob("*") if path.is_file() and path.suffix in _SUFFIXES)
    else:
        raise DemoError(f"{source} does not exist; give a text file or a folder")
    lines: list[str] = []
    size = 0
    for path in files:
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # skip unreadable files of a folder; the Counter gets the same lines
        lines += [line for line in text.splitlines() if line.strip()]
        size += len(text)
        if size > _BYTES_MAX:
            break
    if not lines:
        raise DemoError(f"{source} has no text to count")
    return lines


def count_words(lines: list[str]) -> Counter[str]:
    """Count the words with a plain Counter; the expected result."""
    counter: Counter[str] = Counter()
    for line in lines:
        counter.update(re.findall(r"\w+", line.lower()))
    return counter


# -- processes -----------------------------------------------------------------------------------------------------


class Worker:
    """One application process and the last status that it reported."""

    def __init__(self, name: str, order: dict[str, Any], log: IO[str]) -> None:
        self.name = name
        self.status: dict[str, Any] = {"state": "starting", "active": [], "standby": []}
        self.killed = False
        self._log = log
        self._process = subprocess.Popen(
            [sys.executable, "-m", "examples.word_count.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,  # Ctrl-C stops only the demo, which then closes its workers
        )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.status = json.loads(line)

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def check(self) -> None:
        """Raise DemoError if the process has stopped unexpectedly."""
        if not self.killed and self._process.poll() is not None:
            self._log.seek(0)
            raise DemoError(f"process {self.name} ended: {self.status.get('error', '')}\n{self._log.read()[-2000:]}")

    def kill(self) -> None:
        """Kill it with SIGKILL, so that it cannot leave the group."""
        self.killed = True
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self.status = {"state": "killed", "active": [], "standby": []}

    def close(self) -> None:
        """End it in order, or by force after a while."""
        with contextlib.suppress(OSError, ValueError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()


# -- the steps -------------------------------------------------------------------------------------------------------


class Demo:
    """Runs the demonstration on one cluster."""

    def __init__(self, bootstrap: str, lines: list[str], console: Console, folder: Path) -> None:
        self._lines = lines
        self._console = console
        self._folder = folder
        suffix = uuid.uuid4().hex[:6]
        self._input, self._output = f"text-lines-{suffix}", f"word-counts-{suffix}"
        self._settings: dict[str, Any] = {
            "application.id": f"word-count-{suffix}",
            "bootstrap.servers": f"embedded://word-count-{suffix}" if bootstrap == "embedded" else bootstrap,
            "commit.interval.ms": 250,
            "num.standby.replicas": 1,
        }
        if bootstrap != "embedded":  # short sessions, so that a killed process is detected soon
            self._settings |= {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500}
        self._workers: dict[str, Worker] = {}
        self._clients = KafkaClients(StreamsConfig.of(self._settings))
        self._admin = self._clients.admin()
        self._step = ""
        self._sent = 0

    def run(self) -> None:
        """Run all steps. Raises DemoError if a step fails or the counts differ."""
        create_topics(self._settings, TopicSpec(self._input, _PARTITIONS), TopicSpec(self._output, _PARTITIONS))
        with Live(get_renderable=self._table, console=self._console, refresh_per_second=8):
            third = len(self._lines) // 3
            self._say("the first process starts")
            self._start("A")
            self._await(lambda: self._owned("A") == self._all_tasks(), "process A to run all tasks")
            self._say("counting the first third")
            self._feed(self._lines[:third])
            self._say("the second process joins")
            self._start("B")
            self._await(lambda: self._shared("A", "B"), "the tasks to be shared")
            self._await(self._caught_up, "the input to be counted")
            self._say("process B is killed (SIGKILL)")
            self._workers["B"].kill()
            self._feed(self._lines[third : 2 * third])
            self._await(lambda: self._owned("A") == self._all_tasks(), "process A to take over all tasks")
            self._say("process B comes back")
            self._start("B")
            self._feed(self._lines[2 * third :])
            self._await(lambda: self._shared("A", "B"), "the tasks to be shared again")
            self._await(self._caught_up, "the rest to be counted")
            self._say("comparing with a plain Counter")
            self._compare()

    def close(self) -> None:
        """Close every process and client."""
        for worker in self._workers.values():
            worker.close()
        self._clients.close()

    # -- steps ---------------------------------------------------------------------------------------------

    def _start(self, name: str) -> None:
        if name in self._workers:
            self._workers[name].close()
        order = {
            "config": {**self._settings, "state.dir": str(self._folder / name)},
            "input": self._input,
            "output": self._output,
        }
        log = (self._folder / f"{name}.log").open("w+", encoding="utf-8")
        self._workers[name] = Worker(name, order, log)

    def _feed(self, lines: list[str]) -> None:
        producer = self._clients.producer("demo")
        try:
            for number, line in enumerate(lines):
                producer.produce(self._input, line.encode(), None, (self._sent + number) % _PARTITIONS, None, -1, None)
                if number % 10_000 == 0:
                    producer.poll(0)
            if producer.flush(60_000):
                raise DemoError("the input could not be written within 60 s")
            self._sent += len(lines)
        finally:
            producer.close()

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        limit = time.monotonic() + _STEP_TIMEOUT_S
        while not condition():
            for worker in self._workers.values():
                worker.check()
            if time.monotonic() > limit:
                raise DemoError(f"waited {_STEP_TIMEOUT_S} s for {what}")
            time.sleep(0.1)

    def _topics(self) -> dict[str, int]:
        described = self._admin.describe_topics(None)
        return {name: len(found) for name, found in described.items() if not isinstance(found, AdminError)}

    def _all_tasks(self) -> set[str]:
        return {str(TaskId(subtopology, number)) for subtopology in (0, 1) for number in range(_PARTITIONS)}

    def _owned(self, name: str) -> set[str]:
        status = self._workers[name].status
        return set(status["active"]) if status["state"] == "RUNNING" else set()

    def _shared(self, *names: str) -> bool:
        owned = [self._owned(name) for name in names]
        return (
            all(owned) and set().union(*owned) == self._all_tasks() and sum(map(len, owned)) == len(self._all_tasks())
        )

    def _caught_up(self) -> bool:
        """Whether all records sent so far are processed and committed."""
        application = self._settings["application.id"]
        internal = f"{application}-counts-repartition"
        if internal not in self._topics():
            return False
        for topic in (self._input, internal):  # in this order: records of the first go into the second
            partitions = [TopicPartition(topic, number) for number in range(_PARTITIONS)]
            committed = self._admin.committed_offsets(application, partitions)
            ends = self._admin.list_offsets(partitions)
            if any((committed.get(partition) or 0) != ends[partition] for partition in partitions):
                return False
        return True

    def _compare(self) -> None:
        expected = count_words(self._lines)
        counted = self._read_output()
        if counted != expected:
            wrong = sorted(word for word in expected.keys() | counted.keys() if expected[word] != counted[word])
            sample = ", ".join(f"{word!r} {counted[word]} instead of {expected[word]}" for word in wrong[:5])
            raise DemoError(f"{len(wrong)} of {len(expected)} words differ: {sample}")
        self._say(f"equal: {len(expected):,} different words, {sum(expected.values()):,} in all")

    def _read_output(self) -> Counter[str]:
        counts: Counter[str] = Counter()
        partitions = [TopicPartition(self._output, number) for number in range(_PARTITIONS)]
        ends = self._admin.list_offsets(partitions)
        left = sum(end for end in ends.values() if isinstance(end, int))
        consumer = self._clients.restore_consumer("demo")
        try:
            consumer.assign(dict.fromkeys(partitions, BEGINNING))
            limit = time.monotonic() + _STEP_TIMEOUT_S
            while left > 0:
                if time.monotonic() > limit:
                    raise DemoError(f"{left} records of {self._output} could not be read")
                for record in consumer.poll(5000, 200):
                    left -= 1
                    counts[(record.key() or b"").decode()] = int.from_bytes(record.value() or b"", "big", signed=True)
        finally:
            consumer.close()
        return counts

    # -- display -------------------------------------------------------------------------------------------

    def _say(self, step: str) -> None:
        self._step = step
        self._console.print(f"[dim]{time.strftime('%H:%M:%S')}[/dim] {step}")

    def _table(self) -> Table:
        table = Table(title=f"{self._sent:,} of {len(self._lines):,} lines sent", caption=self._step, min_width=60)
        table.add_column("member")
        table.add_column("state")
        tasks = sorted(self._all_tasks())
        for task in tasks:
            table.add_column(task, justify="center")
        for name, worker in sorted(self._workers.items()):
            status = worker.status
            marks = [
                "●" if t in status["active"] else "○" if t in status["standby"] else ""
                for t in sorted(self._all_tasks())
            ]
            table.add_row(f"{name} (pid {worker.pid})", status["state"], *marks)
        return table


def main() -> int:
    """Run the command; return 0 only if the counts are equal."""
    parser = argparse.ArgumentParser(
        prog="run.py demo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "source", nargs="?", type=Path, default=Path(sysconfig.get_path("stdlib")), metavar="FILE|FOLDER"
    )
    options = parser.parse_args()
    console = Console()
    demo: Demo | None = None
    with tempfile.TemporaryDirectory(prefix="streams-py-demo-") as folder:
        try:
            lines = read_lines(options.source)
            console.print(f"{len(lines):,} lines of {options.source}; ● active task, ○ standby; Ctrl-C ends it")
            demo = Demo(os.environ.get("BOOTSTRAP", "embedded"), lines, console, Path(folder))
            demo.run()
        except KeyboardInterrupt:
            console.print("ended by Ctrl-C")
            return 130
        except (DemoError, StreamsError) as error:
            console.print(f"[red]demo failed:[/red] {error}")
            return 1
        finally:
            if demo is not None:
                signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not interrupt closing
                demo.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
