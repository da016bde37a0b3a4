"""A broker that dies in the middle of a call, without a broker having to die: a TCP proxy before a real one.

The proxy reads Kafka's frames. In answers it replaces the broker's address with its own, so that clients stay with it.
Told to, it lets a request of one kind (API key) through and then acts like a broker that was stopped and killed: the
answer is swallowed, or cut after some bytes, every connection is closed and new ones are refused until :meth:`heal`.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections import deque

__all__ = ["DyingBroker"]

_SIZE = struct.Struct(">i")
_KEY = struct.Struct(">hhi")


class DyingBroker:
    """A proxy on loopback for the broker at ``address`` (host:port of 127.0.0.1). Close it."""

    def __init__(self, address: str) -> None:
        self._target = int(address.rpartition(":")[2])
        self._lock = threading.Lock()
        self._server = socket.create_server(("127.0.0.1", 0))
        self._port = int(self._server.getsockname()[1])
        self._open: set[socket.socket] = set()
        self._fatal_key: int | None = None
        self._cut_after: int | None = None
        self._dead = False
        self.deaths = 0
        threading.Thread(target=self._accept, daemon=True, name="dying-broker").start()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    def die_at(self, api_key: int, *, after_bytes: int | None = None) -> None:
        """Die when the next request of this kind was answered: the client gets nothing, or so many bytes."""
        with self._lock:
            self._fatal_key, self._cut_after = api_key, after_bytes

    def heal(self) -> None:
        """Take connections again, and answer everything."""
        with self._lock:
            self._fatal_key, self._dead = None, False

    def close(self) -> None:
        self._server.close()
        self._end_all()

    def _die(self) -> None:
        with self._lock:
            self._dead, self._fatal_key = True, None
            self.deaths += 1
        self._end_all()

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
        with self._lock:
            fatal, cut = self._fatal_key == key, self._cut_after
        whole = _SIZE.pack(len(frame)) + frame
        if fatal:
            if cut:
                sink.sendall(whole[: min(cut, len(whole) - 1)])
            self._die()
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
