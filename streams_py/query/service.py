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

__all__ = ["QueryService"]

_KEY: Final = "application.server"
_STOP_S: Final = 5


class QueryService:
    """Serves the stores of a whole application from one of its instances.

        with KafkaStreams(topology, {..., "application.server": "10.0.0.5:8080"}) as streams:
            with QueryService(streams, host="10.0.0.5"):
                streams.wait()

    Others find this instance by its ``application.server``, whose port it listens at unless ``port`` is given. Without
    ``host`` it listens on loopback: there is no authentication, and whoever reaches the port can read every store.
    ``timeout_s``, in seconds, bounds each query. ``names``: further names by which the service may be called, beside
    its address, that of ``application.server`` and the machine's. ``allowed_hosts``: hosts of other
    instances that may be asked; by default all that members of the group name. ConfigError when ``application.server``
    is missing, or the port is in use.
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
                "the query service needs application.server = host:port, under which other instances reach it", key=_KEY
            )
        wanted = own.port if port is None else port
        self._service = HttpService(
            host, wanted, name="query-service", key=_KEY, names=[own.host, *names], stop_s=_STOP_S, body_max=0
        )
        self.host = host
        self.port = self._service.port
        self._app = query_app(streams, Router(streams, timeout_s=timeout_s, allowed_hosts=allowed_hosts))

    def start(self) -> Self:
        """Answer from now on."""
        self._service.start(self._app)
        return self

    def stop(self) -> None:
        """End running queries, or cut them off after a while; a second call does nothing."""
        self._service.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
