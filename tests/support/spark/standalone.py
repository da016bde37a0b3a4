"""A Spark standalone cluster on loopback: a master and workers, each worker a process group that a test may kill.

A Python process has one Spark session, and the tests' is local. So a driver on this cluster is a separate process,
started with :meth:`Standalone.run`.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pyspark

_HOME: Final = Path(pyspark.__file__).parent
_REPOSITORY: Final = Path(__file__).parents[3]
_STARTED_S: Final = 120.0
_MASTER: Final = "org.apache.spark.deploy.master.Master"
_WORKER: Final = "org.apache.spark.deploy.worker.Worker"


class Driver:
    """A Python program that runs on the cluster."""

    def __init__(self, process: subprocess.Popen[str], output: Path) -> None:
        self._process = process
        self._output = output

    @property
    def output(self) -> str:
        """Its output so far, including errors."""
        return self._output.read_text(encoding="utf-8", errors="replace")

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def wait(self, timeout_s: float) -> str:
        """Wait for its end and return its output. AssertionError, with the output, if it failed."""
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the driver has not ended in {timeout_s:g} s\n{self.output[-6_000:]}") from None
        assert code == 0, self.output[-6_000:]
        return self.output

    def kill(self) -> None:
        """Stop it and all processes that it has started."""
        _kill_group(self._process)


class Standalone:
    """``workers`` workers of one core and 1 GB each. ``master`` is the address for Spark."""

    def __init__(self, folder: Path, *, workers: int = 3) -> None:
        self._folder = folder
        self._workers: list[subprocess.Popen[str]] = []
        self._drivers: list[Driver] = []
        folder.mkdir(parents=True, exist_ok=True)
        self._master = self._start("master", _MASTER, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        try:
            self.master = self._await_line("master", r"Starting Spark master at (spark://\S+)")
            self.add_workers(workers)
        except BaseException:
            self.close()
            raise

    @property
    def environment(self) -> dict[str, str]:
        """For drivers, master and workers: loopback only, this Python, this repository's tests importable."""
        python = dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), sys.executable)
        given = {key: value for key, value in os.environ.items() if not key.startswith("SPARK_")}
        return given | python | {"SPARK_HOME": str(_HOME), "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONUNBUFFERED": "1"}

    @property
    def workers(self) -> int:
        """Number of workers that were not killed."""
        return sum(worker.poll() is None for worker in self._workers)

    def add_workers(self, count: int = 1) -> None:
        """Start more workers, and wait until the master knows them."""
        size = ("--cores", "1", "--memory", "1g")
        names = [f"worker-{len(self._workers) + number}" for number in range(count)]
        for name in names:
            where = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0", "--work-dir", str(self._folder / name))
            self._workers.append(self._start(name, _WORKER, *size, *where, self.master))
        for name in names:
            self._await_line(name, r"Successfully registered with (master)")

    def kill_worker(self, number: int = 0) -> None:
        """Kill a worker with its executors."""
        _kill_group([worker for worker in self._workers if worker.poll() is None][number])

    def run(self, *arguments: str, input: str | None = None) -> Driver:
        """Start ``python ARGUMENTS`` with the repository as its folder; ``input`` is its standard input."""
        output = self._folder / f"driver-{len(self._drivers)}.log"
        with output.open("w") as sink:
            process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=_REPOSITORY,
                env=self.environment,
                stdin=subprocess.DEVNULL if input is None else subprocess.PIPE,
                stdout=sink,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        if input is not None:
            assert process.stdin is not None
            process.stdin.write(input)
            process.stdin.close()
        self._drivers.append(Driver(process, output))
        return self._drivers[-1]

    def close(self) -> None:
        """Stop all processes."""
        for driver in self._drivers:
            driver.kill()
        for process in (*self._workers, self._master):
            _kill_group(process)

    def _start(self, name: str, *command: str) -> subprocess.Popen[str]:
        with self._log(name).open("w") as sink:
            return subprocess.Popen(
                [str(_HOME / "bin" / "spark-class"), *command],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _await_line(self, name: str, pattern: str) -> str:
        found: list[str] = []

        def is_there() -> bool:
            match = re.search(pattern, self._log(name).read_text(encoding="utf-8", errors="replace"))
            found.extend([] if match is None else [match[1]])
            return match is not None

        wait_until(f"{name} is up", is_there, _STARTED_S)
        return found[0]


def wait_until(what: str, condition: Callable[[], bool], timeout_s: float) -> None:
    """AssertionError naming ``what`` when it has not come true in time."""
    give_up = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < give_up, f"not in {timeout_s:g} s: {what}"
        time.sleep(0.1)


def _kill_group(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)
