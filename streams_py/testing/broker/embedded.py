"""The embedded cluster as a test broker: needs neither Java nor Docker and starts within a second.

It is librdkafka's mock cluster. It does not implement real transactions, fencing, static members, compaction and topic
configuration, so it cannot test them. A stopped node refuses connections and keeps its data.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from streams_py.adapters.confluent.embedded.cluster import EmbeddedCluster
from streams_py.testing.broker.interface import BrokerCapabilities


class EmbeddedBroker:
    """A separate mock cluster, in a small server process that stops when its last user closes it.

    ``url`` is the value of ``bootstrap.servers`` for applications (``embedded://...``), ``bootstrap`` the address for
    plain Kafka clients.
    """

    def __init__(self, *, nodes: int = 1) -> None:
        name = f"test-{uuid.uuid4().hex[:12]}"
        self._nodes = nodes
        self._cluster = EmbeddedCluster.join(name, brokers=nodes)
        self.url = f"embedded://{name}"
        """Value for ``bootstrap.servers`` of applications."""
        self.bootstrap = self._cluster.bootstrap
        """Value for ``bootstrap.servers`` of plain Kafka clients."""
        self.capabilities = BrokerCapabilities(
            label="librdkafka's mock cluster (embedded)", nodes=nodes, apache_kafka=False, node_control=True
        )
        """Features of the cluster that tests may use."""

    def create_topic(self, name: str, partitions: int, *, config: Mapping[str, str] | None = None) -> None:
        """Create a topic. ``config`` has no effect."""
        self._cluster.create_topic(name, partitions, replicas=min(3, self._nodes))

    def stop_node(self, node: int) -> None:
        """Stop a node; its data stays."""
        self._cluster.stop_broker(node)

    def kill_node(self, node: int) -> None:
        """Stop a node; its data stays."""
        self._cluster.stop_broker(node)

    def start_node(self, node: int) -> None:
        """Start a stopped node with its data."""
        self._cluster.start_broker(node)

    def close(self) -> None:
        """Leave the cluster. It stops after its last user has left."""
        self._cluster.close()
