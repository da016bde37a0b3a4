"""A loopback proxy for all brokers of a cluster, for one process. Its connections can be cut, delayed or stalled.

It has a separate port for each broker, and discovers brokers as its client does. It runs on one thread with an event
loop. Its methods may be called on any other thread.

Broker addresses in a broker's answers are replaced, so that a client keeps connecting through proxies. Three kinds of
answers contain broker addresses: Metadata, FindCoordinator and DescribeCluster. The kind of an answer is known from the
request with the same correlation id.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from typing import Any, Final, TypeAlias, TypeVar

from kafka.protocol.admin import DescribeClusterResponse
from kafka.protocol.metadata import FindCoordinatorResponse, MetadataResponse

Address: TypeAlias = tuple[str, int]
"""Host and port."""

_REQUEST = struct.Struct(">hhi")
_ANSWER = struct.Struct(">i")
_NAMING: Final[dict[int, Any]] = {
    one.API_KEY: one for one in (MetadataResponse, FindCoordinatorResponse, DescribeClusterResponse)
}


class AddressReplacer:
    """Replaces the addresses on one connection. ``instead_of`` returns the replacement of a broker's address."""

    def __init__(self, instead_of: Callable[[Address], Awaitable[Address]]) -> None:
        self._instead_of = instead_of
        self._awaited: dict[int, tuple[Any, int]] = {}

    def note_request(self, request: bytes) -> None:
        """Record a request to the broker (without its length field)."""
        kind, version, number = _REQUEST.unpack_from(request)
        if kind in _NAMING:
            self._awaited[number] = (_NAMING[kind], version)

    async def answer(self, answer: bytes) -> bytes:
        """Return the answer (without its length field) to send to the client."""
        asked = self._awaited.pop(_ANSWER.unpack_from(answer)[0], None)
        if asked is None:
            return answer
        kind, version = asked
        found = kind.decode(answer, version=version, header=True)
        for named in _naming(found):
            if named.port > 0:  # otherwise no coordinator is known
                named.host, named.port = await self._instead_of((named.host, named.port))
        return bytes(found.encode(header=True))


def _naming(answer: Any) -> Iterator[Any]:
    """Yield the parts of an answer that have a host and a port."""
    if isinstance(answer, MetadataResponse | DescribeClusterResponse):
        yield from answer.brokers
    elif answer.version is not None and answer.version >= 4:
        yield from answer.coordinators
    else:
        yield answer


_log = logging.getLogger(__name__)

_HOST: Final = "127.0.0.1"
_FRAMES_MAX: Final = 64
_LENGTH_BYTES: Final = 4
_STOP_S: Final = 5.0

T = TypeVar("T")
_Look = Callable[[bytes], Awaitable[bytes]]


class Proxy:
    """A proxy that runs until :meth:`close`. ``brokers``: ``host:port[,host:port]``, without TLS."""

    def __init__(self, brokers: str) -> None:
        self._delay_s = 0.0
        self._open = asyncio.Event()
        self._open.set()
        self._links: set[_Link] = set()
        self._servers: dict[Address, asyncio.Server] = {}
        self._starting = asyncio.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.bootstrap = ",".join(f"{host}:{port}" for host, port in self._call(self._listen_for(_addresses(brokers))))
        """Value of ``bootstrap.servers`` for the client."""

    # -- faults ----------------------------------------

    def cut(self) -> int:
        """Abort all connections; return their number."""
        return self._call(self._cut())

    def delay(self, seconds: float) -> None:
        """Delay all further data by this time; 0 removes the delay."""
        self._delay_s = seconds

    def stall(self, stalled: bool) -> None:
        """Stop all data without closing connections, or continue."""
        self._call(self._stall(stalled))

    def close(self) -> None:
        """Abort all connections and close all ports."""
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_STOP_S)

    # -- on the loop ----------------------------------------

    def _call(self, step: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(step, self._loop).result()

    async def _stall(self, stalled: bool) -> None:
        if stalled:
            self._open.clear()
        else:
            self._open.set()

    async def _cut(self) -> int:
        links = list(self._links)
        for link in links:
            link.abort()
        return len(links)

    async def _close(self) -> None:
        for server in self._servers.values():
            server.close()
        await self._cut()
        self._open.set()
        mine = asyncio.current_task()
        await asyncio.gather(*(task for task in asyncio.all_tasks() if task is not mine), return_exceptions=True)

    async def _listen_for(self, brokers: Iterable[Address]) -> list[Address]:
        return [await self._instead_of(broker) for broker in brokers]

    async def _instead_of(self, broker: Address) -> Address:
        async with self._starting:
            server = self._servers.get(broker)
            if server is None:

                async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                    await self._serve(broker, reader, writer)

                server = self._servers[broker] = await asyncio.start_server(serve, _HOST, 0)
        return _HOST, server.sockets[0].getsockname()[1]

    async def _serve(self, broker: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = _Link(writer)
        self._links.add(link)
        try:
            there, back = await asyncio.open_connection(*broker)
            link.writers.append(back)
            passing = AddressReplacer(self._instead_of)

            async def note(request: bytes) -> bytes:
                passing.note_request(request)
                return request

            ways = [
                asyncio.ensure_future(self._carry(reader, back, note)),
                asyncio.ensure_future(self._carry(there, writer, passing.answer)),
            ]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            link.close()
            await asyncio.gather(*ways, return_exceptions=True)
        except OSError:
            pass  # the broker is not available
        finally:
            link.close()
            self._links.discard(link)

    async def _carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, look: _Look) -> None:
        """Carry frames in one direction until the source closes. Frames received before that are still delivered."""
        under_way: asyncio.Queue[tuple[float, bytes] | None] = asyncio.Queue(_FRAMES_MAX)

        async def receive() -> None:
            try:
                while True:
                    length = int.from_bytes(await source.readexactly(_LENGTH_BYTES), "big")
                    frame = await look(await source.readexactly(length))
                    await under_way.put((self._loop.time() + self._delay_s, frame))
            except (asyncio.IncompleteReadError, OSError):
                pass  # this side has closed
            except Exception:
                _log.exception("data from %s is not valid in Kafka's protocol; closing the connection", source)
            finally:
                await under_way.put(None)

        receiving = asyncio.ensure_future(receive())
        try:
            with contextlib.suppress(OSError):
                while (entry := await under_way.get()) is not None:
                    due_s, frame = entry
                    early_s = due_s - self._loop.time()
                    if early_s > 0:
                        await asyncio.sleep(early_s)
                    await self._open.wait()
                    sink.write(len(frame).to_bytes(_LENGTH_BYTES, "big") + frame)
                    await sink.drain()
        finally:
            receiving.cancel()
            await asyncio.gather(receiving, return_exceptions=True)


class _Link:
    """The two connections of one client with one broker."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writers = [writer]

    def close(self) -> None:
        """Close both connections after the data is sent."""
        for writer in self.writers:
            writer.close()

    def abort(self) -> None:
        for writer in self.writers:
            writer.transport.abort()


def _addresses(brokers: str) -> list[Address]:
    found = []
    for one in brokers.split(","):
        host, _, port = one.strip().rpartition(":")
        found.append((host, int(port)))
    return found
