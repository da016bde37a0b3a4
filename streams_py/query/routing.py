"""Who answers: this instance, or the one that has the partition.

Where partitions are is what the leader said last, so during a rebalance an instance may be asked that does not have
the partition yet, or any more. It never passes the question on: a query takes one hop at most, and two instances that
disagree cannot play one back and forth. It answers 503, and the caller asks again.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import httpx
from anyio import to_thread

from streams_protocol.types import HostInfo
from streams_py.query.errors import BadQueryError, NotHereNowError, OwnerAnswerError, OwnerTimeoutError, QueryError
from streams_py.query.reading import Query, answer_here, key_of
from streams_py.runtime.kafka_streams import KafkaStreams

__all__ = ["HOP_HEADER", "Answer", "Router"]

HOP_HEADER: Final = "Streams-Query-Hop"
ANSWER_BYTES_MAX: Final = 32 << 20
_PARTITIONS_AT_ONCE: Final = 8

Answer = tuple[int, Mapping[str, Any]]
"""Status and body."""


class Router:
    """Answers queries for one instance; close it. ``transport`` is for tests: how other instances are reached."""

    def __init__(
        self, streams: KafkaStreams, *, timeout_s: float, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self._streams = streams
        self._timeout_s = timeout_s
        # No proxies from the environment: instances reach each other.
        self._client = httpx.AsyncClient(transport=transport, trust_env=False, timeout=timeout_s)

    async def close(self) -> None:
        """Close the connections to other instances."""
        await self._client.aclose()

    async def answer(self, query: Query, path: str, *, passed_on: bool) -> Answer:
        """The answer; ``passed_on``: the query comes from another instance, so nobody else is asked.

        QueryError, or InvalidStateStoreError when the question does not fit the store.
        """
        deadline_s = time.monotonic() + self._timeout_s
        hosts = self._streams.store_hosts
        if hosts.is_global(query.store):
            return 200, await self._here(query, None, deadline_s)
        partition = query.partition
        if partition is None and query.key is not None:
            found = self._streams.query_metadata_for_key(query.store, key_of(self._streams, query, query.key))
            partition = found.partition
            if partition < 0:
                raise NotHereNowError(f"nobody has said yet where store {query.store!r} is")
        if partition is not None:
            return await self._one(query, partition, path, deadline_s, passed_on=passed_on)
        if passed_on:
            raise BadQueryError("a query that is passed on names its partition")
        return await self._all(query, path, deadline_s)

    async def _all(self, query: Query, path: str, deadline_s: float) -> Answer:
        counts = self._streams.store_hosts.partition_counts(query.store)
        if not counts:
            raise NotHereNowError(f"nobody has said yet where store {query.store!r} is")
        room = asyncio.Semaphore(_PARTITIONS_AT_ONCE)

        async def one(partition: int) -> Answer:
            async with room:
                return await self._one(query, partition, path, deadline_s, passed_on=False)

        answers = await asyncio.gather(*map(one, range(max(counts.values()))))
        for status, body in answers:
            if status != 200:
                return status, body
        entries = [entry for _, body in answers for entry in body["entries"]]
        complete = len(entries) <= query.limit and all(body["complete"] for _, body in answers)
        return 200, {"entries": entries[: query.limit], "complete": complete}

    async def _one(self, query: Query, partition: int, path: str, deadline_s: float, *, passed_on: bool) -> Answer:
        hosts = self._streams.store_hosts
        place = hosts.of_partition(query.store, partition)
        owners = [place.active_host] if place.is_available else []
        if query.flag("stale"):
            owners += sorted(place.standby_hosts)
        problem: QueryError = NotHereNowError(
            f"no instance is known to have partition {partition} of store {query.store!r} now"
        )
        try:
            return 200, await self._here(query, partition, deadline_s)
        except NotHereNowError as error:
            if passed_on:
                raise
            problem = error if hosts.own in owners else problem
        others = [host for host in owners if host != hosts.own]
        for asked, host in enumerate(others):
            now_s = time.monotonic()
            until_s = now_s + (deadline_s - now_s) / (len(others) - asked)  # one that hangs leaves time for the others
            try:
                return await self._at(host, query, partition, path, until_s)
            except (NotHereNowError, OwnerTimeoutError) as error:
                problem = error
        raise problem

    async def _here(self, query: Query, partition: int | None, deadline_s: float) -> dict[str, Any]:
        return await to_thread.run_sync(answer_here, self._streams, query, partition, deadline_s)

    async def _at(self, host: HostInfo, query: Query, partition: int, path: str, deadline_s: float) -> Answer:
        name = f"[{host.host}]" if ":" in host.host else host.host
        wanted = f"partition {partition} of store {query.store!r} at {host}"
        left_s = deadline_s - time.monotonic()
        try:
            async with (
                asyncio.timeout(max(0.0, left_s)),
                self._client.stream(
                    "GET",
                    f"http://{name}:{host.port}{_quoted(path)}",
                    params={**query.options, "partition": str(partition)},
                    headers={HOP_HEADER: "1"},
                ) as answer,
            ):
                content = await _bounded(answer)
        except (TimeoutError, httpx.TimeoutException):
            raise OwnerTimeoutError(f"{wanted}: no answer within {max(0.0, left_s):.1f} s") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise NotHereNowError(f"{wanted}: {str(error) or type(error).__name__}") from None
        try:
            body = json.loads(content)
        except ValueError:
            body = None
        if not isinstance(body, dict) or (answer.status_code == 200 and not _is_answer(body)):
            raise OwnerAnswerError(f"{wanted}: what answers there is no query service (status {answer.status_code})")
        if answer.status_code == 503:
            raise NotHereNowError(str(body.get("message", wanted)))
        return answer.status_code, body


def _quoted(path: str) -> str:
    """As it came: whoever builds an address takes ``.`` and ``..`` between slashes out, and they may be a key's."""
    return "/".join("%2E" * len(part) if part in (".", "..") else quote(part) for part in path.split("/"))


async def _bounded(answer: httpx.Response) -> bytes:
    content = bytearray()
    async for chunk in answer.aiter_bytes():
        content += chunk
        if len(content) > ANSWER_BYTES_MAX:
            raise OwnerAnswerError(f"{answer.url.host} answered with more than {ANSWER_BYTES_MAX} bytes; use limit=")
    return bytes(content)


def _is_answer(body: Mapping[str, Any]) -> bool:
    if "entries" in body:
        return isinstance(body["entries"], list) and isinstance(body.get("complete"), bool)
    return "value" in body
