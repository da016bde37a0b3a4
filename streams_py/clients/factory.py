"""The factory for Kafka clients: group membership with kafka-python, records and administration with confluent-kafka.

This is the default of ``default.client.supplier``, and the only module that imports both adapters.
"""

from __future__ import annotations

from typing import Any

from streams_py.adapters.confluent.clients import ConfluentClients
from streams_py.adapters.confluent.embedded.cluster import EMBEDDED_MEMBERSHIP_DEFAULTS
from streams_py.adapters.confluent.settings import consumer_settings, warn_overruled
from streams_py.adapters.connection.handshake import check_admitted, refusal
from streams_py.adapters.kafka_python.admin.group_admin import KafkaPythonGroupAdmin
from streams_py.adapters.kafka_python.admin.transaction_admin import KafkaPythonTransactionAdmin
from streams_py.adapters.kafka_python.classic.membership import KafkaPythonMembership
from streams_py.adapters.kafka_python.classic.options import KAFKA, MOCK_CLUSTER
from streams_py.adapters.kafka_python.settings import membership_settings
from streams_py.adapters.security.settings import SecuritySettings, parse_security
from streams_py.clients.sorter_process import SorterProcess
from streams_py.config.client_keys import ClientRole, member_instance_id
from streams_py.config.streams_config import StreamsConfig
from streams_py.member.versions import RebalanceProtocol, start_protocols
from streams_py.ports import MembershipListener
from streams_py.system.quiet_logs import quiet_logs

__all__ = ["KafkaClients"]

_SHARED_KEYS = (
    "connections.max.idle.ms",
    "metadata.max.age.ms",
    "receive.buffer.bytes",
    "reconnect.backoff.ms",
    "reconnect.backoff.max.ms",
    "request.timeout.ms",
    "retry.backoff.ms",
    "send.buffer.bytes",
)
"""Keys of Kafka Streams that also apply to its clients."""
_TRANSACTION_ADMIN_MS = 5_000


class KafkaClients(ConfluentClients):
    """The factory for all clients of one application instance (port ``Clients``)."""

    def __init__(self, config: StreamsConfig) -> None:
        super().__init__(config)
        self._settings = config.settings_for(ClientRole.MAIN_CONSUMER)
        if self.embedded is not None:
            self._settings = {**EMBEDDED_MEMBERSHIP_DEFAULTS, **self._settings}
        for key in _SHARED_KEYS:
            self._settings.setdefault(key, str(getattr(config, key.replace(".", "_"))))
        try:
            self.check_settings()
            with quiet_logs("streams_py.adapters"):
                self._membership_settings("check", 1)
            warn_overruled(config)
        except BaseException:
            self.close()
            raise

    def check_connection(self, *, must_answer: bool = False) -> None:
        """Check that the cluster accepts the login and certificates of this client.

        Args:
            must_answer: Whether to raise BrokerUnavailableError if the cluster does not respond.

        Raises:
            ConfigError: The cluster refuses the connection.
        """
        if self.embedded is not None:
            return
        of_admin, of_member = self._security(ClientRole.ADMIN), self._security(ClientRole.MAIN_CONSUMER)
        check_admitted(self.bootstrap, of_admin, must_answer=must_answer)
        if of_member != of_admin:
            check_admitted(self.bootstrap, of_member)

    def _security(self, role: ClientRole) -> SecuritySettings:
        return parse_security(self._config.settings_for(role))

    def _refusal(self) -> str | None:
        return None if self.embedded is not None else refusal(self.bootstrap, self._security(ClientRole.MAIN_CONSUMER))

    def membership(self, thread_name: str, thread_index: int, listener: MembershipListener) -> KafkaPythonMembership:
        """Return the group membership of one stream thread.

        It is static if ``group.instance.id`` is set. The number of the thread is appended to that id.
        """
        return KafkaPythonMembership(
            self._membership_settings(thread_name, thread_index),
            listener,
            cooperative=RebalanceProtocol.COOPERATIVE in start_protocols(self._config.upgrade_from),
            refusal=self._refusal,
            rules=KAFKA if self.embedded is None else MOCK_CLUSTER,
        )

    def changelog_sorter(self, thread_name: str) -> SorterProcess | None:
        """Return a process that reads changelogs in parallel with :meth:`restore_consumer`.

        None with ``restore.processes=1``, on the embedded cluster, and if no process can be started now.
        """
        if self.embedded is not None or self._config.restore_processes == 1:
            return None
        client_id = f"{thread_name}-restore-sorter"
        with quiet_logs("streams_py.adapters"):  # the restore consumer has the same settings and has logged warnings
            settings = consumer_settings(
                self._config, ClientRole.RESTORE_CONSUMER, bootstrap=self.bootstrap, client_id=client_id
            )
        return SorterProcess.start(settings)

    def group_admin(self, *, timeout_ms: int = _TRANSACTION_ADMIN_MS) -> KafkaPythonGroupAdmin:
        """Return a client for requests about groups, which does not join a group."""
        from streams_py.adapters.connection.librdkafka_gaps import kafka_python_connection

        security = self._security(ClientRole.ADMIN)
        client_id = f"{self._config.client_id or self._config.application_id}-groups"
        connection = kafka_python_connection(self.bootstrap, client_id, security, embedded=self.embedded is not None)
        return KafkaPythonGroupAdmin(connection, timeout_ms=timeout_ms)

    def transaction_admin(self) -> KafkaPythonTransactionAdmin:
        """Return a client for requests about transactions. It connects on first use."""
        from streams_py.adapters.connection.librdkafka_gaps import kafka_python_connection

        security = self._security(ClientRole.ADMIN)
        client_id = f"{self._config.client_id or self._config.application_id}-transactions"
        connection = kafka_python_connection(self.bootstrap, client_id, security, embedded=self.embedded is not None)
        return KafkaPythonTransactionAdmin(connection, timeout_ms=_TRANSACTION_ADMIN_MS)

    def _membership_settings(self, thread_name: str, thread_index: int) -> dict[str, Any]:
        return membership_settings(
            self._settings,
            bootstrap_servers=self.bootstrap,
            group_id=self._config.application_id,
            client_id=f"{thread_name}-consumer",
            group_instance_id=member_instance_id(self._settings.get("group.instance.id"), thread_index),
        )
