"""The responses of the page's server, and the callers that it accepts."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import Iterator

import httpx
import pytest

from streams_protocol.types import TaskId
from streams_py.dashboard.app import dashboard_app, serve_board
from streams_py.dashboard.board import Board
from streams_py.errors import ConfigError, StreamsError


class Explainer:
    def why(self, task: TaskId) -> str:
        if task.partition > 1:
            raise StreamsError(f"group app has no\ntask {task}")
        return f"{task} is <b>here</b>"


@pytest.fixture
def board() -> Board:
    return Board()


@pytest.fixture
def client(board: Board) -> Iterator[httpx.Client]:
    with serve_board(board, Explainer()) as server, httpx.Client(base_url=server.url, timeout=30) as asking:
        yield asking
        board.close()


@pytest.mark.parametrize(
    ("path", "kind"), [("/", "text/html"), ("/page.css", "text/css"), ("/page.js", "text/javascript")]
)
def test_the_page_may_load_nothing_from_elsewhere(client: httpx.Client, path: str, kind: str) -> None:
    answer = client.get(path)
    assert (answer.status_code, answer.headers["content-type"].split(";")[0]) == (200, kind)
    assert answer.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
    assert "http://" not in answer.text.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in answer.text


@pytest.mark.parametrize("path", ["/", "/updates", "/why/0_0", "/grid.js"])
def test_names_of_others_are_refused_on_loopback(client: httpx.Client, path: str) -> None:
    answer = client.get(path, headers={"Host": "evil.example:80"})
    assert answer.status_code == 403
    assert answer.json()["message"] == (
        "this service is not called 'evil.example': use its address, localhost, or a configured name"
    )


def test_updates_come_as_server_sent_events(client: httpx.Client, board: Board) -> None:
    board.publish("group", {"n": 1, "text": "two\nlines"})
    with client.stream("GET", "/updates") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.iter_lines()
        assert [next(lines) for _ in range(3)] == ["event: group", 'data: {"n":1,"text":"two\\nlines"}', ""]
        board.publish("lags", {"0_0": 5})
        assert [next(lines) for _ in range(2)] == ["event: lags", 'data: {"0_0":5}']


def test_pages_that_are_closed_are_forgotten(client: httpx.Client, board: Board) -> None:
    for number in range(120):
        board.publish("group", {"n": number})
        with client.stream("GET", "/updates") as answer:
            assert answer.status_code == 200, answer.read()
            next(answer.iter_lines())


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/why/0_1", 200, {"task": "0_1", "text": "0_1 is <b>here</b>"}),
        ("/why/0_2", 409, {"message": "group app has no task 0_2"}),
        ("/why/x", 400, None),
    ],
)
def test_reasons_are_answered_or_refused_in_a_sentence(
    client: httpx.Client, path: str, status: int, said: dict[str, str] | None
) -> None:
    answer = client.get(path)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/json"
    assert said is None or answer.json() == said


def test_nothing_can_be_changed(client: httpx.Client) -> None:
    assert client.post("/why/0_1").status_code == 405
    assert client.put("/").status_code == 405


def test_a_port_in_use_is_one_sentence(board: Board) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as other,
        pytest.raises(ConfigError, match=r"--port: .* cannot be served .*; choose another port"),
    ):
        serve_board(board, Explainer(), port=other.getsockname()[1])


def test_pages_that_are_gone_before_their_first_line_take_no_place(board: Board) -> None:
    """A browser closes a tab immediately: the response never starts, so it does not end either."""
    app = dashboard_app(board, Explainer())
    scope = {"type": "http", "method": "GET", "path": "/updates", "headers": [], "query_string": b""}

    async def gone() -> dict[str, str]:
        return {"type": "http.disconnect"}

    async def never(message: dict[str, object]) -> None:
        assert message.get("status", 200) == 200, "too many pages are open"
        await asyncio.Event().wait()

    async def many() -> None:
        for _ in range(150):  # more than may be open at the same time
            await app(scope, gone, never)
        gc.collect()
        board.leave(board.listen())

    asyncio.run(many())
