"""Limit the duration of the requests of a synchronous HTTP client.

The timeouts of httpx apply to each read. So a server that sends one byte per second would hold the caller's thread
forever. Here one deadline applies to the whole request: to connecting, TLS, sending, and all reads.

Two steps have other limits. The operating system resolves names. Behind an https proxy, the timeout of a read applies
to each part of a TLS record.
"""

from __future__ import annotations

import importlib
import socket
import threading
import time
from typing import Any, Final

_PIECE_BYTES: Final = 4096
"""Maximum size of one write, in bytes.

httpcore restarts its timeout whenever the peer has accepted a part of a write. So a slow peer could extend a large one.
"""


def bound_duration(client: Any, timeout_s: float) -> None:
    """Make a client of httpx or httpx2 raise its timeout errors for a request that takes too long.

    Args:
        client: An ``httpx.Client``. Requests of an ``httpx.AsyncClient`` need ``asyncio.timeout`` instead.
        timeout_s: The maximum duration of a request, in seconds. A redirect is another request.
    """
    deadline = _Deadline()
    for transport in [client._transport, *client._mounts.values()]:
        pool = getattr(transport, "_pool", None)  # a transport of a test has no pool
        if pool is not None:
            core = importlib.import_module(type(pool).__module__.partition(".")[0])
            pool._network_backend = _Backend(pool._network_backend, core, deadline)

    def begin(_request: Any) -> None:
        deadline.at_s = time.monotonic() + timeout_s

    client.event_hooks["request"].append(begin)


class _Deadline(threading.local):
    """The end of this thread's request, on the monotonic clock."""

    at_s = 0.0

    def left_s(self, timeout_s: float | None, error: type[Exception]) -> float:
        """Return the timeout of the next step. Raises ``error`` after the deadline."""
        left_s = self.at_s - time.monotonic()
        if left_s <= 0:
            raise error("the request took too long")
        return left_s if timeout_s is None else min(timeout_s, left_s)


class _Backend:
    """A network backend of httpcore that connects within a deadline."""

    def __init__(self, inner: Any, core: Any, deadline: _Deadline) -> None:
        self._inner = inner
        self._core = core
        self._deadline = deadline

    def connect_tcp(self, host: str, port: int, timeout: float | None = None, **options: Any) -> Any:
        """Connect to the first address of a host that answers."""
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise self._core.ConnectError(str(error)) from error
        failed: Exception = self._core.ConnectError(f"{host} has no address")
        for number, (*_, address) in enumerate(found):
            left_s = self._deadline.left_s(timeout, self._core.ConnectTimeout)
            left_s /= len(found) - number  # an address that does not answer must leave time for the others
            try:
                return self._bounded(self._inner.connect_tcp(address[0], port, timeout=left_s, **options))
            except (self._core.ConnectError, self._core.ConnectTimeout) as error:
                failed = error
        raise failed

    def connect_unix_socket(self, path: str, timeout: float | None = None, **options: Any) -> Any:
        """Connect to a Unix socket."""
        left_s = self._deadline.left_s(timeout, self._core.ConnectTimeout)
        return self._bounded(self._inner.connect_unix_socket(path, timeout=left_s, **options))

    def sleep(self, seconds: float) -> None:
        """Wait before the next attempt to connect."""
        self._inner.sleep(self._deadline.left_s(seconds, self._core.ConnectTimeout))

    def _bounded(self, stream: Any) -> Any:
        return _Stream(stream, self._core, self._deadline)


class _Stream:
    """A connection that reads and writes within a deadline."""

    def __init__(self, inner: Any, core: Any, deadline: _Deadline) -> None:
        self._inner = inner
        self._core = core
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> Any:
        return self._inner.read(max_bytes, timeout=self._deadline.left_s(timeout, self._core.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), _PIECE_BYTES):
            left_s = self._deadline.left_s(timeout, self._core.WriteTimeout)
            self._inner.write(buffer[start : start + _PIECE_BYTES], timeout=left_s)

    def start_tls(self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None) -> _Stream:
        left_s = self._deadline.left_s(timeout, self._core.ConnectTimeout)
        inner = self._inner.start_tls(ssl_context, server_hostname=server_hostname, timeout=left_s)
        return _Stream(inner, self._core, self._deadline)

    def close(self) -> None:
        self._inner.close()

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)
