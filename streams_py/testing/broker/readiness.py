"""Checks whether a broker is ready for tests, with two small requests on a plain socket.

An open port is not enough. A broker is ready when it knows all its peers, and when the group coordinator and the
transaction coordinator answer. Requests to these coordinators also create their internal topics. A Kafka client is not
used because it would hide these states behind its retries.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterable

from streams_py.testing.broker.interface import NoBrokerError

_METADATA, _FIND_COORDINATOR = 3, 10
_CONNECT_S, _ANSWER_S, _RETRY_S = 2.0, 5.0, 0.1


def is_ready(address: str, *, nodes: int) -> bool:
    """Whether the broker at ``host:port`` knows at least ``nodes`` brokers and its coordinators answer."""
    try:
        brokers = struct.unpack_from(">i", _ask(address, _METADATA, 1, struct.pack(">i", 0)))[0]
        if brokers < nodes:
            return False
        for coordinator_kind in (0, 1):  # group, transaction
            body = struct.pack(">h5sb", 5, b"ready", coordinator_kind)
            _throttle_ms, error = struct.unpack_from(">ih", _ask(address, _FIND_COORDINATOR, 1, body))
            if error != 0:
                return False
    except (OSError, struct.error):
        return False
    return True


def wait_until_ready(
    addresses: Iterable[str], *, nodes: int, timeout_ms: int, check_alive: Callable[[], None] = lambda: None
) -> None:
    """Block until all addresses are ready. Raises NoBrokerError after ``timeout_ms``.

    ``check_alive`` is called in each round and may raise to stop waiting.
    """
    waiting = list(addresses)
    limit = time.monotonic() + timeout_ms / 1000
    while waiting:
        check_alive()
        waiting = [address for address in waiting if not is_ready(address, nodes=nodes)]
        if waiting:
            if time.monotonic() > limit:
                raise NoBrokerError(f"{', '.join(waiting)} not ready after {timeout_ms / 1000:.0f} s")
            time.sleep(_RETRY_S)


def _ask(address: str, api_key: int, version: int, body: bytes) -> bytes:
    """Send one request and return the answer without its correlation id."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S) as connection:
        connection.settimeout(_ANSWER_S)
        request = struct.pack(">hhih", api_key, version, 1, 5) + b"ready" + body
        connection.sendall(struct.pack(">i", len(request)) + request)
        with connection.makefile("rb") as stream:
            size, _correlation = struct.unpack(">ii", stream.read(8))
            return stream.read(size - 4)
