"""The one interface of all test brokers, and what each kind can prove.

A test that needs a broker takes a :class:`Broker` and never asks which kind it got; it asks ``capabilities`` when it
needs something that not every kind has. Only Apache Kafka itself is a witness for exactly-once, static members,
fencing and compaction; the embedded mock is not.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

__all__ = ["KAFKA_VERSION", "Broker", "BrokerCapabilities", "NoBrokerError", "kafka_version"]

KAFKA_VERSION = "4.3.1"
"""The Apache Kafka release that the JVM and Docker back ends run, unless ``STREAMS_PY_KAFKA_VERSION`` names another."""


class NoBrokerError(RuntimeError):
    """A broker of the asked kind cannot be had here; the message says why and what to install."""


def kafka_version() -> str:
    """The Apache Kafka release of the brokers that are started here. Java members of groups, and whatever else is
    compared with Kafka Streams, stay at :data:`KAFKA_VERSION`.

    Raises NoBrokerError when ``STREAMS_PY_KAFKA_VERSION`` is no version.
    """
    version = os.environ.get("STREAMS_PY_KAFKA_VERSION") or KAFKA_VERSION
    if not re.fullmatch(r"\d+\.\d+\.\d+(-\w+)?", version):
        raise NoBrokerError(f"STREAMS_PY_KAFKA_VERSION={version} is no release of Apache Kafka such as {KAFKA_VERSION}")
    return version


@dataclass(frozen=True, slots=True)
class BrokerCapabilities:
    """What tests may expect of a broker.

    ``label`` names it in reports, e.g. ``Apache Kafka 4.3.1 (jvm)``. ``apache_kafka`` is true for the real thing: with
    it come transactions, fencing, static members and topic configuration. ``node_control`` is true where single nodes
    can be stopped, killed and started again.
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
        """What can be tested with it."""

    def create_topic(self, name: str, partitions: int, *, config: Mapping[str, str] | None = None) -> None:
        """Create a topic with the cluster's default replication and wait until every partition has a leader."""

    def stop_node(self, node: int) -> None:
        """Shut a node down cleanly; its data stays."""

    def kill_node(self, node: int) -> None:
        """End a node without warning (SIGKILL); its data stays."""

    def start_node(self, node: int) -> None:
        """Bring a stopped or killed node back with its data, and wait until it serves."""

    def close(self) -> None:
        """End everything and remove the data that this object created."""
