from __future__ import annotations

import http.client
import json
import os
import socket
import sys
import time
import urllib.request
from collections.abc import Iterator

import pytest

from streams_py.config.streams_config import StreamsConfig
from streams_py.errors import ConfigError
from streams_py.runtime.processes.child import ChildProcess
from streams_py.runtime.processes.measured import Measured
from streams_py.runtime.processes.metrics import read_answer, request_metrics
from streams_py.runtime.processes.watched import watched
from streams_py.runtime.thread.states import State
from tests.support.waiting import until


class Client:
    """The part of KafkaStreams that is used here."""

    def __init__(self, **settings: str) -> None:
        self.config = StreamsConfig.of({"application.id": "app", "bootstrap.servers": "b:1"}, **settings)
        self.state = State.RUNNING
        self.alive, self.ready, self.closed = True, True, False

    def is_alive(self) -> bool:
        return self.alive

    def is_ready(self) -> bool:
        return self.ready

    def measure(self) -> list[Measured]:
        return [Measured("stream-metrics", (("client-id", "me"),), "state", self.state.value)]

    def close(self) -> bool:
        self.closed = True
        return True


@pytest.fixture
def pipes() -> Iterator[tuple[int, int]]:
    told, states = os.pipe()
    yield told, states
    os.close(told)
    os.close(states)


def test_one_address_for_queries_is_not_enough_for_several_processes() -> None:
    client = Client(application_server="h:80")
    with (
        pytest.raises(ConfigError, match=r"application\.server = h:80 is the address of one process"),
        watched(client, None, 2, None),
    ):
        pass
    with pytest.raises(ValueError, match="at least 1"), watched(client, None, 0, None):
        pass
    with watched(client, None, 1, None) as supervisor:
        assert supervisor is None


@pytest.mark.parametrize("seconds", [-1, float("nan")])
def test_time_to_drain_is_looked_at_before_anything_starts(seconds: float) -> None:
    with pytest.raises(ValueError, match="drain must be"), watched(Client(), None, 1, None, seconds):
        pass


def test_who_supervises_closes_the_client_that_it_does_not_run() -> None:
    client = Client()
    with watched(client, None, 2, None) as supervisor:
        assert supervisor is not None
        assert not client.closed
    assert client.closed


def test_a_single_client_is_probed_itself() -> None:
    client = Client()
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    with watched(client, None, 1, port):

        def ask(path: str) -> tuple[int, dict[str, object]]:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

        assert ask("/ready")[0] == 200
        client.ready, client.state = False, State.REBALANCING
        assert ask("/ready")[0] == 503
        status, body = ask("/live")
        assert (status, body["ready"]) == (200, False)
        client.alive = False
        assert ask("/live")[0] == 503


def test_a_process_of_several_tells_what_changes(pipes: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ChildProcess, "end_with_supervisor", lambda _: None)  # it would stop the test process
    told, states = pipes
    os.set_blocking(told, False)
    client, lines = Client(), list[bytes]()

    def has_told(line: bytes) -> bool:
        try:
            lines.extend(os.read(told, 1000).splitlines())
        except BlockingIOError:
            return False
        return line in lines

    requests, theirs = socket.socketpair()
    with requests, theirs, watched(client, ChildProcess(1, -1, states, theirs.fileno()), 4, 0, None, 0) as supervisor:
        assert read_answer(request_metrics(requests), time.monotonic() + 60) == tuple(client.measure())
        assert supervisor is None
        until(lambda: has_told(b"RUNNING 1 1"), "it says that it is ready")
        client.ready = False
        until(lambda: has_told(b"RUNNING 1 0"), "it says that it is not")
        lines.clear()
        until(lambda: has_told(b"RUNNING 1 0"), "it says so once more, because it is not frozen")
    assert set(lines) == {b"RUNNING 1 0"}


@pytest.mark.parametrize(
    ("settings", "seconds"),
    [
        ({}, 45),
        ({"session.timeout.ms": "10000"}, 10),
        ({"session.timeout.ms": "10000", "main.consumer.session.timeout.ms": "6000"}, 6),
    ],
)
def test_who_is_silent_for_a_session_counts_as_frozen(settings: dict[str, str], seconds: float) -> None:
    with watched(Client(**settings), None, 2, None) as supervisor:
        assert supervisor is not None
        assert supervisor._silence_max_s == seconds  # the test would have to freeze a process for this time


def test_metrics_of_a_single_client_are_served_without_a_supervisor() -> None:
    pytest.importorskip("prometheus_client")
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    with watched(Client(), None, 1, None, None, port):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            text = answer.read().decode()
        with (
            pytest.raises(ConfigError, match=f"metrics: 127.0.0.1:{port} cannot be served"),
            watched(Client(), None, 1, None, None, port),
        ):
            pass
    tags = 'application_id="app",client_id="me",process="1",state="RUNNING"'
    [line] = [line for line in text.splitlines() if line.startswith("kafka_streams_stream_metrics_state{")]
    assert sorted(line.partition("{")[2].partition("}")[0].split(",")) == tags.split(",")


@pytest.mark.parametrize("processes", [1, 2])
def test_probes_and_metrics_are_answered_under_configured_names_only(processes: int) -> None:
    pytest.importorskip("prometheus_client")
    ports = []
    for _ in range(2):
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            ports.append(found.getsockname()[1])

    def status(port: int, name: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", "/", headers={"Host": name})
        return connection.getresponse().status

    with watched(Client(), None, processes, f"127.0.0.1:{ports[0]}", None, ports[1], ["app.shop.svc"]):
        for port in ports:
            assert status(port, "evil.example") == 403
            assert status(port, f"app.shop.svc:{port}") != 403
            assert status(port, f"127.0.0.1:{port}") != 403


def test_metrics_without_their_extra_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "streams_py.metrics.prometheus", None)
    with pytest.raises(ConfigError, match=r"kafka-streams-py\[metrics\]"), watched(Client(), None, 1, None, None, 0):
        pass
    with (
        pytest.raises(ConfigError, match="metrics = 'x' is neither a port"),
        watched(Client(), None, 1, None, None, "x"),
    ):
        pass
