"""Whom an instance asks, and for how long."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from streams_protocol.types import HostInfo
from streams_py import InvalidStateStorePartitionError, State
from streams_py.query.errors import OwnerTimeoutError
from streams_py.query.reading import Query
from streams_py.query.routing import Answer, Router
from streams_py.runtime.queries.hosts import KeyQueryMetadata
from streams_py.state.queries import QueryableStoreType

OWNER, STANDBY, OWN = HostInfo("owner", 1), HostInfo("standby", 1), HostInfo("own", 1)


class Streams:
    """An instance that has nothing itself."""

    state = State.RUNNING
    store_hosts = SimpleNamespace(
        own=OWN,
        is_global=lambda store: False,
        of_partition=lambda store, partition: KeyQueryMetadata(OWNER, frozenset({STANDBY}), partition),
    )

    def store(self, *_: object, **__: object) -> Any:
        raise InvalidStateStorePartitionError("not here")


class OwnerHangs(httpx.AsyncBaseTransport):
    """The owner was frozen; the standby answers."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.host == OWNER.host:
            await asyncio.sleep(60)
        return httpx.Response(200, json={"key": "k", "value": 7, "partition": 0})


def ask(**options: str) -> Answer:
    async def asked() -> Answer:
        router = Router(Streams(), timeout_s=0.1, transport=OwnerHangs())  # type: ignore[arg-type]  # what it uses
        query = Query("counts", QueryableStoreType.KEY_VALUE, "k", {"partition": "0", **options})
        try:
            return await router.answer(query, "/stores/counts/keys/k", passed_on=False)
        finally:
            await router.close()

    return asyncio.run(asked())


def test_standby_is_asked_in_time_when_the_owner_hangs() -> None:
    assert ask(stale="true") == (200, {"key": "k", "value": 7, "partition": 0})


def test_owner_that_does_not_answer_is_told_from_one_that_has_it_no_more() -> None:
    with pytest.raises(OwnerTimeoutError, match=r"partition 0 of store .counts. at owner:1: no answer within 0\.\d s"):
        ask()
