"""Apache Kafka in Docker containers, through testcontainers.

Each node has three listeners:

* for clients, published on a loopback port of this machine;
* for the other nodes, and for its own transaction markers, under its name in a private network;
* for controllers.

The published ports are fixed, so a node keeps its address when it is restarted.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import importlib.util
import os
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from streams_py.testing.broker import topics
from streams_py.testing.broker.interface import BrokerCapabilities, NoBrokerError, kafka_version
from streams_py.testing.broker.jvm import free_ports
from streams_py.testing.broker.jvm_node import HOST, shared_settings
from streams_py.testing.broker.readiness import wait_until_ready

_CLIENT_PORT, _NODE_PORT, _CONTROLLER_PORT = 9092, 19092, 29093
_READY_MS = 120_000
_STOP_S = 20
_ANSWER_S, _PULL_S = 10, 600
_LOG_LINES = 100


def why_no_docker() -> str | None:
    """Return why no container can be started here; None if one can. Pulls the image if it is missing."""
    if importlib.util.find_spec("testcontainers") is None:
        return "no testcontainers (pip install testcontainers)"
    from docker.errors import DockerException, ImageNotFound
    from requests.exceptions import RequestException

    try:
        client = _docker_client()
        client.ping()
    except (DockerException, RequestException, OSError):
        return "no Docker"
    try:
        if (host := remote_host(client.api.base_url)) is not None:
            return f"Docker runs on {host}, and this machine cannot reach the ports that it publishes on its loopback"
        image = _image()
        try:
            client.images.get(image)
        except ImageNotFound:
            print(f"pulling {image} (once) ...", file=sys.stderr)
            try:
                client.api.timeout = _PULL_S
                client.images.pull(image)
            except (DockerException, RequestException) as error:
                return f"no image {image} for Docker ({_first_line(error)})"
    finally:
        client.close()
    return None


def _docker_client() -> Any:
    """Return the Docker client of testcontainers, with its settings."""
    from testcontainers.core.docker_client import DockerClient

    return DockerClient(timeout=_ANSWER_S).client


def remote_host(base_url: str) -> str | None:
    """Return the host that Docker runs on, or None if it is this machine. ``base_url``: of Docker's client."""
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https"):  # a socket file (http+docker), a named pipe
        return parts.hostname if parts.scheme == "ssh" else None
    return None if parts.hostname in (None, "localhost", "127.0.0.1", "::1") else parts.hostname


def version_of(image: str) -> str:
    """Return the tag of an image name, or its digest; ``latest`` if it has neither."""
    name, at, digest = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]  # a ":" before the last "/" belongs to the registry's port
    return tag or (digest if at else "latest")


def _image() -> str:
    return os.environ.get("STREAMS_PY_KAFKA_IMAGE") or f"apache/kafka:{kafka_version()}"


class DockerBroker:
    """A cluster of 1 or 3 containers, removed at exit. ``STREAMS_PY_KAFKA_IMAGE`` selects another image."""

    def __init__(self, *, nodes: int = 1) -> None:
        from testcontainers.core.network import Network

        image = _image()
        ports = {i: both.broker for i, both in free_ports(nodes).items()}
        self._nodes = nodes
        self._addresses = {i: f"{HOST}:{port}" for i, port in ports.items()}
        self._containers: dict[int, Any] = {}
        self._network: Any = None
        atexit.register(self.close)
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[:22]
        try:
            with _docker_errors(f"cannot start {image}"):
                self._network = Network().create()
                for i, port in ports.items():
                    self._containers[i] = _container(image, i, nodes, port, self._network, cluster_id)
                    self._containers[i].start()
            wait_until_ready(
                self._addresses.values(), nodes=nodes, timeout_ms=_READY_MS, check_alive=self._check_alive(*ports)
            )
        except BaseException:
            self.close()
            raise
        self.bootstrap = ",".join(self._addresses.values())
        """Value for ``bootstrap.servers``."""
        self.capabilities = BrokerCapabilities(
            label=f"Apache Kafka {version_of(image)} (docker)", nodes=nodes, apache_kafka=True, node_control=True
        )
        """Features of the cluster that tests may use."""

    def create_topic(self, name: str, partitions: int, *, config: Mapping[str, str] | None = None) -> None:
        """Create a topic with the cluster's default replication and wait until every partition has a leader."""
        topics.create_topic(self.bootstrap, name, partitions, config)

    def stop_node(self, node: int) -> None:
        """Shut a node down cleanly; its data stays."""
        with _docker_errors(f"cannot stop node {node}"):
            self._docker(node).stop(timeout=_STOP_S)

    def kill_node(self, node: int) -> None:
        """Kill a node with SIGKILL; its data stays."""
        with _docker_errors(f"cannot kill node {node}"):
            if self._state(node) == "running":  # Docker rejects killing a stopped container
                self._docker(node).kill()

    def start_node(self, node: int) -> None:
        """Start a stopped or killed node with its data, and wait until it is ready."""
        with _docker_errors(f"cannot start node {node}"):
            self._docker(node).start()
            running = sum(self._state(other) == "running" for other in self._containers)
        wait_until_ready(
            [self._addresses[node]], nodes=max(1, running), timeout_ms=_READY_MS, check_alive=self._check_alive(node)
        )

    def close(self) -> None:
        """Remove all containers and the network. Failures are printed and do not stop the cleanup."""
        atexit.unregister(self.close)
        ends: list[Callable[[], object]] = [container.stop for container in self._containers.values()]
        if self._network is not None:
            ends.append(self._network.remove)
        self._containers, self._network = {}, None
        problems = []
        for end in ends:
            try:
                with _docker_errors("cannot clean up"):
                    end()
            except NoBrokerError as error:
                problems.append(str(error))
        for problem in problems:
            print(f"Docker: {problem}", file=sys.stderr)

    def _docker(self, node: int) -> Any:
        if node not in self._containers:
            raise NoBrokerError(f"node {node} does not exist; this cluster has nodes 1 to {self._nodes}")
        return self._containers[node].get_wrapped_container()

    def _state(self, node: int) -> str:
        container = self._docker(node)
        container.reload()
        return str(container.status)

    def _check_alive(self, *nodes: int) -> Callable[[], None]:
        """Return a function that raises NoBrokerError if the container of one of the nodes has stopped."""

        def check() -> None:
            for node in nodes:
                with _docker_errors(f"cannot inspect node {node}"):
                    if self._state(node) not in ("exited", "dead"):
                        continue
                    status = self._docker(node).attrs["State"]["ExitCode"]
                    log = self._docker(node).logs(tail=_LOG_LINES).decode(errors="replace")
                raise NoBrokerError(
                    f"the container of node {node} stopped with status {status}; end of its log:\n{_short(log)}"
                )

        return check


@contextlib.contextmanager
def _docker_errors(what: str) -> Iterator[None]:
    """Convert errors of Docker and of its transport to a NoBrokerError of one line."""
    from docker.errors import DockerException
    from requests.exceptions import RequestException

    try:
        yield
    except (DockerException, RequestException) as error:
        hint = ""
        if "ryuk" in str(error):
            hint = " (a helper image of testcontainers; TESTCONTAINERS_RYUK_DISABLED=true disables it)"
        raise NoBrokerError(f"{what}: {_first_line(error)}{hint}") from error


def _short(log: str) -> str:
    """Remove the call lines of Java stack traces; keep the last 3,000 characters."""
    return "\n".join(line for line in log.splitlines() if not line.startswith("\tat "))[-3000:]


def _first_line(error: Exception) -> str:
    message = getattr(error, "explanation", None) or str(error)
    return (str(message).strip().splitlines() or [type(error).__name__])[0]


def _container(image: str, node: int, nodes: int, port: int, network: Any, cluster_id: str) -> Any:
    """Create the container of one node without starting it."""
    from testcontainers.core.container import DockerContainer

    container: Any = DockerContainer(image).with_network(network).with_network_aliases(_name(node))
    container.ports[f"{_CLIENT_PORT}/tcp"] = (HOST, port)  # loopback only; with_bind_ports would use all interfaces
    container.with_env("CLUSTER_ID", cluster_id).with_env("KAFKA_HEAP_OPTS", "-Xmx512m")
    for key, value in container_settings(node, nodes, port).items():
        container.with_env("KAFKA_" + key.upper().replace(".", "_"), str(value))
    return container


def container_settings(node: int, nodes: int, port: int) -> dict[str, object]:
    """Return the settings of one node. The image reads them from environment variables ``KAFKA_...``."""
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
