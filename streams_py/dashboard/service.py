"""The server of the dashboard's page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from streams_py.dashboard.app import Explains, dashboard_app
from streams_py.dashboard.board import Board
from streams_py.http.service import HttpService

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
