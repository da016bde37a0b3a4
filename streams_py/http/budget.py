"""Limit the total memory for the requests and answers of a service.

A request body is kept until it is complete, and an answer until the client has read it. Clients determine how long that
takes, so the totals over all connections are limited. The total for answers counts only answers whose
``Content-Length`` is above 64 KiB. An answer with a ``Content-Length`` is written in pieces, so its unread part is in
memory once and not also in the buffers of the connection.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_PIECE_BYTES: Final = 64 << 10
_SMALL_BYTES: Final = 64 << 10
"""Size up to which an answer is always sent, in bytes, without counting it against the limit."""
_ANSWER_S: Final = 120.0
"""Time limit for a client to read an answer of a known length, in seconds."""
_RETRY_AFTER_S: Final = b"1"


class Budget:
    """Memory limits of a service, in bytes. Used on one event loop.

    ``bodies`` and ``answers`` limit the totals over all connections. ``body_max`` limits one request body.
    """

    def __init__(self, *, bodies: int, answers: int, body_max: int) -> None:
        self.bodies, self.answers, self.body_max = bodies, answers, body_max
        self.received = self.sent = 0
        """Bytes that are in memory now."""


class Budgeted:
    """ASGI middleware that applies a budget to an application."""

    def __init__(self, app: ASGIApp, budget: Budget) -> None:
        self._app = app
        self._budget = budget

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        exchange = _Exchange(self._budget, receive, send)
        try:
            return await self._app(scope, exchange.receive, exchange.send)
        except Exception:
            if not exchange.is_over:  # otherwise the application got a disconnect event, and may raise
                raise
        finally:
            exchange.end()


class _Exchange:
    """One request and its answer."""

    def __init__(self, budget: Budget, receive: Receive, send: Send) -> None:
        self._budget = budget
        self._receive, self._send = receive, send
        self._received = self._reserved = 0
        self.is_over = False
        """Whether an error was sent instead of an answer, or the answer was abandoned."""
        self._is_bounded = False

    async def receive(self) -> Message:
        message = await self._receive()
        size, budget = len(message.get("body", b"")), self._budget
        self._received += size
        budget.received += size
        if self._received > budget.body_max:
            await self.refuse(413, f"the body is longer than {budget.body_max} bytes")
        elif budget.received > budget.bodies:
            await self.refuse(503, "too many large requests at the same time; retry in a moment")
        return {"type": "http.disconnect"} if self.is_over else message

    async def send(self, message: Message) -> None:
        if self.is_over:
            return
        if message["type"] == "http.response.start":
            size = _length_of(message)
            self._is_bounded = size is not None
            if size is not None and size > _SMALL_BYTES:
                if self._budget.sent + size > self._budget.answers:
                    await self.refuse(503, "too many large answers at the same time; retry in a moment")
                    return
                self._reserved = size
                self._budget.sent += size
            await self._send(message)
            return
        if not self._is_bounded:
            await self._send(message)
            return
        try:
            async with asyncio.timeout(_ANSWER_S):
                await self._in_pieces(message)
        except TimeoutError:
            self.is_over = True
            raise

    async def _in_pieces(self, message: Message) -> None:
        body = memoryview(message.get("body", b""))
        more = message.get("more_body", False)
        for start in range(0, max(len(body), 1), _PIECE_BYTES):
            piece = bytes(body[start : start + _PIECE_BYTES])
            is_last = start + _PIECE_BYTES >= len(body)
            await self._send({"type": "http.response.body", "body": piece, "more_body": more or not is_last})

    async def refuse(self, status: int, message: str) -> None:
        """Send an error instead of the application's answer."""
        self.is_over = True
        content = json.dumps({"error_code": status, "message": message}).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(content)).encode()),
            (b"retry-after", _RETRY_AFTER_S),
            (b"connection", b"close"),
        ]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": content})

    def end(self) -> None:
        self._budget.received -= self._received
        self._budget.sent -= self._reserved


def _length_of(message: Message) -> int | None:
    headers: Any = message.get("headers", ())
    for name, value in headers:
        if name.lower() == b"content-length":
            return int(value)
    return None
