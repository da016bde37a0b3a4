"""The HTTP service of the REST interface."""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from typing import Final

from streams_py.connect.rest.guard import MAX_BODY_BYTES
from streams_py.http.service import HttpService

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
