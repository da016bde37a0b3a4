"""Limit the size of the answers that an HTTP client reads.

The other side may be hostile: any member of a group can name an address as its own. An answer of a few kilobytes can
expand to gigabytes when it is decompressed, so compression is neither requested nor accepted.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator, Iterator
from typing import Any


def bound_answers(client: Any, bytes_max: int) -> None:
    """Make a client of httpx or httpx2 raise ``ReadError`` for an answer that is too long or compressed.

    Args:
        client: An ``httpx.Client`` or an ``httpx.AsyncClient``.
        bytes_max: The maximum length of an answer's body.
    """
    packages = (kind.__module__.partition(".")[0] for kind in type(client).__mro__)  # authlib's are subclasses
    httpx: Any = importlib.import_module(next(name for name in packages if name in ("httpx", "httpx2")))

    def check(answer: Any) -> None:
        if answer.headers.get("content-encoding", "identity") != "identity":
            raise httpx.ReadError("the response is compressed, although the request did not allow it")

    def counted(size: int) -> int:
        if size > bytes_max:
            raise httpx.ReadError(f"the response is longer than {bytes_max:,} bytes")
        return size

    class Bounded(httpx.SyncByteStream):  # type: ignore[misc]  # of whichever library
        def __init__(self, inner: Any) -> None:
            self._inner = inner

        def __iter__(self) -> Iterator[bytes]:
            size = 0
            for piece in self._inner:
                size = counted(size + len(piece))
                yield piece

        def close(self) -> None:
            self._inner.close()

    class AsyncBounded(httpx.AsyncByteStream):  # type: ignore[misc]  # of whichever library
        def __init__(self, inner: Any) -> None:
            self._inner = inner

        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for piece in self._inner:
                size = counted(size + len(piece))
                yield piece

        async def aclose(self) -> None:
            await self._inner.aclose()

    def bound(answer: Any) -> None:
        check(answer)
        answer.stream = Bounded(answer.stream)

    async def bound_async(answer: Any) -> None:
        check(answer)
        answer.stream = AsyncBounded(answer.stream)

    client.headers["accept-encoding"] = "identity"
    client.event_hooks["response"].append(bound_async if hasattr(client, "aclose") else bound)
