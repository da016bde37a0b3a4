"""TLS in front of an HTTP service: connections in a handshake are bounded in number and time.

asyncio's own TLS servers let any number of connections be in a handshake, for a minute each, and the HTTP protocol
does not know of a connection before its handshake is complete. So a connection arrives here first. A connection of a
Unix socket has no TLS: the mode of the socket says who may connect.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable
from typing import Any, Final

__all__ = ["TlsGate"]

_HANDSHAKES_MAX: Final = 128
_HANDSHAKE_S: Final = 10


class TlsGate:
    """Makes the protocols of a server: those that ``make`` returns, behind TLS. One event loop."""

    def __init__(self, context: ssl.SSLContext, make: Callable[..., Any]) -> None:
        self._context = context
        self._make = make
        self._waiting: dict[asyncio.Transport, None] = {}
        """Connections in a handshake, the oldest first."""

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
        loop = asyncio.get_running_loop()
        shaken = loop.create_future()

        def ended(_: asyncio.Future[None]) -> None:
            self._waiting.pop(transport, None)
            if not shaken.cancelled():
                shaken.exception()  # of a caller that is not served

        shaken.add_done_callback(ended)
        # It calls the protocol's connection_made() after the handshake, before the first bytes of a request.
        secured = SSLProtocol(
            loop, protocol, self._context, shaken, server_side=True, ssl_handshake_timeout=_HANDSHAKE_S
        )
        transport.set_protocol(secured)
        secured.connection_made(transport)


class _Arrival(asyncio.Protocol):
    """A connection that was accepted a moment ago."""

    def __init__(self, arrived: Callable[[asyncio.Transport], None]) -> None:
        self._arrived = arrived

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._arrived(transport)
