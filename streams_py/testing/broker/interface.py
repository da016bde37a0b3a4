"""The interface of all test brokers, and the capabilities of each kind.

A test uses a :class:`Broker` and does not depend on its kind. It checks ``capabilities`` if it needs a feature that not
every kind has. Only Apache Kafka itself can test exactly-once, static members, fencing and compaction; the embedded
mock cannot.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

KAFKA_VERSION = "4.3.1"
"""Apache Kafka release of the JVM and Docker back ends, unless ``STREAMS_PY_KAFKA_VERSION`` selects another."""


class NoBrokerError(RuntimeError):
    """A broker of the requested kind is not available here. The message says why, and what to install."""


def kafka_version() -> str:
    """Return the Apache Kafka release of the brokers that are started here.

    Java group members, and everything else that is compared with Kafka Streams, always use :data:`KAFKA_VERSION`.
    Raises NoBrokerError if ``STREAMS_PY_KAFKA_VERSION`` is not a valid version.
    """
    version = os.environ.get("STREAMS_PY_KAFKA_VERSION") or KAFKA_VERSION
    if not re.fullmatch(r"\d+\.\d+\.\d+(-\w+)?", version):
        raise NoBrokerError(
            f"STREAMS_PY_KAFKA_VERSION={version} is not a valid release of Apache Kafka; expected e.g. {KAFKA_VERSION}"
        )
    return version


@dataclass(frozen=True, slots=True)
class BrokerCapabilities:
    """Features of a broker that tests may use.

    Attributes:
        label: Name in reports, for example ``Apache Kafka 4.3.1 (jvm)``.
        nodes: Number of nodes.
        apache_kafka: Whether it is Apache Kafka, with transactions, fencing, static members and topic configuration.
        node_control: Whether single nodes can be stopped, killed and started again.
    """

    label: str
    nodes: int
    apache_kafka: bool
    node_control: bool


class Broker(Protocol):
    """A running cluster. Nodes are numbered from 1, which is also their Kafka node id."""

    @property
    def bootstrap(self) -> str:
        """Value for ``bootstrap.servers``: ``host:port[,host:port]``."""

    @property
    def capabilities(self) -> BrokerCapabilities:
        """Features that can be tested with this broker."""

    def create_topic(self, name: str, partitions: int, *, config: Mapping[str, str] | None = None) -> None:
        """Create a topic with the cluster's default replication and wait until every partition has a leader."""

    def stop_node(self, node: int) -> None:
        """Shut a node down cleanly; its data stays."""

    def kill_node(self, node: int) -> None:
        """Kill a node with SIGKILL; its data stays."""

    def start_node(self, node: int) -> None:
        """Start a stopped or killed node with its data, and wait until it is ready."""

    def close(self) -> None:
        """Stop all nodes and remove the data that this object created."""
