"""One Kafka node on a JVM: its settings file, its data folder, its process.

All files of a node are in the cluster's folder (``node-1.properties``, ``node-1.pid``, ``node-1.log``, ``data-1``), so
that another process (the command line) can stop, kill and restart it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from streams_py.testing.broker.interface import NoBrokerError

HOST = "127.0.0.1"
_STOP_S, _KILL_S = 20.0, 10.0
_LOGS = tuple(
    f"-Dorg.slf4j.simpleLogger.{key}={value}"
    for key, value in {
        "defaultLogLevel": "warn",
        "log.org.apache.kafka.coordinator": "info",  # logs changes of groups and transactions
        "showDateTime": "true",
        "dateTimeFormat": "yyyy-MM-dd HH:mm:ss.SSS",
    }.items()
)
_FIRST_COMPILER = ("-XX:TieredStopAtLevel=1",)
_LISTS = ("listeners", "advertised.listeners", "listener.security.protocol.map")


@dataclass(frozen=True, slots=True)
class Ports:
    """Loopback ports of one node."""

    broker: int
    controller: int


@dataclass(frozen=True, slots=True)
class JvmNode:
    """Node number ``id`` (from 1) of the cluster whose files are in ``folder``."""

    folder: Path
    id: int

    @property
    def settings_file(self) -> Path:
        return self.folder / f"node-{self.id}.properties"

    @property
    def data_folder(self) -> Path:
        return self.folder / f"data-{self.id}"

    @property
    def log_file(self) -> Path:
        return self.folder / f"node-{self.id}.log"

    @property
    def _pid_file(self) -> Path:
        return self.folder / f"node-{self.id}.pid"

    @property
    def ports(self) -> Ports | None:
        """Ports from the settings file; None if the node was never started."""
        if not self.settings_file.exists():
            return None
        for line in self.settings_file.read_text().splitlines():
            key, _, value = line.partition("=")
            if key == "listeners":
                broker, controller = (int(listener.rpartition(":")[2]) for listener in value.split(",")[:2])
                return Ports(broker, controller)
        return None

    @property
    def address(self) -> str:
        ports = self.ports
        if ports is None:
            raise NoBrokerError(f"{self.folder} has no node {self.id}")
        return f"{HOST}:{ports.broker}"

    def pid(self) -> int | None:
        """Return the process id if the node runs, otherwise None.

        The process must have the node's settings file in its command line, because process ids are reused.
        """
        try:
            pid = int(self._pid_file.read_text())
        except (OSError, ValueError):
            return None
        listing = subprocess.run(
            ["ps", "-ww", "-p", str(pid), "-o", "stat=,command="], capture_output=True, text=True, check=False
        ).stdout
        state, _, command = listing.partition(" ")
        if state.startswith("Z"):  # a zombie has no command line; with "l" some threads still run and hold the ports
            return pid if "l" in state else None
        return pid if str(self.settings_file) in command else None

    def write_settings(self, all_ports: dict[int, Ports], more: Mapping[str, object] | None = None) -> None:
        """Write the settings file. ``more``: further settings; lists (of listeners) are appended to the node's own."""
        settings = _settings(self, all_ports)
        for key, value in (more or {}).items():
            settings[key] = f"{settings[key]},{value}" if key in _LISTS else value
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        self.settings_file.write_text(text)

    def format_command(self, java: str, classpath: str, cluster_id: str) -> list[str]:
        """Return the command that formats the data folder, which KRaft requires once."""
        return [
            java, "-Xmx128m", *_FIRST_COMPILER, "-XX:+UseSerialGC", *_LOGS, "-cp", classpath,
            "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(self.settings_file),
        ]  # fmt: skip

    @property
    def is_formatted(self) -> bool:
        return (self.data_folder / "meta.properties").exists()

    def launch(self, java: str, classpath: str, heap: str, *, short_lived: bool = False) -> subprocess.Popen[bytes]:
        """Start the process in its own session, so that it survives this process and a Ctrl-C in its terminal.

        ``short_lived``: leave out the JVM's second compiler, which does not pay off in a process of some minutes.
        """
        compilers = _FIRST_COMPILER if short_lived else ()
        with self.log_file.open("ab") as log:
            process = subprocess.Popen(
                [
                    java, f"-Xmx{heap}", "-XX:+UseSerialGC", *compilers, *_LOGS, "-cp", classpath,
                    "kafka.Kafka", str(self.settings_file),
                ],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=self.folder,
            )  # fmt: skip
        self._pid_file.write_text(str(process.pid))
        return process

    def end(self, *, hard: bool) -> None:
        """Send SIGKILL (``hard``) or SIGTERM and wait until the process has stopped. No error if it does not run."""
        pid = self.pid()
        if pid is not None:
            _signal(pid, signal.SIGKILL if hard else signal.SIGTERM)
            if not self._is_gone_within(_KILL_S if hard else _STOP_S):
                _signal(pid, signal.SIGKILL)
                self._is_gone_within(_KILL_S)
        self._pid_file.unlink(missing_ok=True)

    def delete(self) -> None:
        """Remove every file of this node."""
        shutil.rmtree(self.data_folder, ignore_errors=True)
        for file in (self.settings_file, self.log_file, self._pid_file):
            file.unlink(missing_ok=True)

    def _is_gone_within(self, seconds: float) -> bool:
        limit = time.monotonic() + seconds
        while self.pid() is not None:
            if time.monotonic() > limit:
                return False
            time.sleep(0.05)
        return True


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # it may have stopped meanwhile
        os.kill(pid, number)


def _settings(node: JvmNode, all_ports: dict[int, Ports]) -> dict[str, object]:
    """Loopback only, broker and controller in one JVM, fast rebalances, up to three replicas of everything."""
    mine, nodes = all_ports[node.id], len(all_ports)
    copies = min(3, nodes)
    in_sync = max(1, copies - 1)  # with three nodes, one may be down
    return {
        "process.roles": "broker,controller",
        "node.id": node.id,
        "broker.rack": f"rack-{node.id}",
        "controller.quorum.voters": ",".join(f"{i}@{HOST}:{ports.controller}" for i, ports in all_ports.items()),
        "listeners": f"PLAINTEXT://{HOST}:{mine.broker},CONTROLLER://{HOST}:{mine.controller}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{mine.broker}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": node.data_folder,
    } | shared_settings(copies, in_sync)


def shared_settings(copies: int, in_sync: int) -> dict[str, object]:
    """Return the settings that do not depend on where the node runs; also used for containers."""
    return {
        "num.partitions": 4,
        # The group leader creates internal topics: automatic creation by the broker would hide mistakes.
        "auto.create.topics.enable": "false",
        "default.replication.factor": copies,
        "min.insync.replicas": in_sync,
        # Tests write records with old timestamps. With Kafka's default of 7 days, the next check (every 5 minutes)
        # would delete them, perhaps while a test reads them.
        "log.retention.ms": -1,
        "offsets.topic.replication.factor": copies,
        "offsets.topic.num.partitions": 5,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "transaction.state.log.num.partitions": 5,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": in_sync,
        # Small segments: only full ones are compacted (default 100 MB), and a restarted node reads the whole topics.
        "offsets.topic.segment.bytes": 1 << 20,
        "transaction.state.log.segment.bytes": 1 << 20,
        "group.initial.rebalance.delay.ms": 0,
        "group.min.session.timeout.ms": 500,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
        # A killed node is detected, and may restart, after 4 s instead of 9 s.
        "broker.session.timeout.ms": 4000,
        "broker.heartbeat.interval.ms": 500,
    }
