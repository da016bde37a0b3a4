"""What no request may do, whatever it asks for: be huge, or come from a web page that its user happens to look at.

The interface has no authentication. On loopback the machine's own users are trusted, but a browser there runs pages of
strangers: such a page may post to any address (its ``Origin`` tells), and after a change of its own name's address in
DNS even read the answers (its ``Host`` tells).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar, Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from streams_py.connect.errors import ConnectError
from streams_py.http_hosts import refused_name

__all__ = ["MAX_BODY_BYTES", "RequestGuard", "RequestTooLargeError"]

MAX_BODY_BYTES: Final = 16 * 2**20
"""Configurations of some ten thousand tasks, which workers send their leader at once, fit."""

_READ_ONLY: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class RequestTooLargeError(ConnectError):
    """The body is longer than a worker reads."""

    status: ClassVar[int] = 413


class RequestGuard:
    """Around the application. ``hosts``: the names by which it may be called, beside ``localhost`` and addresses; None
    when any will do."""

    def __init__(self, app: ASGIApp, hosts: Collection[str] | None, max_body_bytes: int) -> None:
        self._app = app
        self._hosts = None if hosts is None else {host.lower() for host in hosts}
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        refusal = self._refusal(scope["method"], Headers(scope=scope))
        if refusal is not None:
            answer = JSONResponse({"error_code": 403, "message": refusal}, 403)
            return await answer(scope, receive, send)
        return await self._app(scope, self._bounded(receive), send)

    def _refusal(self, method: str, headers: Headers) -> str | None:
        host = headers.get("host", "")
        name = None if self._hosts is None else refused_name(host, self._hosts)
        if name is not None:
            return (
                f"this worker listens on loopback and is not called {name!r}: use localhost or 127.0.0.1, or set "
                "rest.advertised.host.name"
            )
        origin = headers.get("origin")
        if origin is not None and method not in _READ_ONLY and urlsplit(origin).netloc.lower() != host.lower():
            return f"a page of {origin} may change nothing here"
        return None

    def _bounded(self, receive: Receive) -> Receive:
        received = 0

        async def bounded() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._max_body_bytes:
                raise RequestTooLargeError(f"the body is longer than {self._max_body_bytes} bytes")
            return message

        return bounded
