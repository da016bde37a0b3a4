"""The page's server: a socket of its own, on loopback unless told otherwise."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Final, Self

from streams_py.dashboard.app import Explains, dashboard_app
from streams_py.dashboard.board import Board
from streams_py.errors import ConfigError
from streams_py.http.service import HttpService

__all__ = ["DashboardServer"]

_STOP_S: Final = 2


class DashboardServer:
    """Serves ``board``. ConfigError when the port is in use. There is no authentication: whoever reaches the port sees
    the group, so that anything but loopback is for a network that is trusted. ``port`` 0: any free one."""

    def __init__(
        self, board: Board, explains: Explains, *, host: str = "127.0.0.1", port: int = 0, names: Iterable[str] = ()
    ) -> None:
        try:
            self._service = HttpService(host, port, names=names, stop_s=_STOP_S, body_max=0)
        except OSError as error:
            raise ConfigError(
                f"the page cannot be served at {host}:{port} ({error.strerror or error}); choose another --port, or "
                "end its user",
                key="--port",
            ) from None
        self.port = self._service.port
        self.url = self._service.url
        self._app = dashboard_app(board, explains)

    def stop(self) -> None:
        """End; open pages are cut off."""
        self._service.stop()

    def __enter__(self) -> Self:
        self._service.start(self._app, thread_name=f"dashboard-{self.port}", lifespan=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
