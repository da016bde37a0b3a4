"""The URLs of the page. All are read-only, and the page loads nothing from other hosts.

``/`` is the page. ``/updates`` is a stream of server-sent events, with one kind of event for each part of the board.
``/why/0_1`` gives the reasons for the place of a task. Host names in requests are checked as for every service
(:mod:`streams_py.http.hosts`). The content security policy of the page allows only what is served here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from functools import cache
from importlib import resources
from typing import Final, Protocol

from anyio import to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from streams_protocol.types import TaskId
from streams_py.dashboard.board import Board, Listener
from streams_py.errors import StreamsError
from streams_py.http.service import HttpService
from streams_py.system.printable import printable_lines

_FILES: Final = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
    "/grid.js": ("grid.js", "text/javascript"),
}
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_KEEP_ALIVE_S: Final = 15.0


class Explains(Protocol):
    """The object that explains the place of a task."""

    def why(self, task: TaskId) -> str: ...


def dashboard_app(board: Board, explains: Explains) -> Starlette:
    """Return the ASGI application."""

    def route(path: str, answer: Callable[[Request], Awaitable[Response]]) -> Route:
        return Route(path, answer, methods=["GET"])

    async def updates(request: Request) -> Response:
        try:
            listener = board.listen()
        except StreamsError as error:
            return _refused(503, str(error))
        return StreamingResponse(_events(board, listener), headers=_HEADERS, media_type="text/event-stream")

    async def why(request: Request) -> Response:
        try:
            task = TaskId.parse(request.path_params["task"])
            text = await to_thread.run_sync(explains.why, task)
        except ValueError as error:
            return _refused(400, str(error)[:200])
        except StreamsError as error:
            return _refused(409, str(error))
        return JSONResponse({"task": str(task), "text": printable_lines(text)}, headers=_HEADERS)

    def page(path: str) -> Route:
        name, kind = _FILES[path]

        async def file(request: Request) -> Response:
            return Response(_content(name), headers=_HEADERS, media_type=kind)

        return route(path, file)

    return Starlette(routes=[*map(page, _FILES), route("/updates", updates), route("/why/{task}", why)])


async def _events(board: Board, listener: Listener) -> AsyncIterator[str]:
    try:
        while True:
            changes = await listener.changes(_KEEP_ALIVE_S)
            if not changes and board.is_closed:
                return
            yield "".join(f"event: {part}\ndata: {text}\n\n" for part, text in changes) or ": still here\n\n"
    finally:
        board.leave(listener)


@cache
def _content(name: str) -> bytes:
    return (resources.files("streams_py.dashboard") / "page" / name).read_bytes()


def _refused(status: int, text: str) -> Response:
    answer: Mapping[str, str] = {"message": " ".join(text.split())}
    return JSONResponse(answer, status, headers=_HEADERS)


_STOP_S: Final = 2


def serve_board(
    board: Board, explains: Explains, *, host: str = "127.0.0.1", port: int = 0, names: Iterable[str] = ()
) -> HttpService:
    """Start a service that shows ``board``. The end of its ``with`` block closes open pages.

    The page has no authentication: any caller that reaches the port can see the group. Only a trusted network may
    reach an address other than loopback.

    Args:
        board: The data of the page.
        explains: Explains the place of a task.
        host: Address to listen on.
        port: Port to listen on; 0: any free port.
        names: Additional host names under which the page may be called.

    Raises:
        ConfigError: The port is in use.
    """
    service = HttpService(host, port, name="dashboard", key="--port", names=names, stop_s=_STOP_S, body_max=0)
    return service.start(dashboard_app(board, explains), lifespan=False)
