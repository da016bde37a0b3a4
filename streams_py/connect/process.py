"""A worker process: the worker and its REST interface."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from streams_py.connect.rest.app import rest_app
from streams_py.connect.rest.listeners import socket_mode
from streams_py.connect.rest.server import rest_service
from streams_py.connect.rest.tasks import TaskConfigSender
from streams_py.connect.settings import WorkerSettings
from streams_py.connect.stores.configs import SessionKey
from streams_py.connect.worker.clients import check_connection, connect_clients
from streams_py.connect.worker.herder import TaskConfigs
from streams_py.connect.worker.worker import Worker

_log = logging.getLogger("streams_py.connect")


class WorkerProcess:
    """Starts at the beginning of a ``with`` block and stops at its end.

    If the port in ``listeners`` is 0, any free port is used. It is also the advertised port unless that is set.

    Raises:
        ConfigError: The address is in use, a setting does not fit the cluster, or the cluster rejects the credentials.
        BrokerUnavailableError: No broker answers.
    """

    def __init__(self, settings: WorkerSettings) -> None:
        listener, self._protection = settings.listener, settings.rest_protection()
        host, port = listener.address or (None, 0)
        advertised = urlsplit(settings.url).hostname or ""
        names = [advertised, *settings.rest_accepted_names]
        unix = None if listener.unix is None else (listener.unix, socket_mode(settings.rest_unix_socket_mode))
        # Listen before the worker joins: two workers with one address would get each other's requests.
        self._server = rest_service(host, port, names, tls=self._protection.server, unix=unix)
        try:
            if host is not None and not port and settings.rest_advertised_port is None:
                settings = settings.model_copy(update={"rest_advertised_port": self._server.port})
            self._sender = TaskConfigSender(protection=self._protection)
            check_connection(settings)
            self.worker = Worker(settings, connect_clients(settings), self._forward)
        except BaseException:
            self._server.stop()
            raise

    @property
    def url(self) -> str:
        """The URL under which other workers and users reach this worker."""
        return self.worker.settings.url

    def __enter__(self) -> Self:
        self._server.start(rest_app(self.worker, protection=self._protection))
        try:
            self.worker.start()
        except BaseException:
            self._close()
            raise
        listener = self.worker.settings.listener
        places = [] if listener.address is None else [f"{listener.address[0]} port {self._server.port}"]
        places += [] if listener.unix is None else [listener.unix]
        _log.info("worker %s listens at %s", self.worker.settings.worker_id, " and ".join(places))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.worker.stop()
        self._close()

    def _close(self) -> None:
        self._server.stop()
        self._sender.close()

    def _forward(self, url: str, name: str, configs: TaskConfigs, key: SessionKey | None) -> None:
        self._sender.send(url, name, configs, None if key is None else key.key)
