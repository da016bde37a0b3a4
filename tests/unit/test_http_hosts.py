"""Where HTTP services listen."""

from __future__ import annotations

import contextlib
import socket

import pytest

from streams_py.http_hosts import listen


def test_answers_do_not_wait_for_acknowledgements() -> None:
    with contextlib.closing(listen("127.0.0.1", 0)) as server, contextlib.closing(socket.socket()) as caller:
        caller.connect(server.getsockname())
        accepted, _ = server.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
        with pytest.raises(OSError, match="in use"):
            listen(*server.getsockname())
