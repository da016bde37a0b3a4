"""``streams-py run``: an application in several processes, ended by every kind of end."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streams_py.testing.broker import EmbeddedBroker
from tests.support.waiting import PATIENCE_S, until

_APP = """
from streams_py import StreamsBuilder, serdes

builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
builder.stream("lines").map_values(str.upper).to("shouted")
"""


class Run:
    """The command, with its probes."""

    def __init__(self, broker: EmbeddedBroker, folder: Path, *more: str) -> None:
        with socket.socket() as found, socket.socket() as another:
            found.bind(("127.0.0.1", 0))
            another.bind(("127.0.0.1", 0))
            self._port, self._metrics_port = found.getsockname()[1], another.getsockname()[1]
        self.log = folder / "log"
        settings = {
            "application.id": "shout", "bootstrap.servers": broker.url, "state.dir": folder / "state",
            "session.timeout.ms": 2000, "heartbeat.interval.ms": 200,  # a rebalance takes half a session there
        }  # fmt: skip
        sets = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable, "-m", "streams_py", "run", str(folder / "app.py"), *sets,
                    "-p", "2", "--health", str(self._port), "--metrics", str(self._metrics_port), *more,
                ],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=0,
            )  # fmt: skip

    def health(self) -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            connection.request("GET", "/")
            return dict(json.loads(connection.getresponse().read()))
        except OSError:
            return {"ready": False, "processes": []}
        finally:
            connection.close()

    def metrics(self, name: str) -> list[str]:
        """Lines of one metric."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._metrics_port}/metrics", timeout=60) as answer:
            return [line for line in answer.read().decode().splitlines() if line.startswith(name + "{")]

    def await_ready(self) -> list[int]:
        """The processes' ids."""
        until(lambda: self.health()["ready"], "all processes run")
        return [process["pid"] for process in self.health()["processes"]]

    def end(self, number: int) -> int:
        os.killpg(self.process.pid, number)
        return self.process.wait(PATIENCE_S)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    broker, made = EmbeddedBroker(), list[Run]()
    for topic in ("lines", "shouted"):
        broker.create_topic(topic, 4)
    (tmp_path / "app.py").write_text(_APP)

    def run(*more: str) -> Run:
        made.append(Run(broker, tmp_path, *more))
        return made[-1]

    yield run
    for one in made:
        if one.process.poll() is None:
            one.process.kill()
    broker.close()


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_processes_share_the_tasks_come_back_when_killed_and_close_at_ctrl_c(start: Callable[..., Run]) -> None:
    run = start()
    first, second = run.await_ready()
    os.kill(second, signal.SIGKILL)
    until(lambda: run.health()["processes"][1]["restarts"] == 1, "its end is noticed")
    again = run.await_ready()
    assert again[0] == first
    assert again[1] != second

    def lags() -> list[tuple[str, ...]]:
        lines = run.metrics("kafka_streams_consumer_fetch_manager_metrics_records_lag")
        found = (re.search(r'partition="(\d+)".*process="(\d)".*topic="lines".* ([\d.]+)$', line) for line in lines)
        return sorted(one.groups() for one in found if one)

    until(lambda: [(partition, lag) for partition, _, lag in lags()] == [(str(n), "0.0") for n in range(4)], "4 lags")
    assert {process for _, process, _ in lags()} == {"1", "2"}
    restarts = run.metrics("kafka_streams_process_metrics_restarts_total")
    assert [line.rpartition(" ")[2] for line in restarts] == ["0.0", "1.0"]
    assert run.end(signal.SIGINT) == 0, run.log.read_text()
    assert not any(_is_alive(pid) for pid in again)
    log = run.log.read_text()
    assert "process 2 was killed by SIGKILL; restarting it in 1 s" in log
    assert "Traceback" not in log


def test_processes_close_when_their_supervisor_is_killed(start: Callable[..., Run]) -> None:
    run = start()
    processes = run.await_ready()
    run.end(signal.SIGKILL)
    until(lambda: not any(_is_alive(pid) for pid in processes), "they end")
    assert run.log.read_text().count("PENDING_SHUTDOWN -> NOT_RUNNING") == 2


def test_wrong_settings_are_one_sentence_before_anything_starts(start: Callable[..., Run]) -> None:
    run = start("--set", "num.stream.threads=-1")
    assert run.process.wait(PATIENCE_S) == 2
    (line,) = run.log.read_text().splitlines()
    assert "num.stream.threads" in line
