"""The HTTP service of the REST interface, and its guard against web pages that a user happens to visit.

Without authentication, all users of the host are trusted on loopback. But a browser on that host runs pages of any
website, and such a page can post to any address. The request's ``Origin`` header reveals it. A page can also let its
own host name resolve to this service (DNS rebinding), to read responses. The service refuses such requests by host name
(:mod:`streams_py.http.hosts`).
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from streams_py.http.service import HttpService

MAX_BODY_BYTES: Final = 16 * 2**20
"""Size limit of request bodies.

The task configurations of some ten thousand tasks, in one request, are smaller.
"""

_READ_ONLY: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class RequestGuard:
    """Middleware that answers with 403 if a web page of another origin requests a change."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            host, origin = headers.get("host", ""), headers.get("origin")
            if origin is not None and scope["method"] not in _READ_ONLY and _host_of(origin) != host.lower():
                message = f"pages of {origin!r:.200} may not change anything here"
                answer = JSONResponse({"error_code": 403, "message": message}, 403)
                return await answer(scope, receive, send)
        return await self._app(scope, receive, send)


def _host_of(origin: str) -> str | None:
    """Return host and port of an ``Origin`` header in lower case. None if it is not a URL."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


_STOP_S: Final = 10


def rest_service(
    host: str | None = "127.0.0.1",
    port: int = 0,
    names: Iterable[str] = (),
    *,
    tls: ssl.SSLContext | None = None,
    unix: tuple[str, int] | None = None,
) -> HttpService:
    """Return a service that listens. It answers after a call of its ``start``.

    Without credentials or client certificates, any caller that reaches the port can create connectors. The default
    host is therefore the loopback interface.

    Args:
        host: None: only the Unix socket is served.
        port: Port of ``host``; 0: any free port.
        names: Further names by which the service may be called.
        tls: For https.
        unix: Path and mode of a Unix socket.

    Raises:
        ConfigError: The service cannot listen there. The message names ``listeners``.
    """
    return HttpService(
        host,
        port,
        name="connect-rest",
        key="listeners",
        names=names,
        stop_s=_STOP_S,
        body_max=MAX_BODY_BYTES,
        tls=tls,
        unix=unix,
    )
