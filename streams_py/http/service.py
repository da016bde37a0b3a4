"""A bounded HTTP service on its own thread: the query service, the dashboard and Connect use it."""

from __future__ import annotations

import contextlib
import os
import ssl
import threading
from collections.abc import Collection, Iterable
from types import TracebackType
from typing import Any, Final, Self

import uvicorn
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from streams_py.http.budget import Budget, Budgeted
from streams_py.http.hosts import accepted_names, listen, listen_unix, refused_name
from streams_py.http.tls_gate import TlsGate

_BODIES_BYTES: Final = 64 << 20
_ANSWERS_BYTES: Final = 128 << 20
_BODY_BYTES: Final = 16 << 20


class HttpService:
    """A service that listens from its construction, and answers between :meth:`start` and :meth:`stop`.

    The number, the duration and the memory of its connections are bounded (:mod:`.connections`, :mod:`.budget`). A
    request under a name that does not belong to this service gets status 403 (:mod:`.hosts`).

    Args:
        host: Where to listen; a name or an address. None: at the Unix socket only.
        port: 0 is any free port.
        name: Name of the service. The name of its thread consists of it and the port.
        key: The setting or argument for the address. Errors name it.
        names: Further names by which the service may be called.
        stop_s: Time limit in s for running requests after :meth:`stop`.
        body_max: Limit for a request's body, in bytes.
        tls: For https.
        unix: Path and mode of a Unix socket that is served as well, without TLS.

    Raises:
        ConfigError: The service cannot listen there.
    """

    def __init__(
        self,
        host: str | None,
        port: int,
        *,
        name: str,
        key: str,
        names: Iterable[str] = (),
        stop_s: int = 5,
        body_max: int = _BODY_BYTES,
        tls: ssl.SSLContext | None = None,
        unix: tuple[str, int] | None = None,
    ) -> None:
        self._sockets = [] if host is None else [listen(host, port, key=key)]
        self.port: int = self._sockets[0].getsockname()[1] if self._sockets else 0
        self._unix: str | None = None
        if unix is not None:
            try:
                self._sockets.append(listen_unix(*unix, key=key))
                self._unix = unix[0]
            except BaseException:
                self._close()
                raise
        self.host = host or "localhost"
        self._thread_name = f"{name}-{self.port}" if self.port else name
        self._names = accepted_names(self.host, names)
        self._stop_s = stop_s
        self._tls = tls
        self._budget = Budget(bodies=max(_BODIES_BYTES, body_max), answers=_ANSWERS_BYTES, body_max=body_max)
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """The address of the service on this machine, with a final slash."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'http' if self._tls is None else 'https'}://{name}:{self.port}/"

    def start(self, app: ASGIApp, *, lifespan: bool = True) -> Self:
        """Start to answer requests with an ASGI application. Connections were accepted before.

        Args:
            app: The application. It may depend on the port, so it is not an argument of the constructor.
            lifespan: Whether ``app`` handles the events of its start and its end.
        """
        config = uvicorn.Config(
            _Named(Budgeted(app, self._budget), self._names),
            lifespan="on" if lifespan else "off",
            timeout_graceful_shutdown=self._stop_s,
            log_config=None,
            access_log=False,
            ws="none",
            # Not httptools, even if it is installed, because it accepts URLs and headers of any length.
            http="streams_py.http.connections:BoundedConnections",
        )
        config.load()
        if self._tls is not None:
            protocol: Any = config.http_protocol_class
            config.http_protocol_class = TlsGate(self._tls, protocol)  # type: ignore[assignment]  # it is called
        self._server = server = uvicorn.Server(config)
        self._thread = threading.Thread(target=lambda: server.run(self._sockets), name=self._thread_name, daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Wait for running requests, abort them after the time limit, and close the port. Idempotent."""
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join(2 * self._stop_s)
        self._close()

    def _close(self) -> None:
        if self._unix is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._unix)
            self._unix = None  # another service may have the path from now on
        for one in self._sockets:
            one.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


class _Named:
    """Refuses requests with unknown names in ``Host``, before the application's routes are matched."""

    def __init__(self, app: ASGIApp, names: Collection[str]) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            name = refused_name(Headers(scope=scope).get("host", ""), self._names)
            if name is not None:
                message = f"this service is not called {name!r:.100}: use its address, localhost, or a configured name"
                content = {"error_code": 403, "message": message}
                return await JSONResponse(content, 403)(scope, receive, send)
        return await self._app(scope, receive, send)
