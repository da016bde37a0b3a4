"""A bounded HTTP service with clients that block it: half requests, endless bodies, and answers that are not read."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from streams_py.http import budget, connections
from streams_py.http.budget import Budget, Budgeted
from streams_py.http.service import HttpService
from tests.support.waiting import until

LARGE = 8 << 20


class Application:
    """``/echo`` answers with the size of the body, ``/large`` with 8 MiB, ``/wait`` when it is let go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.waiting = 0

    def app(self) -> Starlette:
        async def echo(request: Request) -> Response:
            return PlainTextResponse(str(len(await request.body())))

        async def large(_: Request) -> Response:
            return Response(b"x" * LARGE)

        def wait(_: Request) -> Response:
            self.waiting += 1
            self.let_go.wait(60)
            return PlainTextResponse("done")

        return Starlette(
            routes=[Route("/echo", echo, methods=["GET", "POST"]), Route("/large", large), Route("/wait", wait)]
        )


@pytest.fixture
def application() -> Application:
    return Application()


@pytest.fixture
def service(application: Application) -> Iterator[HttpService]:
    with HttpService("127.0.0.1", 0, name="service", key="port", names=["mine"], stop_s=1) as service:
        service.start(application.app())
        yield service
        application.let_go.set()


def connected(service: HttpService, sent: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", service.port), timeout=60)
    connection.sendall(sent)
    return connection


def is_closed(connection: socket.socket) -> bool:
    """Waits for the end of the connection."""
    try:
        while connection.recv(1 << 16):
            pass
    except ConnectionError:
        return True
    return True


def size_of(service: HttpService, body: bytes = b"") -> int:
    return int(httpx.post(f"{service.url}echo", content=body, timeout=60, trust_env=False).text)


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /ec",
        b"GET /echo HTTP/1.1\r\nHost: localh",
        b"POST /echo HTTP/1.1\r\nHost: mine\r\nContent-Length: 9\r\n\r\nabc",
    ],
    ids=["silence", "half a request line", "half a header", "half a body"],
)  # fmt: skip
def test_connection_without_a_complete_request_is_closed_after_a_while(
    service: HttpService, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_HEADER_S", 0.3)
    monkeypatch.setattr(connections, "_BODY_S", 0.3)
    with connected(service, sent) as connection:
        assert is_closed(connection)


def test_bytes_that_trickle_in_do_not_move_the_deadline(service: HttpService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_HEADER_S", 0.5)
    with connected(service) as connection:
        connection.settimeout(0.05)
        closed = False

        def trickle() -> bool:
            nonlocal closed
            with contextlib.suppress(TimeoutError):
                try:
                    connection.sendall(b"G")
                    closed = connection.recv(1) == b""
                except ConnectionError:
                    closed = True
            return closed

        until(trickle, "the connection is closed")


@pytest.mark.parametrize("sent", [b"", b"GET /ec"])
def test_waiting_connections_make_room_when_all_places_are_taken(
    service: HttpService, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 8)
    with contextlib.ExitStack() as stack:
        waiting = [stack.enter_context(connected(service, sent)) for _ in range(8)]
        for _ in range(4):
            assert size_of(service, b"abc") == 3
        assert is_closed(waiting[0])


def test_one_peer_has_some_of_the_places_only(service: HttpService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MAX_OF_A_PEER", 4)
    with contextlib.ExitStack() as stack:
        waiting = [stack.enter_context(connected(service, b"GET /ec")) for _ in range(5)]
        assert is_closed(waiting[0])
        assert size_of(service, b"abc") == 3


def test_request_that_is_being_answered_is_not_pushed_out(
    service: HttpService, application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 1)
    monkeypatch.setattr(connections, "_HEADER_S", 0.3)
    with connected(service, b"GET /wait HTTP/1.1\r\nHost: mine\r\nConnection: close\r\n\r\n") as working:
        until(lambda: application.waiting, "the request is being answered")
        with connected(service) as refused:
            assert is_closed(refused)
        application.let_go.set()
        answer = b""
        while piece := working.recv(1 << 16):
            answer += piece
        assert answer.endswith(b"done")


def budget_of(service: HttpService) -> Budget:
    return service._budget  # what is in memory is not visible to clients


def test_answer_that_nobody_reads_is_dropped_after_a_while(
    service: HttpService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_WRITE_S", 0.3)
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    with connection:
        connection.settimeout(60)
        connection.connect(("127.0.0.1", service.port))
        connection.sendall(b"GET /large HTTP/1.1\r\nHost: mine\r\n\r\n")
        until(lambda: budget_of(service).sent == LARGE, "the answer is being written")
        until(lambda: budget_of(service).sent == 0, "the answer is dropped")
    assert len(httpx.get(f"{service.url}large", timeout=60, trust_env=False).content) == LARGE


def test_large_answers_together_are_bounded_and_small_ones_go_on(service: HttpService) -> None:
    budget_of(service).answers = 2 * LARGE
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            slow = stack.enter_context(socket.socket())
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.connect(("127.0.0.1", service.port))
            slow.sendall(b"GET /large HTTP/1.1\r\nHost: mine\r\n\r\n")
        until(lambda: budget_of(service).sent == 2 * LARGE, "two answers are being written")
        refused = httpx.get(f"{service.url}large", timeout=60, trust_env=False)
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
        assert size_of(service, b"abc") == 3
    until(lambda: budget_of(service).sent == 0, "the connections are closed")
    assert httpx.get(f"{service.url}large", timeout=60, trust_env=False).status_code == 200


def test_bodies_together_are_bounded(service: HttpService) -> None:
    budget_of(service).bodies = 3_000_000
    begun = b"POST /echo HTTP/1.1\r\nHost: mine\r\nContent-Length: 3000000\r\n\r\n"
    with connected(service, begun + b"x" * 2_500_000):
        until(lambda: budget_of(service).received >= 2_500_000, "half a body is in memory")
        answer = httpx.post(f"{service.url}echo", content=b"x" * 1_000_000, timeout=60, trust_env=False)
        assert answer.status_code == 503
        assert size_of(service, b"abc") == 3
    until(lambda: budget_of(service).received == 0, "the connection is closed")
    assert size_of(service, b"x" * 1_000_000) == 1_000_000


def test_names_of_others_are_refused_for_every_path(service: HttpService) -> None:
    for path in ("echo", "none"):
        answer = httpx.get(f"{service.url}{path}", headers={"Host": "rebound.example"}, timeout=60, trust_env=False)
        assert answer.status_code == 403
        assert "rebound.example" in answer.json()["message"]
    assert httpx.get(f"{service.url}echo", headers={"Host": "mine:1"}, timeout=60, trust_env=False).status_code == 200


def test_bodies_and_answers_are_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "_PIECE_BYTES", 3)
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"Content-Length", b"7")]})
        await send({"type": "http.response.body", "body": b"1234567"})

    async def keep(message: Any) -> None:
        sent.append((message.get("body"), message.get("more_body")))

    import asyncio

    asyncio.run(Budgeted(app, Budget(bodies=1, answers=1, body_max=1))({"type": "http"}, None, keep))  # type: ignore[arg-type]
    assert sent == [(None, None), (b"123", True), (b"456", True), (b"7", False)]
