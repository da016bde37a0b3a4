"""Apache Kafka from its Maven jars on the JVM of this machine: no Docker, ready in seconds.

:class:`JvmCluster` is a cluster in a folder, for the command line. It keeps running after the process that started it.
:class:`JvmBroker` is a cluster in a temporary folder on free ports, for tests. It stops with the process.
"""

from __future__ import annotations

import base64
import random
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path

from streams_py.testing.broker import topics
from streams_py.testing.broker.interface import BrokerCapabilities, NoBrokerError, kafka_version
from streams_py.testing.broker.jars import java_path, kafka_jars
from streams_py.testing.broker.jvm_node import HOST, JvmNode, Ports
from streams_py.testing.broker.readiness import wait_until_ready
from streams_py.testing.broker.temporary_folder import TemporaryFolder

_PORTS = (15_000, 32_000)
"""Range of ports: above the well-known ports, below the ephemeral ports of Linux (32768) and macOS (49152)."""


_OWN_PORTS_S = 10.0
"""Time to wait until a restarted node's ports are free, in s."""


def free_ports(nodes: int) -> dict[int, Ports]:
    """Return ports that are free now, for that many nodes.

    The ports are outside the range of ephemeral ports. Otherwise a client that tries to reach a stopped node could get
    that port for its own connection, connect to itself, and prevent the node from restarting.
    """
    numbers: list[int] = []
    while len(numbers) < 2 * nodes:
        number = random.SystemRandom().randrange(*_PORTS)
        if number not in numbers and _is_free(number):
            numbers.append(number)
    return {i: Ports(numbers[2 * i - 2], numbers[2 * i - 1]) for i in range(1, nodes + 1)}


def consecutive_ports(nodes: int, first: int) -> dict[int, Ports]:
    """Return ports: brokers on ``first``, ``first + 1``, ...; controllers on the ports after the last broker."""
    return {i: Ports(first + i - 1, first + nodes + i - 1) for i in range(1, nodes + 1)}


class JvmCluster:
    """A cluster of 1 or 3 nodes, with all files in ``folder``.

    Args:
        folder: Folder of the settings, data, logs and process ids of all nodes.
        heap: Heap size of each node.
        ready_timeout_ms: Maximum time until started nodes are ready.
        settings: Additional settings of each node.
        short_lived: For tests of some minutes: the JVM starts faster, but is slower under high load.
    """

    def __init__(
        self,
        folder: Path,
        *,
        heap: str = "512m",
        ready_timeout_ms: int = 180_000,
        settings: Mapping[str, object] | None = None,
        short_lived: bool = False,
    ) -> None:
        self.folder = folder.resolve()
        self._short_lived = short_lived
        self._heap = heap
        self._settings = dict(settings or {})
        self._ready_timeout_ms = ready_timeout_ms

    @property
    def nodes(self) -> list[JvmNode]:
        """Nodes that were started at least once, ordered by number."""
        ids = sorted(int(path.stem.split("-")[1]) for path in self.folder.glob("node-*.properties"))
        return [JvmNode(self.folder, i) for i in ids]

    @property
    def bootstrap(self) -> str:
        return ",".join(node.address for node in self.nodes)

    def start(self, ports: Mapping[int, Ports]) -> None:
        """Start every node that is down, with its existing data, and wait until all are ready."""
        known = self.nodes
        if known and len(known) != len(ports):
            raise NoBrokerError(
                f"{self.folder} holds a cluster of {len(known)} node(s), not {len(ports)}; use another folder,"
                " or delete it with stop --delete"
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        down = []
        for i in sorted(ports):
            node = JvmNode(self.folder, i)
            if node.pid() is not None:
                if node.ports != ports[i]:
                    raise NoBrokerError(f"node {i} in {self.folder} already runs on other ports; stop it first")
                continue
            # A node that was killed a moment ago may still hold its ports.
            patience_s = _OWN_PORTS_S if node.ports == ports[i] else 0.0
            _check_free((ports[i].broker, ports[i].controller), patience_s)
            node.write_settings(dict(ports), self._settings)
            down.append(node)
        self._launch(down, expected_nodes=len(ports))

    def start_node(self, node_id: int) -> None:
        """Start a stopped or killed node with its data, and wait until it is ready."""
        node = self._node(node_id)
        if node.pid() is None:
            running = sum(other.pid() is not None for other in self.nodes)
            self._launch([node], expected_nodes=running + 1)

    def end_node(self, node_id: int, *, hard: bool) -> None:
        self._node(node_id).end(hard=hard)

    def end(self, *, hard: bool, delete: bool = False) -> None:
        """Stop all nodes, and optionally remove the data.

        The nodes are stopped at the same time, because a clean shutdown needs the peers.
        """
        for node in self.nodes:
            pid = node.pid()
            if pid is not None and not hard:
                subprocess.run(["kill", "-TERM", str(pid)], check=False)
        for node in self.nodes:
            node.end(hard=hard)
        if delete:
            for node in self.nodes:
                node.delete()
            (self.folder / "cluster.id").unlink(missing_ok=True)
            if self.folder.exists() and not any(self.folder.iterdir()):
                self.folder.rmdir()

    def _node(self, node_id: int) -> JvmNode:
        node = JvmNode(self.folder, node_id)
        if node.ports is None:
            raise NoBrokerError(f"{self.folder} has no node {node_id}")
        return node

    def _cluster_id(self) -> str:
        file = self.folder / "cluster.id"
        if not file.exists():
            # Must not start with "-": StorageTool would parse it as an option.
            file.write_text("c" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22])
        return file.read_text()

    def _launch(self, nodes: list[JvmNode], *, expected_nodes: int) -> None:
        java, classpath = java_path(), f"{kafka_jars(kafka_version())}/*"
        self._format([node for node in nodes if not node.is_formatted], java, classpath)
        started: dict[JvmNode, subprocess.Popen[bytes]] = {}

        def check_alive() -> None:
            for node, process in started.items():
                if process.poll() is not None:
                    end = node.log_file.read_text(errors="replace")[-2000:]
                    raise NoBrokerError(
                        f"node {node.id} stopped with status {process.returncode}; end of {node.log_file}:\n{end}"
                    )

        try:
            for node in nodes:
                started[node] = node.launch(java, classpath, self._heap, short_lived=self._short_lived)
            wait_until_ready(
                [node.address for node in nodes],
                nodes=expected_nodes,
                timeout_ms=self._ready_timeout_ms,
                check_alive=check_alive,
            )
        except BaseException:  # also Ctrl-C: leave no half-started node behind
            for node, process in started.items():
                node.end(hard=True)
                process.wait()
            raise

    def _format(self, nodes: Iterable[JvmNode], java: str, classpath: str) -> None:
        running = [
            (
                node,
                subprocess.Popen(
                    node.format_command(java, classpath, self._cluster_id()),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                ),
            )
            for node in nodes
        ]
        for node, process in running:
            output = process.communicate()[0]
            if process.returncode != 0:
                raise NoBrokerError(f"formatting {node.data_folder} failed:\n{output[-2000:]}")


class NodesOnJvm:
    """The methods of a test broker, for the nodes of a :class:`JvmCluster`."""

    bootstrap: str
    _cluster: JvmCluster

    def create_topic(self, name: str, partitions: int, *, config: Mapping[str, str] | None = None) -> None:
        """Create a topic with the cluster's default replication and wait until every partition has a leader."""
        topics.create_topic(self.bootstrap, name, partitions, config)

    def stop_node(self, node: int) -> None:
        """Shut a node down cleanly; its data stays."""
        self._cluster.end_node(node, hard=False)

    def kill_node(self, node: int) -> None:
        """Kill a node with SIGKILL; its data stays."""
        self._cluster.end_node(node, hard=True)

    def start_node(self, node: int) -> None:
        """Start a stopped or killed node with its data, and wait until it is ready."""
        self._cluster.start_node(node)

    def copy_logs(self, folder: Path) -> None:
        """Copy the nodes' log files to a folder, as ``node-1.log`` and so on."""
        for node in self._cluster.nodes:
            shutil.copy(node.log_file, folder)


class JvmBroker(NodesOnJvm):
    """A :class:`~streams_py.testing.broker.interface.Broker` in a temporary folder on free ports, removed at exit.

    ``heap`` and ``short_lived``: see :class:`JvmCluster`.
    """

    def __init__(self, *, nodes: int = 1, heap: str = "512m", short_lived: bool = False) -> None:
        self._folder = TemporaryFolder("streams-py-kafka-")
        self._cluster = JvmCluster(self._folder.path, heap=heap, short_lived=short_lived)
        self._folder.end = lambda: self._cluster.end(hard=True)  # the data is removed, so skip the clean shutdown
        try:
            self._cluster.start(free_ports(nodes))
        except BaseException:
            self.close()
            raise
        self.bootstrap = self._cluster.bootstrap
        """Value for ``bootstrap.servers``."""
        self.capabilities = BrokerCapabilities(
            label=f"Apache Kafka {kafka_version()} (jvm)", nodes=nodes, apache_kafka=True, node_control=True
        )
        """Features of the cluster that tests may use."""

    def close(self) -> None:
        """Stop all nodes and remove their data."""
        self._folder.close()


def _check_free(ports: Iterable[int], patience_s: float = 0.0) -> None:
    limit = time.monotonic() + patience_s
    for port in ports:
        while not _is_free(port):
            if time.monotonic() > limit:
                raise NoBrokerError(f"port {port} is in use; choose another --port")
            time.sleep(0.1)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
