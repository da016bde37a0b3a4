"""An existing cluster as a test broker; its address is in ``STREAMS_PY_BOOTSTRAP``."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from streams_py.testing.broker import topics
from streams_py.testing.broker.interface import BrokerCapabilities, NoBrokerError

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
