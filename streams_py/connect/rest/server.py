"""Serves the REST interface on a thread of its own."""

from __future__ import annotations

import threading
from typing import Final

import uvicorn
from starlette.applications import Starlette

from streams_py.errors import ConfigError
from streams_py.http_hosts import SERVER_OPTIONS, listen

__all__ = ["LOOPBACK", "RestServer"]

LOOPBACK: Final = "127.0.0.1"
_STOP_S: Final = 10


class RestServer:
    """Bound when made (ConfigError names ``listeners`` when the address is in use), serving from :meth:`start` on.

    There is no authentication: whoever reaches the port may run code on the workers, so it is the loopback interface's
    unless another host is given. Port 0 is any free one.
    """

    def __init__(self, host: str = LOOPBACK, port: int = 0) -> None:
        try:
            self._socket = listen(host, port)
        except OSError as error:
            raise ConfigError(
                f"listeners: {host}:{port} cannot be served ({error.strerror}); choose another port, or end its user",
                key="listeners",
            ) from None
        self.port: int = self._socket.getsockname()[1]
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    def start(self, app: Starlette) -> None:
        """Connections are accepted already; they are answered from now on."""
        config = uvicorn.Config(app, lifespan="on", timeout_graceful_shutdown=_STOP_S, **SERVER_OPTIONS)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, args=([self._socket],), name="connect-rest", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """End running requests, or cut them off after a while."""
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join(2 * _STOP_S)
        self._socket.close()
