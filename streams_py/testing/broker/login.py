"""A broker with two doors: one for whoever is on this machine, and one where a single user logs in, or is refused."""

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

__all__ = ["LoginBroker"]

_USER: Final = "tortured"
_DOOR: Final = "LOGIN"


class LoginBroker(NodesOnJvm):
    """One node on this machine's JVM, in a temporary folder, gone at exit. ``bootstrap`` asks for no login. Raises
    NoBrokerError without Java or Maven."""

    refusal: Final = "refused the login"
    """What an application of ours says that ends because the user is not known."""

    def __init__(self) -> None:
        self._folder = TemporaryFolder("streams-py-kafka-login-")
        try:
            ports = free_ports(2)
            self.door = f"{HOST}:{ports[2].broker}"
            """Where the user logs in."""
            self._cluster = JvmCluster(self._folder.path, settings=_settings(self.door))
            self._folder.end = lambda: self._cluster.end(hard=True)
            self._cluster.start({1: ports[1]})
            self.bootstrap = self._cluster.bootstrap
            self._password = secrets.token_urlsafe(16)
            kafka_admin: Any = confluent_kafka.admin
            self._admin = kafka_admin.AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
            self.restore()
        except BaseException:
            self.close()
            raise
        self.capabilities = BrokerCapabilities(
            label=f"Apache Kafka {kafka_version()} (jvm, with a login)", nodes=1, apache_kafka=True, node_control=True
        )

    @property
    def keys(self) -> Mapping[str, str]:
        """Kafka's keys of the user."""
        return scram.password_keys("SASL_PLAINTEXT", scram.MECHANISM, _USER, self._password)

    def lose(self) -> None:
        """The user is not known any more; connections that are open stay so."""
        scram.forget_user(self._admin, _USER)

    def restore(self) -> None:
        """The user may log in."""
        scram.add_user(self._admin, _USER, self._password)

    def close(self) -> None:
        self._folder.close()


def _settings(door: str) -> Mapping[str, object]:
    listener = f"{_DOOR}://{door}"
    return {
        "listeners": listener,
        "advertised.listeners": listener,
        "listener.security.protocol.map": f"{_DOOR}:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": scram.MECHANISM,
        f"listener.name.{_DOOR.lower()}.{scram.MECHANISM.lower()}.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
    }
