from __future__ import annotations

import http.client
import json
import socket
from dataclasses import replace

import pytest

from streams_py.errors import ConfigError
from streams_py.runtime.processes.health import Health, HealthServer, ProcessHealth

GOOD = Health(True, True, (ProcessHealth(1, 77, "RUNNING", True, True, 0),))


def _ask(port: int, path: str, method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(method, path)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


@pytest.mark.parametrize(
    ("health", "statuses"),
    [
        (GOOD, {"/live": 200, "/ready": 200, "/": 200}),
        (replace(GOOD, ready=False), {"/live": 200, "/ready": 503, "/": 503}),
        (replace(GOOD, live=False, ready=False), {"/live": 503, "/ready": 503, "/": 503}),
    ],
)
def test_probes_are_answered_by_status(health: Health, statuses: dict[str, int]) -> None:
    with HealthServer(0, lambda: health) as server:
        assert {path: _ask(server.port, path)[0] for path in statuses} == statuses
        body = json.loads(_ask(server.port, "/live?verbose=1")[1])
    assert body["processes"] == [
        {"process": 1, "pid": 77, "state": "RUNNING", "live": True, "ready": True, "restarts": 0}
    ]


def test_nothing_else_is_answered() -> None:
    with HealthServer("127.0.0.1:0", lambda: GOOD) as server:
        assert _ask(server.port, "/etc/passwd")[0] == 404
        assert _ask(server.port, "/live", "POST")[0] == 405


def test_a_port_in_use_and_a_wrong_address_are_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port} cannot be served .*; choose another port"):
            HealthServer(port, lambda: GOOD)
    for wrong in ("everywhere", ":80", "host:", "host:99999", -1):
        with pytest.raises(ConfigError, match="neither a port nor host:port"):
            HealthServer(wrong, lambda: GOOD)
