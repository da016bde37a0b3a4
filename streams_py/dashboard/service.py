"""The page's server: a socket of its own, on loopback unless told otherwise."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Final, Self

import uvicorn

from streams_py.dashboard.app import Explains, dashboard_app
from streams_py.dashboard.board import Board
from streams_py.errors import ConfigError
from streams_py.http_hosts import SERVER_OPTIONS, is_loopback, listen

__all__ = ["DashboardServer"]

_STOP_S: Final = 2


class DashboardServer:
    """Serves ``board``. ConfigError when the port is in use. There is no authentication: whoever reaches the port sees
    the group, so that anything but loopback is for a network that is trusted. ``port`` 0: any free one."""

    def __init__(self, board: Board, explains: Explains, *, host: str = "127.0.0.1", port: int = 0) -> None:
        try:
            self._socket = listen(host, port)
        except OSError as error:
            raise ConfigError(
                f"the page cannot be served at {host}:{port} ({error.strerror or error}); choose another --port, or "
                "end its user",
                key="--port",
            ) from None
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{self.port}/"
        app = dashboard_app(board, explains, hosts={host.lower()} if is_loopback(host) else None)
        self._server = uvicorn.Server(
            uvicorn.Config(app, lifespan="off", timeout_graceful_shutdown=_STOP_S, **SERVER_OPTIONS)
        )
        self._thread = threading.Thread(target=self._serve, name=f"dashboard-{self.port}", daemon=True)

    def stop(self) -> None:
        """End; open pages are cut off."""
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join(2 * _STOP_S)
        self._socket.close()

    def _serve(self) -> None:
        self._server.run([self._socket])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
