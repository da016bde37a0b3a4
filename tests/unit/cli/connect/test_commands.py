"""``streams-py connect``: why a worker is refused, and the output of the status."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from streams_protocol.connect import TaskId
from streams_py.cli.commands import app
from streams_py.connect import process
from streams_py.connect.rest.app import rest_app
from streams_py.connect.rest.server import rest_service
from streams_py.errors import BrokerUnavailableError
from tests.support.connect.memory_herder import Connector, Group, MemoryHerder, State, Status

WORKER = """
bootstrap.servers=127.0.0.1:1
group.id=g
config.storage.topic=c
offset.storage.topic=o
status.storage.topic=s
key.converter=json
value.converter=json
"""


def run(*arguments: str, width: int = 200) -> Result:
    return CliRunner().invoke(
        app, ["connect", *arguments], env={"COLUMNS": str(width), "TERM": "dumb", "NO_COLOR": "1"}
    )


def refused(result: Result) -> str:
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.strip().splitlines()
    return line


@pytest.fixture
def url() -> Iterator[str]:
    """A group: c and c-0 run on w1, c-1 has no worker, w2 lists c-7."""
    running = Status(State.RUNNING, "w1:1")
    group = Group(connectors={"c": Connector({}, connector=running, statuses={TaskId("c", 0): running})})
    server = rest_service()
    server.start(rest_app(MemoryHerder(group)))
    yield f"http://127.0.0.1:{server.port}"
    server.stop()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("static.tasks=a-1,x", "static.tasks: 'x' is not a task"),
        ("connect.protocol=foo", "connect.protocol"),
        ("group.id=", "group.id"),
        ("listeners=ftp://x", "listeners"),
    ],
)
def test_a_worker_with_wrong_settings_is_refused_with_a_sentence(tmp_path: Path, more: str, said: str) -> None:
    file = tmp_path / "worker.properties"
    file.write_text(f"{WORKER}{more}\n")
    assert said in refused(run("worker", "--config", str(file)))


def test_a_worker_whose_address_is_in_use_is_refused_before_it_joins(tmp_path: Path) -> None:
    file = tmp_path / "worker.properties"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        file.write_text(f"{WORKER}listeners=http://127.0.0.1:{port}\n")
        said = refused(run("worker", "--config", str(file)))
    assert f"listeners: 127.0.0.1:{port} cannot be served (Address already in use); " in said
    assert "choose another port" in said


def test_a_worker_without_a_cluster_could_not_do_its_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise BrokerUnavailableError("no answer from the Kafka cluster at 127.0.0.1:1")

    monkeypatch.setattr(process, "check_connection", away)
    file = tmp_path / "worker.properties"
    file.write_text(f"{WORKER}listeners=http://127.0.0.1:0\n")
    assert refused(run("worker", "--config", str(file))) == "no answer from the Kafka cluster at 127.0.0.1:1"


def test_the_status_is_a_table_of_jobs_by_workers(url: str) -> None:
    result = run("status", "--url", url)
    lines = result.output.splitlines()
    assert result.exit_code == 1  # c-1 has no worker
    assert lines[0] == "2 workers (1 static), 3 jobs, protocol static"
    cells = {line.split()[0]: line.split()[1:] for line in lines if line.strip().startswith("c")}
    assert cells == {"c": ["RUNNING"], "c-0": ["RUNNING"], "c-1": []}
    assert lines[-1] == "task c-1 has no worker: it is moving (could run it: w1:1)"


def test_on_a_narrow_terminal_the_status_is_a_list(url: str) -> None:
    rows = [line.split() for line in run("status", "--url", url, width=30).output.splitlines()]
    assert ["c-0", "w1:1", "RUNNING"] in rows


def test_the_status_as_json_has_jobs_with_their_workers(url: str) -> None:
    said = json.loads(run("status", "--url", url, "--json").stdout)
    task = {"kind": "task", "job": "c-0", "worker_id": "w1:1", "state": "RUNNING", "listed_by": []}
    assert task in said["jobs"]
    assert said["workers"][1] == {
        "worker_id": "w2:1", "leader": False, "static": {"connectors": [], "tasks": ["c-7"]}
    }  # fmt: skip
    assert said["unassigned"][0]["job"] == "c-1"


def test_without_a_worker_the_status_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    said = refused(run("status", "--url", f"http://127.0.0.1:{port}"))
    assert f"no worker answers at http://127.0.0.1:{port}" in said


class _Endless(httpx.SyncByteStream):
    """An endless body, and the number of bytes that were read of it."""

    def __init__(self) -> None:
        self.pieces = 0

    def __iter__(self) -> Iterator[bytes]:
        while True:
            self.pieces += 1
            yield b" " * (1 << 20)


@pytest.mark.parametrize("status_code", [200, 500])
def test_an_answer_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch, status_code: int) -> None:
    body = _Endless()
    transport = httpx.MockTransport(lambda _: httpx.Response(status_code, stream=body))
    client = httpx.Client
    monkeypatch.setattr(httpx, "Client", lambda **more: client(transport=transport, **more))
    assert "is longer than" in refused(run("status", "--url", "http://w1"))
    assert body.pieces < 100


@settings(max_examples=40)
@given(st.binary() | st.text(st.sampled_from('{}[]":,0123456789.eE+-NaInfity \\ud8')).map(str.encode))
def test_any_answer_is_a_status_or_one_sentence(body: bytes) -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(200, content=body))
    client = httpx.Client
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpx, "Client", lambda **more: client(transport=transport, **more))
        refused(run("status", "--url", "http://w1"))
