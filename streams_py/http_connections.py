"""How many connections an HTTP service keeps open, and for how long one may say nothing."""

from __future__ import annotations

import asyncio
from typing import Final

from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["MAX_CONNECTIONS", "BoundedConnections"]

MAX_CONNECTIONS: Final = 256
"""Per service. Each is an open file of a process that may be processing records beside, and stores need files, too."""


class BoundedConnections(H11Protocol):
    """uvicorn's protocol; a connection past the limit is closed at once, and one without a first request soon.

    uvicorn's own ``limit_concurrency`` answers 503 when there are too many, but lets any number be open.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.close()
        else:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
