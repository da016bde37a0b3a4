"""Servers that send or read one byte at a time, so that no single read or write takes long."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from streams_py.cli.connect import status
from streams_py.connect.errors import ConnectError, NotLeaderError
from streams_py.connect.rest import tasks
from streams_py.connect.rest.forwarding import OtherWorkers
from streams_py.connect.rest.protection import RestProtection
from streams_py.errors import RegistryUnavailableError
from streams_py.http.deadlines import bound_duration
from streams_py.registry import SchemaRegistry
from tests.support.connect.certificates import Authority
from tests.support.registry.stub import RegistryStub, running

TIMEOUT_S = 0.4
PAUSE_S = 0.1
"""Shorter than the timeout, so that each read succeeds."""
DRIPPED = 60
"""Bytes that are sent one by one. Together they take far longer than the timeout."""
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
KINDS = ("header", "informational", "body")


class Dripping:
    """A server whose answers are valid, but arrive one byte at a time.

    ``kind`` is the part that arrives slowly, or "whole" for a fast answer. ``body`` is the answer.
    """

    def __init__(self, kind: str, body: bytes = b"{}") -> None:
        self._kind = kind
        self._body = body
        self._stop = threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                self._threads.append(threading.Thread(target=self._serve, args=(connection,), daemon=True))
                self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            connection.recv(65_536)
            body = b" " * DRIPPED + self._body
            length = f"Content-Length: {len(body)}\r\n\r\n".encode()
            match self._kind:
                case "header":
                    self._drip(connection, b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * DRIPPED + b"\r\n")
                    connection.sendall(HEAD.partition(b"\r\n")[2] + length + body)
                case "informational":
                    self._drip(connection, b"HTTP/1.1 100 Continue\r\n\r\n" * 3)
                    connection.sendall(HEAD + length + body)
                case "whole":
                    connection.sendall(HEAD + length + body)
                case _:
                    connection.sendall(HEAD + length)
                    self._drip(connection, body)

    def _drip(self, connection: socket.socket, data: bytes) -> None:
        for at in range(len(data)):
            connection.sendall(data[at : at + 1])
            if self._stop.wait(PAUSE_S):
                return

    def close(self) -> None:
        self._stop.set()
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for thread in self._threads:
            thread.join()


@contextlib.contextmanager
def dripping(kind: str, body: bytes = b"{}") -> Iterator[Dripping]:
    server = Dripping(kind, body)
    try:
        yield server
    finally:
        server.close()


@pytest.fixture(params=KINDS)
def slow(request: pytest.FixtureRequest) -> Iterator[Dripping]:
    with dripping(request.param) as server:
        yield server


def bounded(**options: Any) -> httpx.Client:
    client = httpx.Client(timeout=TIMEOUT_S, trust_env=False, **options)
    bound_duration(client, TIMEOUT_S)
    return client


def test_read_of_a_client_ends(slow: Dripping) -> None:
    with bounded() as client, pytest.raises(httpx.ReadTimeout):
        client.get(slow.url)


def test_streamed_read_ends(slow: Dripping) -> None:
    with bounded() as client, pytest.raises(httpx.ReadTimeout), client.stream("GET", slow.url) as answer:
        list(answer.iter_bytes())


def test_each_request_has_its_own_time() -> None:
    """A connection that waited between two requests is used again, and the second request is not late."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                while connection.recv(65_536):
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        client = httpx.Client(trust_env=False)
        bound_duration(client, 3.0)
        with client:
            for _ in range(4):
                assert client.get(f"http://127.0.0.1:{listening.getsockname()[1]}").text == "ok"
                threading.Event().wait(1.0)
        thread.join()


def test_write_to_a_server_that_reads_slowly_ends() -> None:
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)

        def read() -> None:
            connection, _ = listening.accept()
            with connection, contextlib.suppress(OSError):
                while connection.recv(400_000):  # each write finds room soon
                    if stop.wait(PAUSE_S):
                        return

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        with bounded() as client, pytest.raises(httpx.WriteTimeout):
            client.post(f"http://127.0.0.1:{listening.getsockname()[1]}", content=bytes(64 << 20))
        stop.set()
        thread.join()


def test_tls_handshake_ends() -> None:
    """The server sends the record of its greeting one byte at a time."""
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection, contextlib.suppress(OSError):
                connection.recv(65_536)
                for byte in b"\x16\x03\x03\x40\x00" + bytes(DRIPPED):
                    connection.sendall(bytes((byte,)))
                    if stop.wait(PAUSE_S):
                        return

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        with bounded() as client, pytest.raises((httpx.ConnectTimeout, httpx.ReadTimeout)):
            client.get(f"https://127.0.0.1:{listening.getsockname()[1]}")
        stop.set()
        thread.join()


def test_body_over_tls_ends(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.signed("server"))
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            plain, _ = listening.accept()
            with contextlib.suppress(OSError), context.wrap_socket(plain, server_side=True) as connection:
                connection.recv(65_536)
                connection.sendall(HEAD + f"Content-Length: {DRIPPED}\r\n\r\n".encode())
                for _ in range(DRIPPED):
                    connection.sendall(b" ")
                    if stop.wait(PAUSE_S):
                        return

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        verify = ssl.create_default_context(cafile=authority.certificate)
        client = httpx.Client(timeout=3.0, trust_env=False, verify=verify)
        bound_duration(client, 3.0)  # the handshake takes a while on a busy machine
        with client, pytest.raises(httpx.ReadTimeout):
            client.get(f"https://127.0.0.1:{listening.getsockname()[1]}")
        stop.set()
        thread.join()


def test_name_with_addresses_that_do_not_answer_leaves_time_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    timeouts: list[float] = []

    class Inner:
        def connect_tcp(self, host: str, port: int, timeout: float, **_: Any) -> Any:
            timeouts.append(timeout)
            if host != "192.0.2.3":
                raise httpx_core.ConnectTimeout("no answer")
            raise httpx_core.ConnectError("refused")

    import httpcore as httpx_core

    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"192.0.2.{number}", 1)) for number in (1, 2, 3)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    client: Any = httpx.Client(trust_env=False, timeout=30)
    client._transport._pool._network_backend = Inner()  # httpx takes no network from its caller
    bound_duration(client, 30)
    with client, pytest.raises(httpx.ConnectError, match="refused"):
        client.get("http://server")
    assert [round(timeout) for timeout in timeouts] == [10, 15, 30]


# -- the clients of the library ----------------------------------------------------------------------------------


def test_registry_cannot_hold_the_stream_thread(slow: Dripping) -> None:
    registry = SchemaRegistry(slow.url, timeout_ms=int(TIMEOUT_S * 1000))
    read = registry.avro('"string"').deserializer("t", is_key=False)
    with pytest.raises(RegistryUnavailableError, match="Timeout"):
        read(b"\x00\x00\x00\x00\x01\x02a")


def tokens_of(address: str, *, url: str = "http://127.0.0.1:1", timeout_ms: int = 60_000) -> SchemaRegistry:
    return SchemaRegistry(
        url,
        {
            "bearer.auth.credentials.source": "OAUTHBEARER",
            "bearer.auth.client.id": "id",
            "bearer.auth.client.secret": "secret-of-the-client",
            "bearer.auth.scope": "scope",
            "bearer.auth.issuer.endpoint.url": address,
            "bearer.auth.logical.cluster": "cluster",
            "bearer.auth.identity.pool.id": "pool",
        },
        timeout_ms=timeout_ms,
    )


def test_token_service_cannot_hold_the_stream_thread(slow: Dripping) -> None:
    registry = tokens_of(slow.url, timeout_ms=int(TIMEOUT_S * 1000))
    token = json.dumps({"access_token": "t", "token_type": "bearer", "expires_in": 60}).encode()
    slow._body = token
    read = registry.avro('"string"').deserializer("t", is_key=False)
    with pytest.raises(RegistryUnavailableError, match="the token service returned no token"):
        read(b"\x00\x00\x00\x00\x01\x02a")


@pytest.mark.parametrize("expiry", ["", ',"expires_in":"soon"', ',"expires_in":null', ',"expires_in":[]'])
def test_token_without_a_valid_expiry_time_is_not_blamed_on_the_record(expiry: str) -> None:
    token = f'{{"access_token":"t","token_type":"bearer"{expiry}}}'.encode()
    with dripping("whole", token) as tokens, running(RegistryStub()) as stub:
        registry = tokens_of(tokens.url, url=stub.url)
        read = registry.avro('"string"').deserializer("t", is_key=False)
        outcomes = []
        stub.answer = 200, b'{"schema":"\\"string\\""}'
        for number in (1, 2):
            try:
                outcomes.append(read(b"\x00" + number.to_bytes(4, "big") + b"\x02a"))
            except RegistryUnavailableError:
                outcomes.append("unavailable")
    assert set(outcomes) <= {"a", "unavailable"}
    if not expiry:
        assert outcomes == ["a", "a"]  # the token is requested again


def test_leader_cannot_hold_the_worker(slow: Dripping, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "_TIMEOUT_S", TIMEOUT_S)
    sender = tasks.TaskConfigSender()
    with pytest.raises(ConnectError, match="does not answer"):
        sender.send(slow.url, "c", [], None)
    sender.close()


def test_other_worker_cannot_hold_a_forwarded_request(slow: Dripping) -> None:
    async def forward() -> object:
        workers = OtherWorkers(RestProtection())

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        scope = {"type": "http", "method": "GET", "raw_path": b"/connectors", "query_string": b"", "headers": []}
        try:
            return await workers.forward(Request(scope, receive), NotLeaderError("not here", slow.url), TIMEOUT_S)
        finally:
            await workers.close()

    with pytest.raises(ConnectError, match="does not answer"):
        asyncio.run(forward())


def test_worker_cannot_hold_the_status_command(
    slow: Dripping, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(status, "_TIMEOUT_S", TIMEOUT_S)
    assert status.show_status(slow.url, as_json=True) == 2
    assert "no worker answers" in capsys.readouterr().err
