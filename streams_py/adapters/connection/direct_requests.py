"""Requests of the transaction protocol that a program sends itself, by kafka-python: to a coordinator, or to a broker.

Leans on private names of the tested kafka-python; the tests watch them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar, cast

from streams_py.adapters.connection import kafka_answers  # noqa: F401  # isort: skip  # loads the library, before there are threads
from kafka import KafkaAdminClient
from kafka.protocol.metadata import CoordinatorType

__all__ = ["DirectRequests"]

T = TypeVar("T")


class DirectRequests:
    """``connection`` as from ``kafka_python_connection``; ``timeout_ms`` bounds one call. Connects when it is used,
    also after :meth:`close`. Not thread-safe. Methods raise the library's errors."""

    def __init__(self, connection: Mapping[str, Any], *, timeout_ms: int) -> None:
        self._connection = connection
        self._timeout_ms = timeout_ms
        self._client: Any = None

    @property
    def admin(self) -> Any:
        """The library's client."""
        if self._client is None:
            limits = {"bootstrap_timeout_ms": self._timeout_ms, "request_timeout_ms": self._timeout_ms}
            self._client = KafkaAdminClient(**self._connection, **limits)
        return self._client

    def ask_coordinator(self, transactional_id: str, request: Any) -> Any:
        """The answer of the coordinator of a transactional id."""
        admin = self.admin
        found = self.run(lambda: admin._find_coordinator_ids([transactional_id], CoordinatorType.TRANSACTION))
        return self.ask(request, found[transactional_id])

    def ask(self, request: Any, node_id: int) -> Any:
        """The answer of a broker."""
        return self.run(lambda: self.admin._manager.send(request, node_id=node_id))

    def run(self, step: Callable[[], Awaitable[T]]) -> T:
        """Run a step on the network thread. A request to a broker that died may get neither an answer nor an error, so
        the time is bounded."""
        manager = self.admin._manager

        async def bounded() -> Any:
            async def ask() -> T:
                return await step()

            return await manager.wait_for(manager.call_soon(ask), self._timeout_ms)

        return cast("T", manager.run(bounded))

    def close(self) -> None:
        """Close the connections. The next call makes new ones."""
        if self._client is not None:
            self._client.close()
            self._client = None
