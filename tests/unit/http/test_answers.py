"""Answers of hostile servers: too long, or a few kilobytes that expand to gigabytes."""

from __future__ import annotations

import asyncio
import gzip
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from streams_protocol.types import HostInfo
from streams_py.cli.connect import status
from streams_py.connect.errors import ConnectError, NotLeaderError
from streams_py.connect.rest.forwarding import OtherWorkers
from streams_py.connect.rest.protection import RestProtection
from streams_py.connect.rest.tasks import TaskConfigSender
from streams_py.http.answers import bound_answers
from streams_py.query.errors import QueryError
from streams_py.query.reading import Query
from streams_py.query.routing import Router
from streams_py.runtime.client.state import State
from streams_py.runtime.queries.hosts import KeyQueryMetadata
from streams_py.state.reading.queryable import QueryableStoreType

PIECE = bytes(1 << 20)


class Endless(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body that never ends, and how much of it was read."""

    def __init__(self) -> None:
        self.pieces = 0

    def __iter__(self) -> Iterator[bytes]:
        for self.pieces in itertools.count(1):
            yield PIECE

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self:
            yield piece


class Compressed(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A small body that is compressed twice, and expands to 100 MB."""

    def __init__(self) -> None:
        self.body = gzip.compress(gzip.compress(bytes(100_000_000)))

    def __iter__(self) -> Iterator[bytes]:
        yield self.body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self.body


class Hostile:
    """A server that answers each request with the same bad body."""

    def __init__(self, kind: str) -> None:
        self.endless = Endless()
        self._kind = kind
        self.accepted: set[str] = set()

    def transport(self) -> httpx.MockTransport:
        def answer(request: httpx.Request) -> httpx.Response:
            self.accepted.add(request.headers["accept-encoding"])
            if self._kind == "endless":
                return httpx.Response(200, stream=self.endless)
            return httpx.Response(200, headers={"content-encoding": "gzip, gzip"}, stream=Compressed())

        return httpx.MockTransport(answer)


@pytest.fixture(params=["endless", "compressed"])
def hostile(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hostile]:
    hostile = Hostile(request.param)

    def expanded(*_: object) -> Any:
        raise AssertionError("the answer was expanded")

    monkeypatch.setattr(httpx._decoders.GZipDecoder, "decode", expanded)  # the memory that it takes cannot be measured
    yield hostile
    assert hostile.accepted == {"identity"}
    assert hostile.endless.pieces < 200


def test_synchronous_client_stops(hostile: Hostile) -> None:
    with httpx.Client(transport=hostile.transport()) as client:
        bound_answers(client, 10 << 20)
        with pytest.raises(httpx.ReadError, match=r"compressed|longer than 10,485,760 bytes"):
            client.get("http://server/")
    assert hostile.endless.pieces <= 11


def test_answer_within_the_limit_is_read() -> None:
    with httpx.Client(transport=httpx.MockTransport(lambda _: httpx.Response(200, content=b"12345"))) as client:
        bound_answers(client, 5)
        assert client.get("http://server/").content == b"12345"


def test_instance_that_a_member_of_the_group_has_named_cannot_fill_the_memory(hostile: Hostile) -> None:
    owner = HostInfo("evil", 1)
    streams: Any = SimpleNamespace(
        state=State.RUNNING,
        store_hosts=SimpleNamespace(
            own=HostInfo("own", 1),
            application_id="app",
            partition_counts=lambda store: {"in": 1},
            is_global=lambda store: False,
            of_partition=lambda store, partition: KeyQueryMetadata(owner, frozenset(), partition),
        ),
    )

    async def ask() -> object:
        router = Router(streams, timeout_s=60, transport=hostile.transport())
        # This instance has no stores.
        router._try_here = lambda *_: (0, QueryError("not here"))  # type: ignore[method-assign,assignment,return-value]
        try:
            query = Query("counts", QueryableStoreType.KEY_VALUE, "k", {"partition": "0"})
            return await router.answer(query, "/stores/counts/keys/k", passed_on=False)
        finally:
            await router.close()

    with pytest.raises(QueryError, match=r"no query service|answered with more than"):
        asyncio.run(ask())


def test_worker_that_a_member_of_the_group_has_named_cannot_fill_the_memory(hostile: Hostile) -> None:
    async def forward() -> object:
        workers = OtherWorkers(RestProtection(), hostile.transport())

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        scope = {"type": "http", "method": "GET", "raw_path": b"/connectors", "query_string": b"", "headers": []}
        try:
            return await workers.forward(Request(scope, receive), NotLeaderError("not here", "http://evil/"), 60)
        finally:
            await workers.close()

    with pytest.raises(ConnectError, match=r"compressed|longer than"):
        asyncio.run(forward())


def test_leader_that_answers_to_task_configurations_cannot_fill_the_memory(hostile: Hostile) -> None:
    sender = TaskConfigSender(transport=hostile.transport())
    with pytest.raises(ConnectError, match=r"compressed|longer than"):
        sender.send("http://evil/", "c", [], None)
    sender.close()


def test_message_of_a_leader_that_is_nested_too_deeply_is_one_error() -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(400, content=b'{"message":' + b"[" * 200_000))
    sender = TaskConfigSender(transport=transport)
    with pytest.raises(ConnectError, match="answered 400"):
        sender.send("http://evil/", "c", [], None)
    sender.close()


def test_worker_that_the_status_command_asks_cannot_fill_the_memory(
    hostile: Hostile, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made: Callable[..., httpx.Client] = httpx.Client
    # In place of a server on the network.
    monkeypatch.setattr(status, "_client", lambda *_: made(base_url="http://evil", transport=hostile.transport()))
    assert status.show_status("http://evil", as_json=True) == 2
    assert "no worker answers" in capsys.readouterr().err
