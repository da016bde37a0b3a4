"""Whom an instance asks, and for how long."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from streams_protocol.types import HostInfo
from streams_py import InvalidStateStorePartitionError, State
from streams_py.query.errors import BadQueryError, NotHereNowError, OwnerAnswerError, OwnerTimeoutError, QueryError
from streams_py.query.reading import Query
from streams_py.query.routing import HOP_HEADER, Answer, Router
from streams_py.runtime.queries.hosts import KeyQueryMetadata
from streams_py.state.reading.queryable import QueryableStoreType

OWNER, STANDBY, OWN = HostInfo("owner", 1), HostInfo("standby", 1), HostInfo("own", 1)


class Streams:
    """An instance that has nothing itself."""

    state = State.RUNNING
    store_hosts = SimpleNamespace(
        own=OWN,
        application_id="app",
        partition_counts=lambda store: {"in": 3},
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


def route(query: Query, transport: httpx.AsyncBaseTransport, timeout_s: float = 60) -> Answer:
    async def asked() -> Answer:
        router = Router(Streams(), timeout_s=timeout_s, transport=transport)  # type: ignore[arg-type]  # what it uses
        try:
            return await router.answer(query, "/stores/counts/keys/k", passed_on=False)
        finally:
            await router.close()

    return asyncio.run(asked())


def ask(**options: str) -> Answer:
    query = Query("counts", QueryableStoreType.KEY_VALUE, "k", {"partition": "0", **options})
    return route(query, OwnerHangs(), timeout_s=0.1)


def ask_one_that_answers(status: int, body: Any, *, key: str | None = "k") -> Answer:
    def handle(request: httpx.Request) -> httpx.Response:
        assert request.headers[HOP_HEADER] == "app"
        return httpx.Response(status, json=body)

    options = {} if key is None else {"partition": "0"}
    return route(Query("counts", QueryableStoreType.KEY_VALUE, key, options), httpx.MockTransport(handle))


def test_standby_is_asked_in_time_when_the_owner_hangs() -> None:
    assert ask(stale="true") == (200, {"key": "k", "value": 7, "partition": 0})


def test_owner_that_does_not_answer_is_told_from_one_that_has_it_no_more() -> None:
    with pytest.raises(OwnerTimeoutError, match=r"partition 0 of store .counts. at owner:1: no answer within 0\.\d s"):
        ask()


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, {"detail": "Not Found"}),
        (404, {"error": "no_such_address", "message": "Not Found"}),
        (404, {"error": "absent"}),
        (404, {"error": ["absent"], "message": "?"}),
        (200, {"error": "absent", "message": "?"}),
        (302, {"value": 7}),
        (503, {"message": "busy"}),
        (200, [7]),
    ],
    ids=str,
)
def test_what_is_no_answer_of_a_query_service_is_not_passed_on(status: int, body: Any) -> None:
    """It must not look like an absent key. The text is the same as for an address without a listener: a client that
    registers an address in the group must not learn from the answers which ports are open there."""
    with pytest.raises(NotHereNowError, match=r"no query service of this application answers there$"):
        ask_one_that_answers(status, body)


def test_only_known_fields_of_an_answer_are_passed_on() -> None:
    entry = {"key": "k", "value": 7, "partition": 0, "more": "secret"}
    body = {"value": 7, "key": "k", "partition": 0, "more": "secret"}
    assert ask_one_that_answers(200, body) == (200, {"value": 7, "key": "k", "partition": 0})
    many = {"entries": [entry, "no entry"], "complete": True, "more": "secret"}
    known = {"key": "k", "value": 7, "partition": 0}
    assert ask_one_that_answers(200, many) == (200, {"entries": [known], "complete": True})
    refusal = {"error": "absent", "message": "because", "more": "secret"}
    assert ask_one_that_answers(404, refusal) == (404, {"error": "absent", "message": "because"})


@pytest.mark.parametrize(
    ("status", "word"), [(404, "absent"), (404, "unknown_store"), (400, "bad_query"), (500, "failed")]
)
def test_what_the_owner_says_is_passed_on(status: int, word: str) -> None:
    body = {"error": word, "message": "because"}
    assert ask_one_that_answers(status, body) == (status, body)


@pytest.mark.parametrize(("status", "word"), [(503, "not_available"), (504, "timeout")])
def test_owner_that_has_it_no_more_or_is_slow_says_so(status: int, word: str) -> None:
    with pytest.raises(QueryError, match="because") as raised:
        ask_one_that_answers(status, {"error": word, "message": "because"})
    assert (raised.value.status, raised.value.code) == (status, word)


def test_partition_without_entries_is_no_answer_to_a_range() -> None:
    with pytest.raises(OwnerAnswerError, match="answered without entries"):
        ask_one_that_answers(200, {"key": "k", "value": 7, "partition": 0}, key=None)


def test_partitions_together_are_no_larger_than_one_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams_py.query.reading.ANSWER_BYTES_MAX", 1_000)
    with pytest.raises(BadQueryError, match="more than 1000 bytes; set a lower limit="):
        ask_one_that_answers(200, {"entries": [{"key": "k", "value": "x" * 400}], "complete": True}, key=None)
