"""Route queries to the instance that has the partition: this one or another one.

Instances know the location of partitions from the leader's last assignment. So during a rebalance, a query may reach an
instance that does not have the partition yet, or no longer has it. That instance answers with status 503 and never
forwards the query, and the caller retries. So a query takes at most one hop, and two instances that disagree cannot
forward it back and forth.

Another service may use the address of an instance by now: the service of another application, which may have a store
with the same name, or a service that is not a query service. So a forwarded query names the application that it is for,
and an answer that does not look like one of a query service is not returned.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote

import httpx

from streams_protocol.types import HostInfo
from streams_py.http.answers import bound_answers
from streams_py.query.errors import (
    STATUS_OF,
    BadQueryError,
    NotHereNowError,
    OwnerAnswerError,
    OwnerTimeoutError,
    QueryError,
)
from streams_py.query.reading import ANSWER_BYTES_MAX, Query, answer_here, check_size, partition_of
from streams_py.query.workers import Workers
from streams_py.runtime.client.kafka_streams import KafkaStreams
from streams_py.system.printable import text_of

HOP_HEADER: Final = "Streams-Query-Hop"
"""Header of a query that one instance forwards to another. Its value is the application that the query is for."""
_PARTITIONS_AT_ONCE: Final = 8
_READERS, _BROKER_READERS = 16, 2
_ENVELOPE_BYTES: Final = 1_000
_FIELDS: Final = ("key", "value", "partition", "entries", "complete")
_ENTRY_FIELDS: Final = ("key", "value", "partition", "start", "end", "from", "to")
"""Fields of an answer and of its entries. Other fields of a remote answer are not returned."""
_NO_SERVICE: Final = "no query service of this application answers there"

_log = logging.getLogger(__name__)

T = TypeVar("T")

Answer = tuple[int, Mapping[str, Any]]
"""HTTP status and body."""


class _Part(NamedTuple):
    """The answer of one partition, with the total size of its entries."""

    status: int
    body: Mapping[str, Any]
    size_bytes: int


class Router:
    """The query router of one instance. The caller must close it.

    Args:
        streams: The application instance.
        timeout_s: Time limit of a query.
        allowed_hosts: Hosts of other instances to which queries may be sent. None allows all hosts that the group
            names.
        transport: The HTTP transport to other instances. For tests.
    """

    def __init__(
        self,
        streams: KafkaStreams,
        *,
        timeout_s: float,
        allowed_hosts: Collection[str] | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._streams = streams
        self._allowed = None if allowed_hosts is None else frozenset(allowed_hosts)
        self._timeout_s = timeout_s
        self._readers, self._broker_readers = Workers(_READERS), Workers(_BROKER_READERS)
        # Instances connect directly, so proxy settings from the environment are ignored.
        self._client = httpx.AsyncClient(transport=transport, trust_env=False, timeout=timeout_s)
        bound_answers(self._client, 2 * ANSWER_BYTES_MAX)  # _bounded() stops earlier, with a better message

    async def close(self) -> None:
        """Close the connections to other instances."""
        self._readers.close()
        self._broker_readers.close()
        await self._client.aclose()

    async def read(self, call: Callable[[], T], what: str) -> T:
        """Run a read of this instance only. Raises OwnerTimeoutError after the time limit."""
        return await self._readers.run(call, what, time.monotonic() + self._timeout_s)

    async def ask_brokers(self, call: Callable[[], T], what: str) -> T:
        """Run a call that waits for brokers. Raises OwnerTimeoutError after the time limit.

        It has separate threads, so queries do not wait behind unreachable brokers.
        """
        return await self._broker_readers.run(call, what, time.monotonic() + self._timeout_s)

    async def answer(self, query: Query, path: str, *, passed_on: bool) -> Answer:
        """Answer a query.

        Args:
            query: The query.
            path: The path of the request, for another instance.
            passed_on: Whether another instance has forwarded the query. Then it is not forwarded again.

        Raises:
            QueryError: The query cannot be answered.
            InvalidStateStoreError: The query does not fit the store.
        """
        deadline_s = time.monotonic() + self._timeout_s
        if self._streams.store_hosts.is_global(query.store):
            what = f"reading store {query.store!r}"
            found = await self._readers.run(
                lambda: answer_here(self._streams, query, None, deadline_s), what, deadline_s
            )
            return 200, found.body
        if query.partition is None and query.key is None:
            if passed_on:
                raise BadQueryError("a forwarded query must name its partition")
            return await self._all(query, path, deadline_s)
        part = await self._one(query, query.partition, path, deadline_s, passed_on=passed_on)
        return part.status, part.body

    async def _all(self, query: Query, path: str, deadline_s: float) -> Answer:
        counts = self._streams.store_hosts.partition_counts(query.store)
        if not counts:
            raise NotHereNowError(f"the instances that have store {query.store!r} are not known yet")
        every = range(max(counts.values()))
        entries: list[Any] = []
        complete, size_bytes = True, 0
        for first in range(0, len(every), _PARTITIONS_AT_ONCE):
            some = every[first : first + _PARTITIONS_AT_ONCE]
            parts = await asyncio.gather(
                *(self._one(query, partition, path, deadline_s, passed_on=False) for partition in some)
            )
            for part in parts:
                if part.status != 200:
                    return part.status, part.body
                if "entries" not in part.body:
                    raise OwnerAnswerError(f"a partition of store {query.store!r} was answered without entries")
                entries += part.body["entries"]
                complete = complete and part.body["complete"]
                size_bytes += part.size_bytes
                check_size(query, size_bytes)
            if len(entries) > query.limit:
                complete = False
                break
        return 200, {"entries": entries[: query.limit], "complete": complete}

    async def _one(self, query: Query, asked: int | None, path: str, deadline_s: float, *, passed_on: bool) -> _Part:
        """Return the answer of one partition. ``asked`` None means the partition of the query's key."""
        what = f"reading store {query.store!r}"
        partition, here = await self._readers.run(lambda: self._try_here(query, asked, deadline_s), what, deadline_s)
        if isinstance(here, _Part):
            return here
        if passed_on:
            raise here
        hosts = self._streams.store_hosts
        place = hosts.of_partition(query.store, partition)
        owners = [place.active_host] if place.is_available else []
        if query.flag("stale"):
            owners += sorted(place.standby_hosts)
        problem: QueryError = here
        if hosts.own not in owners:
            problem = NotHereNowError(
                f"no instance is known to have partition {partition} of store {query.store!r} now"
            )
        others = [host for host in owners if host != hosts.own]
        for number, host in enumerate(others):
            now_s = time.monotonic()
            # A host that does not answer must leave time for the others.
            until_s = now_s + (deadline_s - now_s) / (len(others) - number)
            try:
                return await self._at(host, query, partition, path, until_s)
            except (NotHereNowError, OwnerTimeoutError) as error:
                problem = error
        raise problem

    def _try_here(self, query: Query, asked: int | None, deadline_s: float) -> tuple[int, _Part | NotHereNowError]:
        """Return the partition, and this instance's answer or the reason why it has none. Runs on a worker thread."""
        partition = partition_of(self._streams, query) if asked is None else asked
        try:
            found = answer_here(self._streams, query, partition, deadline_s)
        except NotHereNowError as error:
            return partition, error
        return partition, _Part(200, found.body, found.size_bytes)

    async def _at(self, host: HostInfo, query: Query, partition: int, path: str, deadline_s: float) -> _Part:
        if self._allowed is not None and host.host not in self._allowed:
            raise NotHereNowError(
                f"partition {partition} of store {query.store!r} is at {host}, which is not in allowed_hosts"
            )
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
                    headers={HOP_HEADER: self._streams.store_hosts.application_id},
                ) as answer,
            ):
                content = await _bounded(answer)
        except (TimeoutError, httpx.TimeoutException):
            raise OwnerTimeoutError(f"{wanted}: no answer within {max(0.0, left_s):.1f} s") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            # The same text for all errors: a caller that can register an address in the group must not learn which
            # ports are open on that host.
            _log.debug("%s: %s", wanted, text_of(error))
            raise NotHereNowError(f"{wanted}: {_NO_SERVICE}") from None
        try:
            body = json.loads(content)
        except (ValueError, RecursionError):
            body = None
        if answer.status_code == 200 and _is_answer(body):
            return _Part(200, _known(body), len(content))
        if not _is_refusal(answer.status_code, body):
            raise NotHereNowError(f"{wanted}: {_NO_SERVICE}")
        match answer.status_code:
            case NotHereNowError.status:
                raise NotHereNowError(body["message"])
            case OwnerTimeoutError.status:
                raise OwnerTimeoutError(body["message"])
            case status:
                return _Part(status, {"error": body["error"], "message": body["message"]}, 0)


def _quoted(path: str) -> str:
    """Quote a path. URL libraries remove ``.`` and ``..`` between slashes, which may be part of a key."""
    return "/".join("%2E" * len(part) if part in (".", "..") else quote(part) for part in path.split("/"))


async def _bounded(answer: httpx.Response) -> bytes:
    content = bytearray()
    async for chunk in answer.aiter_bytes():
        content += chunk
        if len(content) > ANSWER_BYTES_MAX + _ENVELOPE_BYTES:
            raise OwnerAnswerError(f"{answer.url.host} answered with more than {ANSWER_BYTES_MAX} bytes; use limit=")
    return bytes(content)


def _is_answer(body: Any) -> bool:
    if not isinstance(body, dict):
        return False
    if "entries" in body:
        return isinstance(body["entries"], list) and isinstance(body.get("complete"), bool)
    return "value" in body


def _known(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return an answer of another instance with known fields only."""
    known = {field: body[field] for field in _FIELDS if field in body}
    if "entries" in known:
        known["entries"] = [
            {field: entry[field] for field in _ENTRY_FIELDS if field in entry}
            for entry in known["entries"]
            if isinstance(entry, dict)
        ]
    return known


def _is_refusal(status: int, body: Any) -> bool:
    """Whether the answer is an error of a query service. A 404 of another service does not mean an absent key."""
    if not isinstance(body, dict):
        return False
    word, message = body.get("error"), body.get("message")
    return isinstance(word, str) and isinstance(message, str) and STATUS_OF.get(word) == status
