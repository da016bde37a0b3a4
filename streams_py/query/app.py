"""The HTTP paths of the query service.

All requests are read-only. The service does not authenticate clients: any client that can connect to the port can read
the stores. The service refuses unknown names in the ``Host`` header (:mod:`streams_py.http.hosts`).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from streams_py.errors import BrokerUnavailableError, InvalidStateStoreError, StreamsError, UnknownStateStoreError
from streams_py.query.errors import UNKNOWN_STORE, BadQueryError, NotHereNowError, QueryError, safe_text
from streams_py.query.keys import json_text
from streams_py.query.reading import Query, key_of, kind_of
from streams_py.query.routing import HOP_HEADER, Router
from streams_py.runtime.client.kafka_streams import KafkaStreams
from streams_py.runtime.queries.hosts import KeyQueryMetadata
from streams_py.state.reading.queryable import QueryableStoreType

_log = logging.getLogger(__name__)

_RETRY_AFTER_S = 1
_HEADERS = {"Cache-Control": "no-store"}
"""Headers of each answer. Proxies must not cache it."""
_PATHS = {
    QueryableStoreType.KEY_VALUE: "keys",
    QueryableStoreType.WINDOW: "windows",
    QueryableStoreType.SESSION: "sessions",
    QueryableStoreType.VERSIONED: "versions",
}


def query_app(streams: KafkaStreams, router: Router) -> Starlette:
    """Create the ASGI application of one instance."""
    api = _Api(streams, router)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await router.close()

    def route(path: str, handler: Callable[[Request], Awaitable[Response]]) -> Route:
        async def guarded(request: Request) -> Response:
            try:
                _check(request)
                return await handler(request)
            except StreamsError as error:
                return _refused(error)
            except Exception as error:  # from a serde, or from a custom store
                _log.warning("%s could not be answered", request.scope["path"], exc_info=True)
                return _refused(QueryError(safe_text(error)))

        return Route(path, guarded, methods=["GET"])

    routes = [
        route("/stores", api.stores),
        *(
            route(f"/stores/{{store}}/{word}{key}", api.query(kind))
            for kind, word in _PATHS.items()
            for key in ("/{key:path}", "")
        ),
        route("/metadata", api.metadata),
        route("/metadata/{store}", api.metadata),
        route("/metadata/{store}/{key:path}", api.key_metadata),
        route("/lags", api.lags),
    ]
    return Starlette(routes=routes, lifespan=lifespan, exception_handlers={HTTPException: _http_error})


class _Api:
    """The request handlers, one method per path."""

    def __init__(self, streams: KafkaStreams, router: Router) -> None:
        self._streams = streams
        self._router = router

    async def stores(self, request: Request) -> Response:
        """Return the names and kinds of all stores."""
        declared = self._streams.store_hosts.stores
        return _json({"stores": {name: builder.kind.value for name, builder in sorted(declared.items())}})

    def query(self, kind: QueryableStoreType) -> Callable[[Request], Awaitable[Response]]:
        """Create the handler for queries of stores of one kind."""

        async def handler(request: Request) -> Response:
            store, key = request.path_params["store"], request.path_params.get("key")
            there = kind_of(self._streams, store)
            if there is not kind:
                raise BadQueryError(f"store {store!r} is read under /stores/{store}/{_PATHS[there]}")
            query = Query(store, kind, key, _options(request))
            passed_on = self._is_passed_on(request)
            status, body = await self._router.answer(query, request.scope["path"], passed_on=passed_on)
            return _json(body, status)

        return handler

    def _is_passed_on(self, request: Request) -> bool:
        """Whether another instance has forwarded the request.

        Raises NotHereNowError if the request is for another application, which used this address before.
        """
        meant = request.headers.get(HOP_HEADER)
        own = self._streams.store_hosts.application_id
        if meant not in (None, own):
            raise NotHereNowError(f"this is an instance of {own}, not of {meant!r:.300}")
        return meant is not None

    async def metadata(self, request: Request) -> Response:
        """Return all instances, or the instances that have a store."""
        store = request.path_params.get("store")
        streams = self._streams
        found = streams.all_metadata() if store is None else streams.streams_metadata_for_store(store)
        return _json(
            {
                "instances": [
                    {
                        "host": str(one.host),
                        "stores": sorted(one.stores),
                        "partitions": sorted(map(str, one.partitions)),
                        "standby_stores": sorted(one.standby_stores),
                        "standby_partitions": sorted(map(str, one.standby_partitions)),
                    }
                    for one in found
                ]
            }
        )

    async def key_metadata(self, request: Request) -> Response:
        """Return the instances that have a key."""
        store = request.path_params["store"]
        query = Query(store, kind_of(self._streams, store), None, _options(request))

        def look_up() -> KeyQueryMetadata:
            key = key_of(self._streams, query, request.path_params["key"])
            return self._streams.query_metadata_for_key(store, key)

        found = await self._router.read(look_up, f"looking up a key of store {store!r}")
        return _json(
            {
                "active": str(found.active_host) if found.is_available else None,
                "standbys": sorted(map(str, found.standby_hosts)),
                "partition": found.partition,
            }
        )

    async def lags(self, request: Request) -> Response:
        """Return the lags of the store copies on this instance."""
        found = await self._router.ask_brokers(
            self._streams.all_local_store_partition_lags, "asking the brokers where changelogs end"
        )
        return _json(
            {
                store: {
                    str(number): {"position": lag.position, "end": lag.end, "lag": lag.lag}
                    for number, lag in of.items()
                }
                for store, of in found.items()
            }
        )


def _options(request: Request) -> dict[str, str]:
    options = dict(request.query_params)
    if len(options) < len(request.query_params.multi_items()):
        raise BadQueryError("a parameter is given twice")
    return options


def _check(request: Request) -> None:
    if request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers:
        raise BadQueryError("queries have no body")


def _json(body: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    try:
        text = json_text(body)
    except QueryError as error:
        return _refused(error)
    return Response(text, status, {**_HEADERS, **(headers or {})}, "application/json")


def _refused(error: StreamsError) -> Response:
    if isinstance(error, QueryError):
        status, code = error.status, error.code
    elif isinstance(error, UnknownStateStoreError):
        status, code = 404, UNKNOWN_STORE
    elif isinstance(error, BrokerUnavailableError):
        status, code = 503, "not_available"
    else:
        status, code = (400, "bad_query") if isinstance(error, InvalidStateStoreError) else (500, "failed")
    headers = {"Retry-After": str(_RETRY_AFTER_S)} if status == 503 else None
    return _json({"error": code, "message": str(error)}, status, headers)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _json({"error": "no_such_address", "message": error.detail}, error.status_code)
