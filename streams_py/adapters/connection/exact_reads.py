"""Read an exact number of bytes from a socket."""

from __future__ import annotations

import socket


def read_exactly(connection: socket.socket, size: int) -> bytes:
    """Read ``size`` bytes.

    Raises:
        ConnectionResetError: The other side closed the connection earlier.
    """
    content = bytearray()
    while len(content) < size:
        more = connection.recv(size - len(content))
        if not more:
            raise ConnectionResetError("the other side closed the connection in the middle of a message")
        content += more
    return bytes(content)
