"""What no request may do, whatever it asks for: come from a web page that its user happens to look at.

The interface has no authentication. On loopback the machine's own users are trusted, but a browser there runs pages of
strangers, and such a page may post to any address: its ``Origin`` tells. What such a page could read, after a change of
its own name's address in DNS, the service refuses by the name (:mod:`streams_py.http.hosts`).
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["MAX_BODY_BYTES", "RequestGuard"]

MAX_BODY_BYTES: Final = 16 * 2**20
"""Configurations of some ten thousand tasks, which workers send their leader at once, fit."""

_READ_ONLY: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class RequestGuard:
    """Around the application."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            host, origin = headers.get("host", ""), headers.get("origin")
            if (
                origin is not None
                and scope["method"] not in _READ_ONLY
                and urlsplit(origin).netloc.lower() != host.lower()
            ):
                message = f"a page of {origin!r:.200} may change nothing here"
                answer = JSONResponse({"error_code": 403, "message": message}, 403)
                return await answer(scope, receive, send)
        return await self._app(scope, receive, send)
