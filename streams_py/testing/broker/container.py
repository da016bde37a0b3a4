"""Apache Kafka in Docker containers, through testcontainers.

Each node has three listeners: one for clients, published on a loopback port of this machine; one for the other nodes
(and for the node itself: transaction markers travel over it), by its name in a private network; one for controllers.
The published ports are fixed, so a node keeps its address when it is stopped and started again.
"""

from __future__ import annotations

import base64
import importlib.util
import os
import subprocess
import uuid
from collections.abc import Mapping
from typing import Any

from streams_py.testing.broker import topics
from streams_py.testing.broker.interface import KAFKA_VERSION, BrokerCapabilities, NoBroker
from streams_py.testing.broker.jvm import free_ports
from streams_py.testing.broker.jvm_node import HOST, shared_settings
from streams_py.testing.broker.readiness import wait_until_ready

__all__ = ["DockerBroker", "why_no_docker"]

IMAGE = f"apache/kafka:{KAFKA_VERSION}"
_CLIENT_PORT, _NODE_PORT, _CONTROLLER_PORT = 9092, 19092, 29093
_READY_MS = 120_000
_STOP_S = 20


def why_no_docker() -> str | None:
    """Why no container can be started here; None if it can."""
    try:
        answer = subprocess.run(["docker", "info"], capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "no Docker"
    if answer.returncode != 0:
        return "no Docker"
    if importlib.util.find_spec("testcontainers") is None:
        return "no testcontainers (pip install testcontainers)"
    return None


class DockerBroker:
    """A cluster of 1 or 3 containers. ``STREAMS_PY_KAFKA_IMAGE`` replaces the image."""

    def __init__(self, *, nodes: int = 1) -> None:
        from testcontainers.core.network import Network

        image = os.environ.get("STREAMS_PY_KAFKA_IMAGE") or IMAGE
        ports = {i: both.broker for i, both in free_ports(nodes).items()}
        self._nodes = nodes
        self._addresses = {i: f"{HOST}:{port}" for i, port in ports.items()}
        self._containers: dict[int, Any] = {}
        self._network = Network().create()
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[:22]
        try:
            for i, port in ports.items():
                self._containers[i] = _container(image, i, nodes, port, self._network, cluster_id)
                self._containers[i].start()
            wait_until_ready(self._addresses.values(), nodes=nodes, timeout_ms=_READY_MS)
        except BaseException:
            self.close()
            raise
        self.bootstrap = ",".join(self._addresses.values())
        self.capabilities = BrokerCapabilities(
            label=f"Apache Kafka {image.rpartition(':')[2]} (docker)", nodes=nodes, apache_kafka=True, node_control=True
        )

    def create_topic(self, name: str, partitions: int, *, config: Mapping[str, str] | None = None) -> None:
        topics.create_topic(self.bootstrap, name, partitions, config)

    def stop_node(self, node: int) -> None:
        self._docker(node).stop(timeout=_STOP_S)

    def kill_node(self, node: int) -> None:
        self._docker(node).kill()

    def start_node(self, node: int) -> None:
        self._docker(node).start()
        running = 0
        for other in self._containers:
            self._docker(other).reload()
            running += self._docker(other).status == "running"
        wait_until_ready([self._addresses[node]], nodes=running, timeout_ms=_READY_MS)

    def close(self) -> None:
        for container in self._containers.values():
            container.stop()
        self._containers.clear()
        self._network.remove()

    def _docker(self, node: int) -> Any:
        if node not in self._containers:
            raise NoBroker(f"this cluster has nodes 1 to {self._nodes}, no node {node}")
        return self._containers[node].get_wrapped_container()


def _container(image: str, node: int, nodes: int, port: int, network: Any, cluster_id: str) -> Any:
    """One node, not started yet."""
    from testcontainers.core.container import DockerContainer

    container: Any = DockerContainer(image).with_network(network).with_network_aliases(_name(node))
    container.ports[f"{_CLIENT_PORT}/tcp"] = (HOST, port)  # loopback only; with_bind_ports would publish to everybody
    container.with_env("CLUSTER_ID", cluster_id).with_env("KAFKA_HEAP_OPTS", "-Xmx512m")
    for key, value in container_settings(node, nodes, port).items():
        container.with_env("KAFKA_" + key.upper().replace(".", "_"), str(value))
    return container


def container_settings(node: int, nodes: int, port: int) -> dict[str, object]:
    """Settings of one node; the image reads them from variables ``KAFKA_...``."""
    copies = min(3, nodes)
    return {
        "process.roles": "broker,controller",
        "node.id": node,
        "broker.rack": f"rack-{node}",
        "controller.quorum.voters": ",".join(f"{i}@{_name(i)}:{_CONTROLLER_PORT}" for i in range(1, nodes + 1)),
        "listeners": f"PLAINTEXT://:{_CLIENT_PORT},INTERNAL://:{_NODE_PORT},CONTROLLER://:{_CONTROLLER_PORT}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port},INTERNAL://{_name(node)}:{_NODE_PORT}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
        "log.dirs": "/var/lib/kafka/data",
    } | shared_settings(copies, max(1, copies - 1))


def _name(node: int) -> str:
    return f"kafka-{node}"
