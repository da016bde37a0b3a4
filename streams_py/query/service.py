"""The query service of one instance: a thread that answers HTTP requests."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

import uvicorn

from streams_py.errors import ConfigError
from streams_py.http_hosts import SERVER_OPTIONS, is_loopback, listen
from streams_py.query.app import query_app
from streams_py.query.routing import Router
from streams_py.runtime.kafka_streams import KafkaStreams

__all__ = ["QueryService"]

_STOP_S = 5


class QueryService:
    """Serves the stores of a whole application from one of its instances.

        with KafkaStreams(topology, {..., "application.server": "10.0.0.5:8080"}) as streams:
            with QueryService(streams, host="10.0.0.5"):
                streams.wait()

    Others find this instance by its ``application.server``, whose port it listens at unless ``port`` is given. Without
    ``host`` it listens on loopback: there is no authentication, and whoever reaches the port can read every store.
    ``timeout_s``, in seconds, bounds each query. ConfigError when ``application.server`` is missing, or the port is
    in use.
    """

    def __init__(
        self, streams: KafkaStreams, *, host: str = "127.0.0.1", port: int | None = None, timeout_s: float = 10.0
    ) -> None:
        own = streams.store_hosts.own
        if own is None:
            raise ConfigError(
                "the query service needs application.server = host:port, under which other instances reach it",
                key="application.server",
            )
        wanted = own.port if port is None else port
        try:
            self._socket = listen(host, wanted)
        except OSError as error:
            raise ConfigError(
                f"the query service cannot listen at {host}:{wanted} ({error.strerror or error}); give another port, "
                "or end its user",
                key="application.server",
            ) from None
        self.host = host
        self.port: int = self._socket.getsockname()[1]
        names = {own.host.lower(), host.lower()} if is_loopback(host) else None
        app = query_app(streams, Router(streams, timeout_s=timeout_s), hosts=names)
        self._server = uvicorn.Server(
            uvicorn.Config(app, lifespan="on", timeout_graceful_shutdown=_STOP_S, **SERVER_OPTIONS)
        )
        self._thread = threading.Thread(target=self._serve, name=f"query-service-{self.port}", daemon=True)

    def start(self) -> Self:
        """Answer from now on."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """End running queries, or cut them off after a while; a second call does nothing."""
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join(2 * _STOP_S)
        self._socket.close()

    def _serve(self) -> None:
        self._server.run([self._socket])

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
