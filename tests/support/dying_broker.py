"""A TCP proxy in front of a real broker that simulates the death of the broker during a call.

The proxy parses Kafka's frames. In answers it replaces the broker's address with its own, so that clients keep using
it. On request it acts at the next request of one kind (API key) like a broker that was stopped and killed. It drops the
request, or forwards it and drops the answer, or sends only some bytes of the answer. Then it closes every connection
and refuses new ones until :meth:`heal`.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections import deque
from collections.abc import Collection, Iterable
from typing import Any, Final, Protocol

import pytest

Place = int
"""Number of bytes of the answer that arrive (0 = none). UNHEARD: the broker dies before it handles the request."""
UNHEARD: Final = -1

_SIZE = struct.Struct(">i")
_KEY = struct.Struct(">hhi")


class _Row(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def api_key(self) -> int: ...


def places(table: Iterable[_Row], always: Collection[tuple[str, int]]) -> list[Any]:
    """Combine a table's rows with every place of death, for ``parametrize``.

    All are slow, except the rows in ``always`` with a request or an answer that is lost completely.
    """
    return [
        pytest.param(
            row,
            place,
            id=f"{row.name.replace(' ', '-')}-{row.api_key}-{place}",
            marks=() if place <= 0 and (row.name, row.api_key) in always else pytest.mark.weekly,
        )
        for row in table
        for place in (UNHEARD, 0, 2, 7, 12, 40, 10_000)
    ]


class DyingBroker:
    """A loopback proxy for the broker at ``address`` (host:port of 127.0.0.1). Must be closed."""

    def __init__(self, address: str) -> None:
        self._target = int(address.rpartition(":")[2])
        self._lock = threading.Lock()
        self._server = socket.create_server(("127.0.0.1", 0))
        self._port = int(self._server.getsockname()[1])
        self._open: set[socket.socket] = set()
        self._fatal_key: int | None = None
        self._place: Place = 0
        self._dead = False
        self.deaths = 0
        threading.Thread(target=self._accept, daemon=True, name="dying-broker").start()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    def die_at(self, api_key: int, place: Place) -> None:
        """Die at the next request of this kind, at this place."""
        with self._lock:
            self._fatal_key, self._place = api_key, place

    def heal(self) -> None:
        """Accept connections again, and forward everything."""
        with self._lock:
            self._fatal_key, self._dead = None, False

    def close(self) -> None:
        self._server.close()
        self._end_all()

    def _is_the_end(self, key: int, *, unheard: bool) -> bool:
        """Return whether to die at this request or its answer. True only once.

        A second request may be pending at the same time. It must neither count as a second death nor end the healed
        state.
        """
        with self._lock:
            if self._fatal_key != key or (self._place == UNHEARD) is not unheard:
                return False
            self._dead, self._fatal_key = True, None
            self.deaths += 1
            return True

    def _end_all(self) -> None:
        with self._lock:
            ended, self._open = self._open, set()
        for connection in ended:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            with self._lock:
                dead = self._dead
            if dead:
                client.close()
                continue
            try:
                broker = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                client.close()
                continue
            asked: deque[tuple[int, int]] = deque()  # (correlation id, API key), in order
            with self._lock:
                self._open |= {client, broker}
            threading.Thread(target=self._pump, args=(client, broker, asked, True), daemon=True).start()
            threading.Thread(target=self._pump, args=(broker, client, asked, False), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, asked: deque[tuple[int, int]], to_broker: bool) -> None:
        try:
            while (frame := _frame_of(source)) is not None:
                if to_broker:
                    key, _, correlation = _KEY.unpack_from(frame)
                    if self._is_the_end(key, unheard=True):
                        self._end_all()
                        return
                    asked.append((correlation, key))
                    sink.sendall(_SIZE.pack(len(frame)) + frame)
                elif not self._answer(frame, sink, asked):
                    return
        except OSError:
            pass
        finally:
            for one in (source, sink):
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def _answer(self, frame: bytes, sink: socket.socket, asked: deque[tuple[int, int]]) -> bool:
        (correlation,) = _SIZE.unpack_from(frame)
        key = next((key for number, key in tuple(asked) if number == correlation), -1)
        while asked and asked[0][0] != correlation:  # requests without an answer
            asked.popleft()
        if asked:
            asked.popleft()
        address = b"127.0.0.1"
        frame = frame.replace(address + _SIZE.pack(self._target), address + _SIZE.pack(self._port))
        whole = _SIZE.pack(len(frame)) + frame
        if self._is_the_end(key, unheard=False):
            with contextlib.suppress(OSError):  # the client may have disconnected
                sink.sendall(whole[: min(self._place, len(whole) - 1)])
            self._end_all()
            return False
        sink.sendall(whole)
        return True


def _frame_of(source: socket.socket) -> bytes | None:
    size = _read(source, _SIZE.size)
    return None if size is None else _read(source, _SIZE.unpack(size)[0])


def _read(source: socket.socket, count: int) -> bytes | None:
    data = bytearray()
    while len(data) < count:
        piece = source.recv(count - len(data))
        if not piece:
            return None
        data += piece
    return bytes(data)
