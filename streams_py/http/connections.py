"""Limit the number of open connections of an HTTP service, and the time of each step of a request.

A connection that makes no progress is closed after a while: an incomplete request line, an endless body, or an answer
that is not read. When the limit of connections is reached, the connection that has waited longest without a complete
request is closed for a new one. So idle connections cannot lock out other clients.
"""

from __future__ import annotations

import asyncio
import ipaddress
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_CONNECTIONS: Final = 256
"""Connections per service. Each is an open file, and the stores of the same process need open files too."""
MAX_OF_A_PEER: Final = 128
"""Connections from one address. All addresses of the loopback interface count as one."""

_HEADER_S: Final = 10.0
"""Time limit from the first byte of a request (or the start of the connection) to the end of its header, in seconds."""
_BODY_S: Final = 30.0
"""Time limit from the end of the header to the end of the body, in seconds."""
_WRITE_S: Final = 30.0
"""Time limit while the peer reads too slowly for further writes, in seconds."""
_SENT_CHECK_S: Final = 0.05
"""Interval between checks that a closing connection has sent all bytes, in seconds."""


class BoundedConnections(H11Protocol):
    """uvicorn's protocol with deadlines and a limited number of connections.

    uvicorn's own ``limit_concurrency`` answers requests with status 503, but does not limit open connections. Its only
    deadline applies until the first byte of a request.
    """

    _deadline: asyncio.TimerHandle | None = None
    _waits_for: str = ""
    _waits_since_s = 0.0
    _unread: asyncio.TimerHandle | None = None
    carrier: asyncio.Transport | None = None
    """The connection below TLS. None without TLS."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._make_room()
        self._wait_for("header", _HEADER_S)

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait_for("", 0)
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._note_state()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._note_state()
        if self.transport.is_closing():
            self._end_when_sent()

    def shutdown(self) -> None:
        super().shutdown()
        if self.transport.is_closing():
            self._end_when_sent()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        if self.transport.is_closing():
            self._end_when_sent()

    def _end_when_sent(self) -> None:
        """End a closing TLS connection as soon as all bytes are sent.

        Otherwise the transport would wait for the peer's closing message, up to 30 s. An idle client does not send it,
        because it does not read. So each idle client would delay the end of the service.
        """
        if self.carrier is None or self.carrier.is_closing():
            return
        if self.transport.get_write_buffer_size() or self.carrier.get_write_buffer_size():
            self.loop.call_later(_SENT_CHECK_S, self._end_when_sent)
        else:
            self._abort()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(_WRITE_S, self._abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _note_state(self) -> None:
        state = self.conn.their_state
        if state is h11.SEND_BODY:
            self._wait_for("body", _BODY_S)
        elif state is h11.IDLE and self.conn.trailing_data[0]:
            self._wait_for("header", _HEADER_S)
        elif state is h11.IDLE and self._waits_for == "header":
            pass  # the first byte has not arrived yet
        else:
            self._wait_for("", 0)

    def _wait_for(self, what: str, seconds: float) -> None:
        """Start a deadline, unless the same one is running: occasional bytes must not extend it."""
        if what == self._waits_for:
            return
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self._waits_for, self._waits_since_s = what, self.loop.time()
        if what:
            self._deadline = self.loop.call_later(seconds, self._abort)

    def _abort(self) -> None:
        self.transport.abort()

    def _make_room(self) -> None:
        connections: list[Any] = list(self.connections)
        of_peer = [other for other in connections if _peer(other.client) == _peer(self.client)]
        if len(of_peer) > MAX_OF_A_PEER:
            self._abort_longest_waiting(of_peer)
        elif len(connections) > MAX_CONNECTIONS:
            self._abort_longest_waiting(connections)

    def _abort_longest_waiting(self, connections: list[Any]) -> None:
        waiting = [one for one in connections if one is not self and one.is_idle]
        (min(waiting, key=lambda one: one._waits_since_s) if waiting else self)._abort()

    @property
    def is_idle(self) -> bool:
        """Whether the connection is not answering a complete request."""
        cycle: Any = self.cycle  # None before the first request
        return bool(self._waits_for) or cycle is None or cycle.response_complete


def _peer(client: tuple[str, int] | None) -> str:
    host = client[0] if client else ""
    try:
        return "loopback" if ipaddress.ip_address(host).is_loopback else host
    except ValueError:
        return host
