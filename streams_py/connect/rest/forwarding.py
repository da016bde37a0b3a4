"""Forwards a request to the worker that must handle it.

A request makes at most two hops. Workers that disagree about the leader would forward it endlessly otherwise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import ClassVar, Final

import httpx
from starlette.requests import Request
from starlette.responses import Response

from streams_py.connect.errors import ConnectError, NotLeaderError, RebalanceExpectedError
from streams_py.connect.rest.protection import RestProtection
from streams_py.connect.rest.signing import ALGORITHM_HEADER, SIGNATURE_HEADER
from streams_py.http.answers import bound_answers

_NEXT_HOP: Final[Mapping[str | None, str | None]] = {None: "true", "true": "false"}
_SENT: Final = ("Authorization", "Content-Type", "Accept", SIGNATURE_HEADER, ALGORITHM_HEADER)
_ANSWER_BYTES_MAX: Final = 64 << 20
_RETURNED: Final = ("Content-Type", "Location")


class UnreachableError(RebalanceExpectedError):
    """The other worker has stopped, so nothing was sent. The group will notice it soon."""

    status: ClassVar[int] = 500


class OtherWorkers:
    """Sends requests to other workers of the group. Must be closed. ``transport`` is for tests."""

    def __init__(self, protection: RestProtection, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._protection = protection
        # No proxies from the environment: workers connect to each other directly.
        self._client = httpx.AsyncClient(transport=transport, trust_env=False, verify=protection.client or True)
        bound_answers(self._client, _ANSWER_BYTES_MAX)

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def forward(self, request: Request, error: NotLeaderError, timeout_s: float) -> Response:
        """Return the other worker's response.

        Raises:
            RebalanceExpectedError: The request has made two hops, or the other worker is unknown.
            ConnectError: The other worker does not answer.
        """
        hop = _NEXT_HOP.get(request.query_params.get("forward"))
        if hop is None:
            raise RebalanceExpectedError(
                "the workers do not agree yet on the worker for this request; try again in a moment"
            )
        if error.url is None:
            raise RebalanceExpectedError(f"{error}, and the right worker is unknown; try again in a moment")
        parameters = [(k, v) for k, v in request.query_params.multi_items() if k != "forward"]
        target = error.url.rstrip("/") + request.scope["raw_path"].decode("ascii")
        # Callers on the Unix socket have no credentials: the socket's mode has admitted them.
        given = {name: request.headers[name] for name in _SENT if name in request.headers}
        headers = self._protection.own_headers() | given
        self._protection.check_target(target, headers)
        content = await request.body()
        try:
            async with asyncio.timeout(timeout_s):  # httpx's timeout applies to each read
                answer = await self._client.request(
                    request.method,
                    target,
                    params=[*parameters, ("forward", hop)],
                    content=content,
                    headers=headers,
                    timeout=timeout_s,
                )
        except httpx.ConnectError as failed:
            raise UnreachableError(
                f"the worker at {error.url}, which must handle this, does not answer: {failed}"
            ) from None
        except (TimeoutError, httpx.HTTPError, httpx.InvalidURL) as failed:
            reason = str(failed) or type(failed).__name__
            raise ConnectError(
                f"the worker at {error.url}, which must handle this, does not answer: {reason}"
            ) from None
        return Response(
            answer.content,
            answer.status_code,
            {name: answer.headers[name] for name in _RETURNED if name in answer.headers},
        )
