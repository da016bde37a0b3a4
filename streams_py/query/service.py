"""The query service of one instance: a thread that answers HTTP requests."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from types import TracebackType
from typing import Final, Self

from streams_py.errors import ConfigError
from streams_py.http.service import HttpService
from streams_py.query.app import query_app
from streams_py.query.routing import Router
from streams_py.runtime.client.kafka_streams import KafkaStreams

_KEY: Final = "application.server"
_STOP_S: Final = 5


class QueryService:
    """The query service of one instance, which serves the stores of the whole application.

        with KafkaStreams(topology, {..., "application.server": "10.0.0.5:8080"}) as streams:
            with QueryService(streams, host="10.0.0.5"):
                streams.wait()

    Other instances find this one by its ``application.server`` setting. The service does not authenticate clients: any
    client that can connect to the port can read every store. So by default it listens on the loopback interface only.

    Args:
        streams: The application instance.
        host: The address to listen on.
        port: The port to listen on; by default the port of ``application.server``.
        timeout_s: Time limit of a query, in seconds.
        names: Additional host names by which clients may call the service. The names in ``host`` and
            ``application.server``, the machine's names and all addresses are always accepted.
        allowed_hosts: Hosts of other instances to which queries may be forwarded. By default, all hosts that members of
            the group name.

    Raises:
        ConfigError: ``application.server`` is missing, or the port is in use.
    """

    def __init__(
        self,
        streams: KafkaStreams,
        *,
        host: str = "127.0.0.1",
        port: int | None = None,
        timeout_s: float = 10.0,
        names: Iterable[str] = (),
        allowed_hosts: Collection[str] | None = None,
    ) -> None:
        own = streams.store_hosts.own
        if own is None:
            raise ConfigError(
                "the query service requires application.server = host:port, where other instances reach it", key=_KEY
            )
        wanted = own.port if port is None else port
        self._service = HttpService(
            host, wanted, name="query-service", key=_KEY, names=[own.host, *names], stop_s=_STOP_S, body_max=0
        )
        self.host = host
        """The address at which the service listens."""
        self.port = self._service.port
        """The port at which the service listens."""
        self._app = query_app(streams, Router(streams, timeout_s=timeout_s, allowed_hosts=allowed_hosts))

    def start(self) -> Self:
        """Start to answer requests."""
        self._service.start(self._app)
        return self

    def stop(self) -> None:
        """Wait for running queries, abort them after 5 seconds, and close the port. Idempotent."""
        self._service.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
