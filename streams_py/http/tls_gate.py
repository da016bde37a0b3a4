"""TLS in front of an HTTP service, with a limited number and duration of handshakes.

asyncio's TLS servers do not limit the number of connections in a handshake, and allow a minute for each. The HTTP
protocol object does not learn of a connection before its handshake is complete. So connections are accepted here first.
Connections of a Unix socket don't use TLS: the mode of the socket controls who may connect.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable
from typing import Any, Final

_HANDSHAKES_MAX: Final = 128
_HANDSHAKE_S: Final = 10


class TlsGate:
    """A factory of a server's protocols: the protocols that ``make`` returns, behind TLS. Used on one event loop."""

    def __init__(self, context: ssl.SSLContext, make: Callable[..., Any]) -> None:
        self._context = context
        self._make = make
        self._waiting: dict[asyncio.Transport, None] = {}
        """Connections in a handshake, oldest first."""

    def __call__(self, **settings: Any) -> asyncio.BaseProtocol:
        return _Arrival(lambda transport: self._arrived(transport, self._make(**settings)))

    def _arrived(self, transport: asyncio.Transport, protocol: Any) -> None:
        if transport.get_extra_info("socket").family == socket.AF_UNIX:
            transport.set_protocol(protocol)
            protocol.connection_made(transport)
            return
        if len(self._waiting) >= _HANDSHAKES_MAX:
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]
            oldest.abort()
        self._waiting[transport] = None
        protocol.carrier = transport
        loop = asyncio.get_running_loop()
        shaken = loop.create_future()

        def ended(_: asyncio.Future[None]) -> None:
            self._waiting.pop(transport, None)
            if not shaken.cancelled():
                shaken.exception()  # marks the error as retrieved; the client is not served

        shaken.add_done_callback(ended)
        # SSLProtocol calls the protocol's connection_made() after the handshake, before the first bytes of a request.
        secured = SSLProtocol(
            loop, protocol, self._context, shaken, server_side=True, ssl_handshake_timeout=_HANDSHAKE_S
        )
        transport.set_protocol(secured)
        secured.connection_made(transport)


class _Arrival(asyncio.Protocol):
    """The protocol of a connection that was just accepted."""

    def __init__(self, arrived: Callable[[asyncio.Transport], None]) -> None:
        self._arrived = arrived

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._arrived(transport)
