"""Send requests of the transaction protocol directly to a coordinator or a broker, using kafka-python.

This uses private names of the tested kafka-python version, which tests verify.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar, cast

from streams_py.adapters.connection import kafka_answers  # noqa: F401  # isort: skip  # loads the library, before there are threads
from kafka import KafkaAdminClient
from kafka.protocol.metadata import CoordinatorType

T = TypeVar("T")


class DirectRequests:
    """A client for single requests. Not thread-safe. Methods raise kafka-python's errors.

    It connects when it is used, also after :meth:`close`.

    Args:
        connection: The result of ``kafka_python_connection``.
        timeout_ms: Time limit of one call.
    """

    def __init__(self, connection: Mapping[str, Any], *, timeout_ms: int) -> None:
        self._connection = connection
        self._timeout_ms = timeout_ms
        self._client: Any = None

    @property
    def admin(self) -> Any:
        """kafka-python's admin client."""
        if self._client is None:
            limits = {"bootstrap_timeout_ms": self._timeout_ms, "request_timeout_ms": self._timeout_ms}
            self._client = KafkaAdminClient(**self._connection, **limits)
        return self._client

    def ask_coordinator(self, transactional_id: str, request: Any) -> Any:
        """Send a request to the coordinator of a transactional id, and return the response."""
        admin = self.admin
        found = self.run(lambda: admin._find_coordinator_ids([transactional_id], CoordinatorType.TRANSACTION))
        return self.ask(request, found[transactional_id])

    def ask(self, request: Any, node_id: int) -> Any:
        """Send a request to a broker, and return the response."""
        return self.run(lambda: self.admin._manager.send(request, node_id=node_id))

    def run(self, step: Callable[[], Awaitable[T]]) -> T:
        """Run a step on the network thread, with a timeout.

        Without it, a request to a broker that has died might get neither a response nor an error.
        """
        manager = self.admin._manager

        async def bounded() -> Any:
            async def ask() -> T:
                return await step()

            return await manager.wait_for(manager.call_soon(ask), self._timeout_ms)

        return cast("T", manager.run(bounded))

    def close(self) -> None:
        """Close the connections. The next call opens new ones."""
        if self._client is not None:
            self._client.close()
            self._client = None
