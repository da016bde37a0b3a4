"""Choice of the broker for tests on this machine.

In this order: the address in ``STREAMS_PY_BOOTSTRAP``, Kafka's jars on a JVM (starts fastest), Docker. The environment
variable ``STREAMS_PY_BROKER`` set to ``jvm``, ``docker`` or ``none`` allows only that kind.
``STREAMS_PY_KAFKA_VERSION`` selects another release of Apache Kafka, ``STREAMS_PY_KAFKA_IMAGE`` another Docker image.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from streams_py.testing.broker import topics
from streams_py.testing.broker.container import DockerBroker, why_no_docker
from streams_py.testing.broker.interface import Broker, BrokerCapabilities, NoBrokerError
from streams_py.testing.broker.jars import why_no_jvm
from streams_py.testing.broker.jvm import JvmBroker

_CONNECT_S = 10.0


class AddressBroker:
    """Any Kafka cluster by address. The kit cannot stop its nodes, and ``close`` does not stop the cluster."""

    def __init__(self, bootstrap: str) -> None:
        try:
            metadata = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(timeout=_CONNECT_S)
        except KafkaException as error:
            raise NoBrokerError(f"no broker answers at {bootstrap} (STREAMS_PY_BOOTSTRAP): {error.args[0]}") from error
        self.bootstrap = bootstrap
        """Value for ``bootstrap.servers``."""
        self.capabilities = BrokerCapabilities(
            label=f"Kafka at {bootstrap}", nodes=len(metadata.brokers), apache_kafka=True, node_control=False
        )
        """Features of the cluster that tests may use."""

    def create_topic(self, name: str, partitions: int, *, config: Mapping[str, str] | None = None) -> None:
        """Create a topic with the cluster's default replication and wait until every partition has a leader."""
        topics.create_topic(self.bootstrap, name, partitions, config)

    def stop_node(self, node: int) -> None:
        """Raise NoBrokerError: the kit did not start the node."""
        raise NoBrokerError(f"cannot stop node {node}: {self.capabilities.label} was not started by this test kit")

    def kill_node(self, node: int) -> None:
        """Raise NoBrokerError: the kit did not start the node."""
        raise NoBrokerError(f"cannot kill node {node}: {self.capabilities.label} was not started by this test kit")

    def start_node(self, node: int) -> None:
        """Raise NoBrokerError: the kit did not start the node."""
        raise NoBrokerError(f"cannot start node {node}: {self.capabilities.label} was not started by this test kit")

    def close(self) -> None:
        """Do nothing: the cluster keeps running."""


_KINDS = ("jvm", "docker", "none")


def why_no_broker(*, nodes: int = 1) -> str | None:
    """Return why :func:`find_broker` would fail, for example ``no Java and no Docker``; None if it would not.

    Does not start a broker. But the first call may take minutes to download Kafka's jars or its image.
    """
    try:
        _choose(nodes)
    except NoBrokerError as error:
        return str(error)
    return None


def find_broker(*, nodes: int = 1, on_jvm: Callable[[], Broker] | None = None) -> Broker:
    """Start, or connect to, the best real broker. The caller must close it.

    Args:
        nodes: Number of nodes, 1 or 3.
        on_jvm: Creates the broker if the JVM is chosen. Default: JvmBroker.

    Raises:
        NoBrokerError: No real broker is available; the message gives the reason.
    """
    return _choose(nodes, on_jvm)()


def _choose(nodes: int, on_jvm: Callable[[], Broker] | None = None) -> Callable[[], Broker]:
    only = os.environ.get("STREAMS_PY_BROKER", "")
    if only and only not in _KINDS:
        raise NoBrokerError(f"STREAMS_PY_BROKER={only} is not one of {', '.join(_KINDS)}")
    if only == "none":
        raise NoBrokerError("STREAMS_PY_BROKER=none")
    address = os.environ.get("STREAMS_PY_BOOTSTRAP")
    # The address is used for single-node tests only: a test with three nodes needs to stop some of them.
    if address and nodes == 1 and not only:
        return lambda: AddressBroker(address)
    why_not = []
    if only in ("", "jvm"):
        reason = why_no_jvm()
        if reason is None:
            return on_jvm or (lambda: JvmBroker(nodes=nodes))
        why_not.append(reason)
    if only in ("", "docker"):
        reason = why_no_docker()
        if reason is None:
            return lambda: DockerBroker(nodes=nodes)
        why_not.append(reason)
    raise NoBrokerError(" and ".join(why_not))
