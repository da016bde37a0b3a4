"""The addresses in a broker's answers, replaced: a client that was led to a proxy once stays with proxies.

Clients learn where brokers are from three kinds of answers: Metadata, FindCoordinator and DescribeCluster. Which kind
an answer is says the request that has its number (correlation id).
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, TypeAlias

from kafka.protocol.admin import DescribeClusterResponse
from kafka.protocol.metadata import FindCoordinatorResponse, MetadataResponse

__all__ = ["Address", "AddressReplacer"]

Address: TypeAlias = tuple[str, int]
"""Host and port."""

_REQUEST = struct.Struct(">hhi")
_ANSWER = struct.Struct(">i")
_NAMING: Final[dict[int, Any]] = {
    one.API_KEY: one for one in (MetadataResponse, FindCoordinatorResponse, DescribeClusterResponse)
}


class AddressReplacer:
    """What passes on one connection. ``instead_of`` gives the address that replaces a broker's."""

    def __init__(self, instead_of: Callable[[Address], Awaitable[Address]]) -> None:
        self._instead_of = instead_of
        self._awaited: dict[int, tuple[Any, int]] = {}

    def note_request(self, request: bytes) -> None:
        """A request (without its length) goes to the broker."""
        kind, version, number = _REQUEST.unpack_from(request)
        if kind in _NAMING:
            self._awaited[number] = (_NAMING[kind], version)

    async def answer(self, answer: bytes) -> bytes:
        """What is to reach the client instead of an answer (without its length)."""
        asked = self._awaited.pop(_ANSWER.unpack_from(answer)[0], None)
        if asked is None:
            return answer
        kind, version = asked
        found = kind.decode(answer, version=version, header=True)
        for named in _naming(found):
            if named.port > 0:  # else it is nobody: no coordinator is known
                named.host, named.port = await self._instead_of((named.host, named.port))
        return bytes(found.encode(header=True))


def _naming(answer: Any) -> Iterator[Any]:
    """The parts of an answer that have a host and a port."""
    if isinstance(answer, MetadataResponse | DescribeClusterResponse):
        yield from answer.brokers
    elif answer.version is not None and answer.version >= 4:
        yield from answer.coordinators
    else:
        yield answer
