"""A small HTTP server without libraries, for probes and metrics: one GET per connection.

One thread handles all connections. A connection has a few seconds for its request and for reading the answer. At the
limit of connections, the server closes the connection that has waited longest for its client, to send a request or to
read the answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Final, NamedTuple, TypeAlias

from streams_py.http.hosts import accepted_names, listen, refused_name

_CONNECTIONS_MAX: Final = 64
_REQUEST_S: Final = 5.0
_ANSWER_S: Final = 20.0
_HEADER_BYTES_MAX: Final = 16 << 10
_STOP_S: Final = 5.0


class Answer(NamedTuple):
    """Status, content type and body."""

    status: int
    content_type: str
    body: bytes


Respond: TypeAlias = Callable[[str, dict[str, str]], Answer]
"""(path with query, headers in lower case) -> answer. Called on a separate thread, one call at a time."""


class ProbeServer:
    """Serves requests from its construction until :meth:`stop`.

    Args:
        host: Address to listen on.
        port: Port to listen on; 0: any free port.
        respond: Computes the answers.
        name: Name of the thread.
        key: The setting or argument for the address. Errors name it.
        advice: What the user can do when the address cannot be used. By default: to choose another port.
        names: Additional host names under which the server may be called.

    Raises:
        ConfigError: The server cannot listen there.
    """

    def __init__(
        self,
        host: str,
        port: int,
        respond: Respond,
        *,
        name: str,
        key: str,
        advice: str = "choose another port",
        names: Iterable[str] = (),
    ) -> None:
        self._socket = listen(host, port, key=key, advice=advice)
        self._socket.setblocking(False)
        self.port: int = self._socket.getsockname()[1]
        self._respond = respond
        self._names = accepted_names(host, names)
        self._waiting: dict[asyncio.Task[None], None] = {}
        self._open: set[asyncio.Task[None]] = set()
        self._worker = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close the port and all connections; a second call does nothing."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(_STOP_S)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()
            self._socket.close()
            self._worker.shutdown(wait=False, cancel_futures=True)

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._accept, sock=self._socket, limit=_HEADER_BYTES_MAX)
        await self._stopping.wait()
        server.close()
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._open) >= _CONNECTIONS_MAX:
            oldest = next(iter(self._waiting), None)
            if oldest is None:
                writer.transport.abort()
                return
            oldest.cancel()
        self._open.add(task)
        self._waiting[task] = None
        try:
            await self._exchange(task, reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass  # the connection is closed, and the client may retry
        finally:
            self._waiting.pop(task, None)
            self._open.discard(task)
            writer.transport.abort()

    async def _exchange(
        self, task: asyncio.Task[None], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        async with asyncio.timeout(_REQUEST_S):
            header = await reader.readuntil(b"\r\n\r\n")
        self._waiting.pop(task, None)
        async with asyncio.timeout(_ANSWER_S):
            method, answer = await self._answer(header)
            self._waiting[task] = None  # from now on, the duration depends on the client only
            head = (
                f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}\r\n"
                f"Content-Type: {answer.content_type}\r\n"
                f"Content-Length: {len(answer.body)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
            )
            writer.write(head.encode() + (b"" if method == "HEAD" else answer.body))
            await writer.drain()
            writer.write_eof()
            await reader.read(1)  # wait until the client has read all of it and closes

    async def _answer(self, header: bytes) -> tuple[str, Answer]:
        first, *lines = header.decode("latin-1").split("\r\n")
        words = first.split(" ")
        if len(words) != 3:
            return "GET", _text(HTTPStatus.BAD_REQUEST, "this is not an HTTP request")
        method, path, version = words
        fields = (line.partition(":") for line in lines)
        headers = {name.strip().lower(): value.strip() for name, _, value in fields}
        if not version.startswith("HTTP/1."):
            return method, _text(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "only HTTP/1.1 is supported")
        if method not in ("GET", "HEAD"):
            return method, _text(HTTPStatus.METHOD_NOT_ALLOWED, "only GET is supported")
        name = refused_name(headers.get("host", ""), self._names)
        if name is not None:
            return method, _text(HTTPStatus.FORBIDDEN, f"this service is not called {name!r:.100}")
        return method, await self._loop.run_in_executor(self._worker, self._respond, path, headers)


def _text(status: HTTPStatus, text: str) -> Answer:
    return Answer(status, "text/plain; charset=utf-8", f"{text}\n".encode())
