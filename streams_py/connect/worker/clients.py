"""Creates the Kafka clients of a worker for a real cluster, from its settings."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from streams_py.adapters.confluent.connect_clients import ConfluentConnectClients
from streams_py.adapters.connection.handshake import check_admitted
from streams_py.adapters.connection.librdkafka_gaps import kafka_python_connection
from streams_py.adapters.kafka_python.admin.group_admin import KafkaPythonGroupAdmin
from streams_py.adapters.kafka_python.connect_coordinator import ConnectCoordinator
from streams_py.adapters.security.settings import parse_security
from streams_py.connect.group.coordinator import Coordinator, GroupHandler
from streams_py.connect.ports import ConnectClients, SinkOffsets
from streams_py.connect.settings import WorkerSettings

_OFFSETS_MS: Final = 30_000


def check_connection(settings: WorkerSettings) -> None:
    """Check that the cluster accepts this worker.

    Raises:
        ConfigError: The cluster rejects this worker, or cannot be trusted. The text contains the remedy.

    A cluster that does not answer is not an error here.
    """
    check_admitted(settings.bootstrap_servers, parse_security(settings.client_settings("none.")))


def connect_clients(settings: WorkerSettings) -> ConnectClients:
    """Return the clients for a :class:`~streams_py.connect.worker.worker.Worker`."""
    return _WorkerClients(settings)


class _WorkerClients(ConfluentConnectClients):
    """Reads and writes records with librdkafka, and joins the group with kafka-python."""

    def __init__(self, settings: WorkerSettings) -> None:
        super().__init__(
            producer=settings.client_settings("producer."),
            consumer=settings.client_settings("consumer."),
            admin=settings.client_settings("admin."),
            client_id=settings.client,
            group_id=settings.group_id,
        )
        self._settings = settings

    @contextlib.contextmanager
    def sink_offsets(self) -> Iterator[SinkOffsets]:
        settings = self._settings
        security = parse_security(settings.client_settings("admin."))
        connection = kafka_python_connection(
            settings.bootstrap_servers, f"{settings.client}-offsets", security, embedded=False
        )
        admin = KafkaPythonGroupAdmin(connection, timeout_ms=_OFFSETS_MS)
        try:
            yield admin
        finally:
            admin.close()

    def coordinator(self, handler: GroupHandler) -> Coordinator:
        settings = self._settings
        shared = {key: value for key, value in settings.client_settings("none.").items() if key != "bootstrap.servers"}
        return ConnectCoordinator(
            handler,
            bootstrap_servers=settings.bootstrap_servers,
            group_id=settings.group_id,
            client_id=settings.client,
            rebalance_timeout_ms=settings.rebalance_timeout_ms,
            config={
                **shared,
                "session.timeout.ms": settings.session_timeout_ms,
                "heartbeat.interval.ms": settings.heartbeat_interval_ms,
                "retry.backoff.ms": settings.retry_backoff_ms,
            },
        )
