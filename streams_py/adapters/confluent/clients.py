"""Factory for the record clients of one application instance. Client ids follow Kafka Streams' naming."""

from __future__ import annotations

import threading
from functools import partial
from typing import Final, TypeVar

from streams_py.adapters.confluent.admin import ConfluentAdmin
from streams_py.adapters.confluent.at_epoch import TransactionalRecordSender
from streams_py.adapters.confluent.consumer import ConfluentConsumer
from streams_py.adapters.confluent.embedded.cluster import (
    EmbeddedAdmin,
    EmbeddedCluster,
    embedded_name,
    refuse_unsupported,
)
from streams_py.adapters.confluent.event_producer import ConfluentEventProducer, event_producer_settings
from streams_py.adapters.confluent.producer import ConfluentProducer, EpochRecordSender
from streams_py.adapters.confluent.settings import (
    Settings,
    admin_settings,
    at_least_once_settings,
    chooses_delivery_timeout,
    consumer_settings,
    producer_settings,
    transactional_settings,
)
from streams_py.adapters.confluent.topic_limits import TopicLimits
from streams_py.adapters.confluent.transaction_offsets import check_access
from streams_py.adapters.confluent.transactional_producer import ConfluentTransactionalProducer
from streams_py.adapters.security.settings import parse_security
from streams_py.config.client_keys import ClientRole
from streams_py.config.streams_config import StreamsConfig
from streams_py.ports import Admin
from streams_py.system.quiet_logs import quiet_logs

_P = TypeVar("_P", bound=ConfluentProducer)

_MAX_BLOCK_MS: Final = 60_000
_API_TIMEOUT_MS: Final = 60_000
_TRANSACTIONAL_RECORD_MS: Final = 10_000
"""Timeout for writing one record with timestamp 0, in ms. The open transaction is limited by transaction.timeout.ms."""


class ConfluentClients:
    """Factory for consumers, producers and the admin client of ``config``. Thread-safe.

    With ``bootstrap.servers=embedded`` the factory joins the embedded cluster and keeps it running until :meth:`close`.
    ``bootstrap`` is the address that every client connects to, including the group membership's client. Raises
    ConfigError for settings that the embedded cluster does not support.
    """

    def __init__(self, config: StreamsConfig) -> None:
        self._config = config
        self.embedded: EmbeddedCluster | None = None
        """The embedded cluster that this process has joined, or None."""
        self._limits: TopicLimits | None = None
        self._lock = threading.Lock()
        self.bootstrap = ",".join(config.bootstrap_servers)
        """Addresses of some brokers, ``host:port`` separated by commas."""
        name = embedded_name(self.bootstrap)
        if name is not None:
            refuse_unsupported(config)
            self.embedded = EmbeddedCluster.join(name)
            self.bootstrap = self.embedded.bootstrap

    def main_consumer(self, thread_name: str) -> ConfluentConsumer:
        """Create the consumer that reads the input of a stream thread's tasks."""
        return self._consumer(f"{thread_name}-consumer", "main consumer", ClientRole.MAIN_CONSUMER)

    def restore_consumer(self, thread_name: str) -> ConfluentConsumer:
        """Create the consumer that reads changelog topics for the state updater of a stream thread."""
        return self._consumer(f"{thread_name}-restore-consumer", "restore consumer", ClientRole.RESTORE_CONSUMER)

    def global_consumer(self, client_id: str) -> ConfluentConsumer:
        """Create the consumer that reads the topics of global stores."""
        return self._consumer(f"{client_id}-global-consumer", "global consumer", ClientRole.GLOBAL_CONSUMER)

    def producer(self, thread_name: str) -> ConfluentProducer:
        """Create the producer for all tasks of a stream thread."""
        client_id = f"{thread_name}-producer"
        if self.embedded is not None:  # a busy machine may need longer than its short sessions to write a record
            settings = producer_settings(self._config, bootstrap=self.bootstrap, client_id=client_id)
            return self._producer(ConfluentProducer, client_id, settings)
        settings = at_least_once_settings(self._config, bootstrap=self.bootstrap, client_id=client_id)
        reprocesses = chooses_delivery_timeout(self._config)
        return self._producer(ConfluentProducer, client_id, settings, reprocesses_expired=reprocesses)

    def global_producer(self, thread_name: str) -> ConfluentProducer:
        """Create the producer of dead letters for the thread of the global stores.

        Every client has its own global task, so no task ever moves to another member. That task has no commit from
        which it could reprocess when a broker refuses a batch, so each dead letter is sent in a separate batch.
        """
        client_id = f"{thread_name}-producer"
        settings = producer_settings(self._config, bootstrap=self.bootstrap, client_id=client_id)
        return self._producer(ConfluentProducer, client_id, settings, sends_alone=True)

    def transactional_producer(self, thread_name: str, transactional_id: str) -> ConfluentTransactionalProducer:
        """Create the transactional producer for all tasks of a stream thread."""
        client_id = f"{thread_name}-producer"
        settings = transactional_settings(self._config, transactional_id, bootstrap=self.bootstrap, client_id=client_id)
        made = self._producer(ConfluentTransactionalProducer, client_id, settings)
        if self.embedded is None:
            made.make_sender = partial(self._transactional_records, client_id, transactional_id)
        return made

    def _transactional_records(self, client_id: str, transactional_id: str) -> TransactionalRecordSender:
        from streams_py.adapters.connection.librdkafka_gaps import kafka_python_connection
        from streams_py.adapters.transactional_records import TransactionalRecords

        security = parse_security(self._config.settings_for(ClientRole.PRODUCER))
        connection = kafka_python_connection(self.bootstrap, client_id, security, embedded=False)
        return TransactionalRecords(connection, transactional_id, timeout_ms=_TRANSACTIONAL_RECORD_MS)

    def _producer(
        self,
        kind: type[_P],
        client_id: str,
        settings: Settings,
        *,
        reprocesses_expired: bool = False,
        sends_alone: bool = False,
    ) -> _P:
        max_block_ms = self._config.number_for(ClientRole.PRODUCER, "max.block.ms", _MAX_BLOCK_MS, least=0)
        security = parse_security(self._config.settings_for(ClientRole.PRODUCER))
        embedded = self.embedded is not None

        def epoch_sender() -> EpochRecordSender:
            # Loading kafka-python takes 0.2 s, and few applications need it here.
            from streams_py.adapters.connection.librdkafka_gaps import KafkaPythonEpochSender, kafka_python_connection

            connection = kafka_python_connection(self.bootstrap, client_id, security, embedded=embedded)
            return KafkaPythonEpochSender(connection, timeout_ms=max_block_ms)

        return kind(
            self._quiet(settings),
            epoch_sender=epoch_sender,
            max_block_ms=max_block_ms,
            lists_all_topics=embedded,
            batch_bytes_max=self._batch_bytes_max,
            reprocesses_expired=reprocesses_expired,
            sends_alone=sends_alone,
        )

    def _batch_bytes_max(self, topic: str) -> int | None:
        if self.embedded is not None:  # its topics have no configuration
            return None
        with self._lock:
            if self._limits is None:
                client_id = f"{self._config.client_id or self._config.application_id}-limits"
                self._limits = TopicLimits(admin_settings(self._config, bootstrap=self.bootstrap, client_id=client_id))
        return self._limits.batch_bytes_max(topic)

    def event_producer(self, client_id: str) -> ConfluentEventProducer:
        """Create the producer of assignment events, see :mod:`streams_py.events`."""
        settings = event_producer_settings(self._config, bootstrap=self.bootstrap, client_id=client_id)
        return ConfluentEventProducer(self._quiet(settings))

    def admin(self) -> Admin:
        """Create the admin client of this instance."""
        client_id = f"{self._config.client_id or self._config.application_id}-admin"
        settings = self._quiet(admin_settings(self._config, bootstrap=self.bootstrap, client_id=client_id))
        timeout_ms = self._config.number_for(ClientRole.ADMIN, "default.api.timeout.ms", _API_TIMEOUT_MS, least=0)
        if self.embedded is not None:
            return EmbeddedAdmin(settings, self.embedded, timeout_ms=timeout_ms)
        security = parse_security(self._config.settings_for(ClientRole.ADMIN))

        def remove_member(group: str, instance_id: str, member_id: str) -> None:
            from streams_py.adapters.connection.librdkafka_gaps import kafka_python_connection, remove_static_member

            connection = kafka_python_connection(self.bootstrap, client_id, security, embedded=False)
            remove_static_member(connection, group, instance_id, member_id, timeout_ms=timeout_ms)

        return ConfluentAdmin(settings, timeout_ms=timeout_ms, remove_member=remove_member)

    def check_settings(self) -> None:
        """Raise ConfigError now for settings that would make a client fail later, on a stream thread."""
        if self._config.exactly_once:
            check_access()
            with quiet_logs("streams_py.adapters"):
                settings = transactional_settings(self._config, "check", bootstrap="", client_id="check")
                ConfluentProducer(self._quiet(settings), epoch_sender=_never).close()
        if not self._config.clients:
            return
        # Clients without an address don't connect. Warnings are logged when the real clients are created.
        with quiet_logs("streams_py.adapters"):
            for role in (ClientRole.MAIN_CONSUMER, ClientRole.RESTORE_CONSUMER, ClientRole.GLOBAL_CONSUMER):
                read = consumer_settings(self._config, role, bootstrap="", client_id="check")
                ConfluentConsumer(self._quiet(read)).close()
            written = at_least_once_settings(self._config, bootstrap="", client_id="check")
            ConfluentProducer(self._quiet(written), epoch_sender=_never).close()
            ConfluentAdmin(self._quiet(admin_settings(self._config, bootstrap="", client_id="check"))).close()

    def close(self) -> None:
        """Leave the embedded cluster. The callers that created clients close them."""
        if self.embedded is not None:
            self.embedded.close()

    def _consumer(self, client_id: str, purpose: str, role: ClientRole) -> ConfluentConsumer:
        settings = consumer_settings(self._config, role, bootstrap=self.bootstrap, client_id=client_id)
        return ConfluentConsumer(self._quiet(settings), purpose=purpose)

    def _quiet(self, settings: Settings) -> Settings:
        # The mock cluster does not support the requests for telemetry subscriptions.
        return {**settings, "enable.metrics.push": False} if self.embedded is not None else settings


def _never() -> EpochRecordSender:
    raise AssertionError("a client that is only checked sends nothing")
