"""Answers an orchestrator's probes over HTTP: ``/live``, ``/ready``, and ``/`` with both and a line per process."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import ClassVar, Final, Self

from streams_py.errors import ConfigError

__all__ = ["Health", "HealthServer", "ProcessHealth"]

_LOOPBACK: Final = "127.0.0.1"
_REQUEST_S: Final = 5


@dataclass(frozen=True, slots=True)
class ProcessHealth:
    """``state`` is the client's, or ``RESTARTING`` while its process has died, or ``SILENT`` when it is there and has
    not told for a session's time-out how it is; ``restarts`` counts deaths."""

    process: int
    pid: int | None
    state: str
    live: bool
    ready: bool
    restarts: int


@dataclass(frozen=True, slots=True)
class Health:
    """``live``: only a start from outside would help when it is false. ``ready``: every process is."""

    live: bool
    ready: bool
    processes: tuple[ProcessHealth, ...]


class HealthServer:
    """Serves inside ``with``, on a thread of its own. ``address`` is a port on loopback, or ``host:port``; port 0 is
    any free one. Raises ConfigError when it cannot be served.

    Whoever can reach it learns the states of processes, and can do nothing.
    """

    def __init__(self, address: int | str, health: Callable[[], Health]) -> None:
        host, port = _parsed(address)

        class Handler(_Handler):
            look = staticmethod(health)

        try:
            self._server = ThreadingHTTPServer((host, port), Handler)
        except OSError as error:
            raise ConfigError(
                f"health: {host}:{port} cannot be served ({error.strerror or error}); choose another port"
            ) from None
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, name="health", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    look: ClassVar[Callable[[], Health]]
    timeout = _REQUEST_S
    server_version = "streams-py"
    sys_version = ""

    def do_GET(self) -> None:
        health = type(self).look()
        match self.path.partition("?")[0]:
            case "/":
                good = health.live and health.ready
            case "/live":
                good = health.live
            case "/ready":
                good = health.ready
            case _:
                self.send_error(HTTPStatus.NOT_FOUND, "there are /, /live and /ready")
                return
        body = json.dumps(asdict(health)).encode()
        self.send_response(HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Probes come every few seconds: they are not logged."""


def _parsed(address: int | str) -> tuple[str, int]:
    host, colon, port = (_LOOPBACK, ":", str(address)) if str(address).isdecimal() else str(address).rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise ConfigError(f"health = {address!r} is neither a port nor host:port")
    return host.strip("[]"), int(port)
