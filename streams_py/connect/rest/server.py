"""Serves the REST interface on a thread of its own."""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from typing import Final

from starlette.applications import Starlette

from streams_py.connect.rest.guard import MAX_BODY_BYTES
from streams_py.errors import ConfigError
from streams_py.http.service import HttpService
from streams_py.system.private_files import UntrustedPathError

__all__ = ["LOOPBACK", "RestServer"]

LOOPBACK: Final = "127.0.0.1"
_STOP_S: Final = 10


class RestServer:
    """Bound when made (ConfigError names ``listeners`` when the address is in use), serving from :meth:`start` on.

    Without credentials or client certificates, whoever reaches the port can create connectors, so it is the loopback
    interface's unless another host is given. Port 0 is any free one.

    Args:
        host: None: only the Unix socket is served.
        port: Port of ``host``.
        names: Further names by which it may be called.
        tls: For https.
        unix: Path and mode of a Unix socket.
    """

    def __init__(
        self,
        host: str | None = LOOPBACK,
        port: int = 0,
        names: Iterable[str] = (),
        *,
        tls: ssl.SSLContext | None = None,
        unix: tuple[str, int] | None = None,
    ) -> None:
        try:
            self._service = HttpService(
                host, port, names=names, stop_s=_STOP_S, body_max=MAX_BODY_BYTES, tls=tls, unix=unix
            )
        except UntrustedPathError as error:
            raise ConfigError(f"listeners: {error}", key="listeners") from None
        except OSError as error:
            where = " or ".join(([f"{host}:{port}"] if host else []) + ([unix[0]] if unix else []))
            raise ConfigError(
                f"listeners: {where} cannot be served ({error.strerror}); choose another port or path, or end its user",
                key="listeners",
            ) from None
        self.port = self._service.port

    def start(self, app: Starlette) -> None:
        """Connections are accepted already; they are answered from now on."""
        self._service.start(app, thread_name="connect-rest")

    def stop(self) -> None:
        """End running requests, or cut them off after a while."""
        self._service.stop()
