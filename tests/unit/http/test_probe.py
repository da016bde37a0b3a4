"""The small server for probes and metrics: bounded against connections that say nothing."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import httpx
import pytest

from streams_py.http import probe
from streams_py.http.probe import Answer, ProbeServer


@pytest.fixture
def server() -> Iterator[ProbeServer]:
    def respond(path: str, headers: dict[str, str]) -> Answer:
        return Answer(200 if path != "/none" else 404, "text/plain", f"{path} {headers.get('x', '')}".encode())

    made = ProbeServer("127.0.0.1", 0, respond, name="probe", key="port", names=["mine"])
    yield made
    made.stop()
    made.stop()


def get(server: ProbeServer, path: str, **headers: str) -> httpx.Response:
    return httpx.get(f"http://127.0.0.1:{server.port}{path}", headers=headers, timeout=60, trust_env=False)


def said(server: ProbeServer, sent: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(sent)
        answer = b""
        with contextlib.suppress(ConnectionError):
            while piece := connection.recv(1 << 16):
                answer += piece
        return answer


def test_it_answers_get_and_head(server: ProbeServer) -> None:
    assert (get(server, "/ready?a=b", x="1").status_code, get(server, "/ready?a=b", x="1").text) == (
        200,
        "/ready?a=b 1",
    )
    assert get(server, "/none").status_code == 404
    head = httpx.head(f"http://127.0.0.1:{server.port}/ready", timeout=60, trust_env=False)
    assert (head.status_code, head.content) == (200, b"")
    assert httpx.post(f"http://127.0.0.1:{server.port}/ready", timeout=60, trust_env=False).status_code == 405


def test_names_of_others_are_refused(server: ProbeServer) -> None:
    assert get(server, "/ready", Host="rebound.example").status_code == 403
    assert get(server, "/ready", Host="mine").status_code == 200


@pytest.mark.parametrize(
    ("sent", "status"),
    [(b"garbage\r\n\r\n", b"400"), (b"GET / HTTP/2.0\r\n\r\n", b"505"), (b"GET /  HTTP/1.1\r\n\r\n", b"400")],
)
def test_what_is_not_http_is_told_so(server: ProbeServer, sent: bytes, status: bytes) -> None:
    assert said(server, sent).startswith(b"HTTP/1.1 " + status)


def test_header_that_is_too_long_ends_its_connection(server: ProbeServer) -> None:
    assert said(server, b"GET / HTTP/1.1\r\nX: " + b"x" * 100_000) == b""
    assert get(server, "/ready").status_code == 200


@pytest.mark.parametrize("sent", [b"", b"GET /rea"])
def test_silent_connections_cost_no_threads_and_lock_nobody_out(server: ProbeServer, sent: bytes) -> None:
    before = threading.active_count()
    with contextlib.ExitStack() as stack:
        silent = []
        for _ in range(240):
            silent.append(stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60)))
            silent[-1].sendall(sent)
        assert get(server, "/ready").status_code == 200
        assert threading.active_count() <= before + 2
        with contextlib.suppress(ConnectionError):
            assert silent[0].recv(1) == b""


def test_silent_connection_is_closed_after_a_while(server: ProbeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_REQUEST_S", 0.3)
    assert said(server, b"GET /rea") == b""


def test_callers_that_keep_their_answers_lock_nobody_out(server: ProbeServer) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(80):
            kept = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60))
            kept.sendall(b"GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n")
            with contextlib.suppress(ConnectionError):
                assert kept.recv(12) == b"HTTP/1.1 200"
        assert get(server, "/ready").status_code == 200
