"""Replacement of broker addresses in a broker's answers, so that a client keeps connecting through proxies.

Three kinds of answers contain broker addresses: Metadata, FindCoordinator and DescribeCluster. The kind of an answer is
known from the request with the same correlation id.
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, TypeAlias

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
