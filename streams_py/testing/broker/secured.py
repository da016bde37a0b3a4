"""A broker with authentication and authorization: TLS, SASL and access control lists, on this machine's JVM.

:class:`SecuredBroker` is one Apache Kafka node with several listeners:

==============  ==========================================================================================
listener        requires
==============  ==========================================================================================
``SASL_SSL``    TLS, and a password: SCRAM-SHA-512 (any user that was added) or PLAIN
``SSL``         a client certificate of this broker's authority (mutual TLS)
``EXPIRED``     as ``SSL``, but the broker's own certificate has expired
``FOREIGN``     as ``SSL``, but another authority has signed the broker's certificate
``WRONG_HOST``  as ``SSL``, but the broker's certificate is for another host
==============  ==========================================================================================

A user has only the permissions that access control lists grant (KRaft's ``StandardAuthorizer``). ``bootstrap`` is the
listener for the test itself: loopback, no TLS, no login, all permissions.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import confluent_kafka.admin

from streams_py.testing.broker import scram
from streams_py.testing.broker.certificates import Authority, Certificate
from streams_py.testing.broker.interface import BrokerCapabilities, NoBrokerError, kafka_version
from streams_py.testing.broker.jvm import JvmCluster, NodesOnJvm, free_ports
from streams_py.testing.broker.jvm_node import HOST
from streams_py.testing.broker.temporary_folder import TemporaryFolder

kafka_admin: Any = confluent_kafka.admin  # it exports more names than its type information lists

LISTENERS: Final = ("SASL_SSL", "SSL", "EXPIRED", "FOREIGN", "WRONG_HOST")
_REQUEST_S: Final = 20.0
_SEEN_S: Final = 30.0


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """One permission of an access control list, in the terms of ``kafka-acls``: ``Right("READ", "TOPIC", "lines")``.

    ``resource`` is ``TOPIC``, ``GROUP``, ``TRANSACTIONAL_ID`` or ``CLUSTER`` (whose name is always ``kafka-cluster``).
    ``prefixed``: the permission is for all names that start with ``name``.
    """

    operation: str
    """Operation such as ``READ``."""
    resource: str
    """Kind of the resource."""
    name: str = "kafka-cluster"
    """Name of the resource."""
    prefixed: bool = False
    """Whether ``name`` is a prefix."""


class SecuredBroker(NodesOnJvm):
    """One node with these listeners, in a temporary folder, removed at exit.

    ``plain_users`` (passwords by name) may log in with PLAIN; they are part of the broker's settings. Raises
    NoBrokerError without Java, Maven or ``openssl``.
    """

    def __init__(self, *, plain_users: Mapping[str, str] | None = None) -> None:
        self._folder = TemporaryFolder("streams-py-kafka-secured-")
        self._plain_users = dict(plain_users or {})
        folder = self._folder.path
        try:
            self._authority = Authority(folder / "tls", "streams-py tests")
            self.foreign_authority = Authority(folder / "foreign", "somebody else")
            """Signs certificates that the broker does not trust."""
            ports = free_ports(1 + len(LISTENERS))
            listeners = {listener: ports[2 + number].broker for number, listener in enumerate(LISTENERS)}
            self._cluster = JvmCluster(folder, settings=self._settings(listeners), short_lived=True)
            self._folder.end = lambda: self._cluster.end(hard=True)
            self._cluster.start({1: ports[1]})
        except BaseException:
            self.close()
            raise
        self.listeners: Mapping[str, str] = {listener: f"{HOST}:{port}" for listener, port in listeners.items()}
        """Address of each listener."""
        self.bootstrap = self._cluster.bootstrap
        """Value for ``bootstrap.servers``, of the listener without security."""
        self.capabilities = BrokerCapabilities(
            label=f"Apache Kafka {kafka_version()} (jvm, secured)", nodes=1, apache_kafka=True, node_control=True
        )
        """Features of the cluster that tests may use."""
        self._admin = kafka_admin.AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    # -- authentication ----------------------------------------

    @property
    def ca_file(self) -> Path:
        """The certificate of the broker's authority."""
        return self._authority.certificate

    def add_user(self, name: str, password: str) -> dict[str, str]:
        """Add a user that logs in with SCRAM-SHA-512; return its client settings when it can log in."""
        scram.add_user(self._admin, name, password)
        settings = self.password_settings(scram.MECHANISM, name, password)
        scram.await_login(settings)
        return settings

    def password_settings(self, mechanism: str, name: str, password: str) -> dict[str, str]:
        """Return the client settings for the listener ``SASL_SSL``."""
        return {
            "bootstrap.servers": self.listeners["SASL_SSL"],
            "ssl.ca.location": str(self.ca_file),
            **scram.password_settings("SASL_SSL", mechanism, name, password),
        }

    def certificate_settings(self, name: str, *, expired: bool = False, foreign: bool = False) -> dict[str, str]:
        """Return the client settings for the listener ``SSL``, with a new certificate for ``CN=name``."""
        authority = self.foreign_authority if foreign else self._authority
        made = authority.issue(name, expired=expired)
        return {
            "bootstrap.servers": self.listeners["SSL"],
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.ca_file),
            "ssl.certificate.location": str(made.certificate),
            "ssl.key.location": str(made.key),
        }

    # -- authorization ----------------------------------------

    def allow(self, user: str, rights: Collection[Right]) -> None:
        """Grant permissions to a user; return when the broker applies them. A certificate's user is ``CN=name``."""
        wanted = [_binding(user, right) for right in rights]
        for future in self._admin.create_acls(wanted, request_timeout=_REQUEST_S).values():
            future.result()
        self._until_seen(user, set(rights), there=True)

    def withdraw(self, user: str, rights: Collection[Right]) -> None:
        """Revoke permissions of a user; return when the broker applies the change."""
        unwanted = [_binding(user, right, kafka_admin.AclBindingFilter) for right in rights]
        for future in self._admin.delete_acls(unwanted, request_timeout=_REQUEST_S).values():
            future.result()
        self._until_seen(user, set(rights), there=False)

    def _until_seen(self, user: str, rights: set[Right], *, there: bool) -> None:
        limit = time.monotonic() + _SEEN_S
        while (rights <= self._rights(user)) if not there else not rights <= self._rights(user):
            if time.monotonic() > limit:
                raise NoBrokerError(f"the broker did not apply the permissions of {user} within {_SEEN_S:.0f} s")
            time.sleep(0.05)

    def _rights(self, user: str) -> set[Right]:
        every = kafka_admin.AclBindingFilter(
            kafka_admin.ResourceType.ANY, None, kafka_admin.ResourcePatternType.ANY, f"User:{user}", None,
            kafka_admin.AclOperation.ANY, kafka_admin.AclPermissionType.ANY,
        )  # fmt: skip
        return {
            Right(
                acl.operation.name,
                _resource_name(acl.restype),
                acl.name,
                acl.resource_pattern_type is kafka_admin.ResourcePatternType.PREFIXED,
            )
            for acl in self._admin.describe_acls(every, request_timeout=_REQUEST_S).result()
        }

    def close(self) -> None:
        """Stop all nodes and remove their data."""
        self._folder.close()

    # -- the node's settings ----------------------------------------

    def _settings(self, ports: Mapping[str, int]) -> dict[str, object]:
        here = [f"IP:{HOST}", "DNS:localhost"]
        mine = self._authority.issue("broker", hosts=here)
        identities = {
            "SASL_SSL": mine,
            "SSL": mine,
            "EXPIRED": self._authority.issue("broker-expired", hosts=here, expired=True),
            "FOREIGN": self.foreign_authority.issue("broker-foreign", hosts=here),
            "WRONG_HOST": self._authority.issue("broker-elsewhere", hosts=["DNS:kafka.example.org"]),
        }
        listeners = ",".join(f"{listener}://{HOST}:{port}" for listener, port in ports.items())
        settings: dict[str, object] = {
            "listeners": listeners,
            "advertised.listeners": listeners,
            "listener.security.protocol.map": ",".join(
                f"{listener}:{'SASL_SSL' if listener == 'SASL_SSL' else 'SSL'}" for listener in ports
            ),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",  # clients without a login: the node itself, and the test
            "sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
        }
        for listener, identity in identities.items():
            settings |= self._listener(listener, identity)
        users = " ".join(f'user_{name}="{password}"' for name, password in self._plain_users.items())
        for mechanism, module in (
            ("scram-sha-512", "scram.ScramLoginModule required;"),
            ("plain", f"plain.PlainLoginModule required {users};"),
        ):
            key = f"listener.name.sasl_ssl.{mechanism}.sasl.jaas.config"
            settings[key] = f"org.apache.kafka.common.security.{module}"
        return settings

    def _listener(self, listener: str, identity: Certificate) -> dict[str, Any]:
        store = identity.in_one_file(self._folder.path / "tls" / f"{listener}.pem")
        prefix = f"listener.name.{listener.lower()}.ssl"
        return {
            f"{prefix}.keystore.type": "PEM",
            f"{prefix}.keystore.location": store,
            f"{prefix}.truststore.type": "PEM",
            f"{prefix}.truststore.location": self._authority.certificate,
            f"{prefix}.client.auth": "none" if listener == "SASL_SSL" else "required",
        }


def _resource_name(kind: Any) -> str:
    return "CLUSTER" if kind is kafka_admin.ResourceType.BROKER else str(kind.name)


def _binding(user: str, right: Right, kind: Any = kafka_admin.AclBinding) -> Any:
    resource = kafka_admin.ResourceType["BROKER" if right.resource == "CLUSTER" else right.resource]
    pattern = kafka_admin.ResourcePatternType.PREFIXED if right.prefixed else kafka_admin.ResourcePatternType.LITERAL
    return kind(
        resource, right.name, pattern, f"User:{user}", "*", kafka_admin.AclOperation[right.operation],
        kafka_admin.AclPermissionType.ALLOW,
    )  # fmt: skip
