"""A broker with two listeners: one without a login, and one for a single user whose login can be removed."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, Final

import confluent_kafka.admin

from streams_py.testing.broker import scram
from streams_py.testing.broker.interface import BrokerCapabilities, kafka_version
from streams_py.testing.broker.jvm import JvmCluster, NodesOnJvm, free_ports
from streams_py.testing.broker.jvm_node import HOST
from streams_py.testing.broker.temporary_folder import TemporaryFolder

_USER: Final = "tortured"
_LISTENER: Final = "LOGIN"


class LoginBroker(NodesOnJvm):
    """One node on this machine's JVM, in a temporary folder, removed at exit. ``bootstrap`` needs no login.

    Raises NoBrokerError without Java or Maven.
    """

    refusal: Final = "refused the login"
    """Part of the error with which an application stops if the broker does not know its user."""

    def __init__(self) -> None:
        self._folder = TemporaryFolder("streams-py-kafka-login-")
        try:
            ports = free_ports(2)
            self.address = f"{HOST}:{ports[2].broker}"
            """Address of the listener that requires the login."""
            self._cluster = JvmCluster(self._folder.path, settings=_settings(self.address))
            self._folder.end = lambda: self._cluster.end(hard=True)
            self._cluster.start({1: ports[1]})
            self.bootstrap = self._cluster.bootstrap
            self._password = secrets.token_urlsafe(16)
            kafka_admin: Any = confluent_kafka.admin
            self._admin = kafka_admin.AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
            self.restore_user()
        except BaseException:
            self.close()
            raise
        self.capabilities = BrokerCapabilities(
            label=f"Apache Kafka {kafka_version()} (jvm, with a login)", nodes=1, apache_kafka=True, node_control=True
        )

    @property
    def settings(self) -> Mapping[str, str]:
        """Client settings of the user."""
        return scram.password_settings("SASL_PLAINTEXT", scram.MECHANISM, _USER, self._password)

    def remove_user(self) -> None:
        """Remove the user. Open connections are not closed."""
        scram.forget_user(self._admin, _USER)

    def restore_user(self) -> None:
        """Add the user again; return when it can log in."""
        scram.add_user(self._admin, _USER, self._password)
        scram.await_login({"bootstrap.servers": self.address, **self.settings})

    def close(self) -> None:
        self._folder.close()


def _settings(address: str) -> Mapping[str, object]:
    listener = f"{_LISTENER}://{address}"
    return {
        "listeners": listener,
        "advertised.listeners": listener,
        "listener.security.protocol.map": f"{_LISTENER}:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": scram.MECHANISM,
        f"listener.name.{_LISTENER.lower()}.{scram.MECHANISM.lower()}.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
    }
