"""Workers are killed, frozen past their session and stopped while records go from a file to files: none is lost."""

from __future__ import annotations

import json
import random
import signal
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streams_py.testing.broker import Broker
from tests.support.connect.processes import Workers
from tests.support.waiting import until

pytestmark = [pytest.mark.broker, pytest.mark.weekly, pytest.mark.timeout(900)]

_CONNECTORS = "streams_py.connect.connectors"
_FAULTS = 12
_LINES_PER_FAULT = 2_000


@pytest.fixture
def workers(kafka_broker: Broker, tmp_path: Path) -> Iterator[Workers]:
    workers = Workers(kafka_broker, tmp_path, f"connect-{uuid.uuid4().hex[:8]}", delay_ms=1_000, session_ms=6_000)
    yield workers
    workers.close()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_line_is_lost_and_files_have_each_record_once(workers: Workers, seed: int) -> None:
    chance = random.Random(seed)
    topic, lines, out = workers.make_topic(), workers.folder / "lines.jsonl", workers.folder / "out"
    lines.touch()
    names = ["w1", "w2", "w3"]
    for name in names:
        workers.start(name)
    source = {"connector.class": f"{_CONNECTORS}.file_source:FileSourceConnector", "file": str(lines), "topic": topic}
    sink = {"connector.class": f"{_CONNECTORS}.file_sink:FileSinkConnector", "directory": str(out), "topics": topic}
    common = {"format": "json"}
    workers.ask("POST", "/connectors", {"name": "in", "config": source | common | {"key.field": "n"}})
    workers.ask("POST", "/connectors", {"name": "out", "config": sink | common | {"tasks.max": "2"}})
    written = 0
    for _ in range(_FAULTS):
        with lines.open("a") as file:
            for number in range(written, written + _LINES_PER_FAULT):
                file.write(json.dumps({"n": number}) + "\n")
        written += _LINES_PER_FAULT
        time.sleep(chance.uniform(0.2, 2.5))  # the fault's moment; nothing is expected of it
        _fault(workers, chance.choice(names), chance.choice(["kill", "kill", "freeze", "stop"]))
    try:
        until(lambda: len(_numbers(out)) == written, "every line is in the files")
    except AssertionError as error:
        missing = sorted(set(range(written)) - _numbers(out))
        error.add_note(f"{len(missing)} of {written} are missing, first {missing[:5]}; {workers.said()}")
        raise
    for path in sorted(out.iterdir()):
        offsets = [record["offset"] for record in _records(path)]
        assert offsets == list(range(len(offsets))), path.name


def _fault(workers: Workers, name: str, kind: str) -> None:
    if kind == "freeze":
        process = workers.alive[name].process
        process.send_signal(signal.SIGSTOP)
        time.sleep(8)  # its session of 6 s ends meanwhile
        process.send_signal(signal.SIGCONT)
    elif kind == "kill":
        workers.kill(name)
        workers.start(name)
    else:
        workers.ask("GET", "/health", of=name)  # before it is up there is nothing that a signal could end in order
        workers.restart(name)


def _records(path: Path) -> list[dict[str, Any]]:
    complete = path.read_bytes().rpartition(b"\n")[0]
    return [json.loads(line) for line in complete.splitlines()]


def _numbers(out: Path) -> set[int]:
    time.sleep(0.5)  # there is much to read
    return {record["value"]["n"] for path in out.glob("*.json") for record in _records(path)}
