"""The embedded cluster: ``bootstrap.servers=embedded`` does not need a broker.

All processes of one user on this machine that use the same name (``embedded`` or ``embedded://some-name``) share one
cluster, which is librdkafka's mock cluster (see :mod:`.mock_library`). The first process starts a small server process
(see :mod:`.server`). The server exits shortly after the last process has left the cluster, and all data is lost then.

The cluster is meant for first steps, demonstrations and tests. It has no reliable transactions, no static members, no
compaction and no security. :func:`refuse_unsupported` rejects settings that require these, and suggests an alternative.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import selectors
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent.admin import ConfluentAdmin
from streams_py.adapters.confluent.answers import NO_ANSWER, whole_partitions
from streams_py.adapters.confluent.embedded import server
from streams_py.adapters.confluent.embedded.mock_library import TOPIC_ALREADY_EXISTS
from streams_py.adapters.confluent.settings import Settings
from streams_py.adapters.security.settings import is_security_key
from streams_py.config.client_keys import without_prefix
from streams_py.config.streams_config import StreamsConfig
from streams_py.errors import BrokerUnavailableError, ConfigError, StreamsError
from streams_py.ports import AdminError, AdminErrorKind, PartitionInfo, TopicCleanup, TopicSpec

_log = logging.getLogger(__name__)

EMBEDDED_MEMBERSHIP_DEFAULTS: Final[Mapping[str, str]] = MappingProxyType(
    # A rebalance of the mock cluster waits for the session timeout minus 1 s.
    {"session.timeout.ms": "1500", "heartbeat.interval.ms": "100"}
)

_START_TIMEOUT_S: Final = 20.0
_REQUEST_TIMEOUT_S: Final = 10.0
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,32}")
_SOCKET_PATH_BYTES_MAX: Final = 100  # the kernel's limit is 104 (macOS) or 108 (Linux), with a final NUL


def embedded_name(bootstrap: str) -> str | None:
    """Return the cluster's name: ``default`` for ``embedded``, ``name`` for ``embedded://name``, None otherwise."""
    if bootstrap in ("embedded", "embedded://"):
        return "default"
    if not bootstrap.startswith("embedded"):
        return None
    name = bootstrap.removeprefix("embedded://")
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"bootstrap.servers = {bootstrap!r} is not valid: use embedded, or embedded://name with up to 32 letters, "
            "digits, - and _",
            key="bootstrap.servers",
        )
    return name


def refuse_unsupported(config: StreamsConfig) -> None:
    """Raise ConfigError for settings that the embedded cluster does not support."""
    instead = "start a broker (docker compose up -d) and set bootstrap.servers to its address"
    if config.processing_guarantee != "at_least_once":
        raise ConfigError(
            f"processing.guarantee = {config.processing_guarantee} requires transactions, which the embedded cluster "
            f"does not support reliably: {instead}, or use at_least_once",
            key="processing.guarantee",
        )
    for key in config.clients:
        name = without_prefix(key)
        if name == "group.instance.id":
            raise ConfigError(
                f"{key}: the embedded cluster does not support static members, so a restart would still cause a "
                f"rebalance: {instead}, or remove {key}",
                key=key,
            )
        if is_security_key(name) and not (name == "security.protocol" and config.clients[key].upper() == "PLAINTEXT"):
            raise ConfigError(
                f"{key}: the embedded cluster has no security and accepts connections from this machine only: "
                f"{instead}, or remove {key}",
                key=key,
            )


# -- the cluster, for its users ----------------------------------------------------------------------------------------


class EmbeddedCluster:
    """A reference to an embedded cluster, which keeps it running. Create one with :meth:`join`. Thread-safe."""

    def __init__(self, folder: Path, users: int, info: Mapping[str, Any]) -> None:
        self._folder = folder
        self._users: int | None = users
        self.bootstrap: str = info["bootstrap"]
        self.brokers: int = info["brokers"]
        self.id: str = info["id"]

    @classmethod
    def join(cls, name: str = "default", *, brokers: int = 1) -> EmbeddedCluster:
        """Join the cluster of that name; start it with ``brokers`` brokers if it is not running.

        Raises:
            BrokerUnavailableError: The cluster does not start within 20 s.
        """
        folder = _folder(name)
        users = os.open(folder / server.USERS_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(users, fcntl.LOCK_SH)  # from now on, a running server does not exit
            with server.locked(folder / server.START_LOCK, fcntl.LOCK_EX):
                if not _is_running(folder):
                    _start(folder, brokers)
                return cls(folder, users, _ask(folder, {"do": "info"}))
        except BaseException:
            os.close(users)
            raise

    def close(self) -> None:
        """Leave the cluster. It stops shortly after its last user has left."""
        if self._users is not None:
            os.close(self._users)
            self._users = None

    def __enter__(self) -> EmbeddedCluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- topics ----------------------------------------

    def create_topics(self, topics: Sequence[tuple[str, int, int]]) -> list[int]:
        """Create topics, each given as (name, partitions, replicas).

        Returns:
            One error code of Kafka's protocol per topic; 0 for success.
        """
        return list(self._do("create_topics", topics=[list(topic) for topic in topics]))

    def create_topic(self, name: str, partitions: int, replicas: int = 1) -> None:
        """Create one topic. Raises StreamsError when that fails, for example because it already exists."""
        (code,) = self.create_topics([(name, partitions, replicas)])
        if code:
            raise StreamsError(f"topic {name} could not be created: error {code}")

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Delete the batches that end below offset ``before``."""
        self._do("delete_records", topic=topic, partition=partition, before=before)

    def lost(self) -> tuple[str, ...]:
        """Return the partitions (``topic-number``) whose oldest records the mock cluster dropped at its size limit.

        On Linux, only partitions with more than 1 GB reach the limit.
        """
        return tuple(self._do("info")["lost"])

    # -- faults, for tests ----------------------------------------

    def stop_broker(self, broker: int = 1) -> None:
        """Close a broker's connections and refuse new ones. The broker keeps its data."""
        self._do("stop_broker", broker=broker)

    def start_broker(self, broker: int = 1) -> None:
        """Undo :meth:`stop_broker`."""
        self._do("start_broker", broker=broker)

    def set_leader(self, topic: str, partition: int, broker: int) -> None:
        """Move a partition's leader."""
        self._do("set_leader", topic=topic, partition=partition, broker=broker)

    def set_round_trip(self, round_trip_ms: int, broker: int = 1) -> None:
        """Delay each response of a broker by ``round_trip_ms``; 0 = no delay."""
        self._do("set_round_trip", broker=broker, round_trip_ms=round_trip_ms)

    def push_errors(self, api_key: int, codes: Sequence[int]) -> None:
        """Answer the next requests with this API key of Kafka's protocol (11 = JoinGroup) with these error codes."""
        self._do("push_errors", api_key=api_key, codes=list(codes))

    def _do(self, operation: str, **arguments: Any) -> Any:
        return _ask(self._folder, {"do": operation, "cluster": self.id, **arguments})


def _folder(name: str) -> Path:
    """Return the private folder of a cluster; create it if needed.

    Raises:
        ConfigError: Other users can access the folder, or its path is too long for a socket.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    parent = Path(runtime) if runtime and os.access(runtime, os.W_OK) else Path(tempfile.gettempdir())
    for folder in (parent / f"streams-py-{os.getuid()}", parent / f"streams-py-{os.getuid()}" / f"embedded-{name}"):
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
            raise ConfigError(
                f"the embedded cluster needs {folder} as a private folder, but other users can access it: remove it",
                key="bootstrap.servers",
            )
    if len(os.fsencode(folder / server.SOCKET_NAME)) > _SOCKET_PATH_BYTES_MAX:
        raise ConfigError(
            f"the path {folder} is too long for a socket: choose a shorter embedded://name, or a shorter TMPDIR",
            key="bootstrap.servers",
        )
    return folder


def _is_running(folder: Path) -> bool:
    with server.locked(folder / server.SERVER_LOCK, fcntl.LOCK_SH | fcntl.LOCK_NB) as free:
        return not free and (folder / server.SOCKET_NAME).exists()


def _start(folder: Path, brokers: int) -> None:
    """Start the server process and wait until it accepts requests. The caller holds the start lock."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", server.__name__, str(folder), str(brokers)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
    with process:  # exits immediately, because the server detaches
        assert process.stdout is not None
        with selectors.DefaultSelector() as selector:  # select() cannot wait for a descriptor above 1023
            selector.register(process.stdout, selectors.EVENT_READ)
            ready = selector.select(_START_TIMEOUT_S) and process.stdout.readline() == b"ready\n"
    if not ready:
        last_line = (folder / "log").read_text(errors="replace").strip().rpartition("\n")[2]
        raise BrokerUnavailableError(
            f"the embedded cluster did not start within {_START_TIMEOUT_S:.0f} s: {last_line or 'no reason given'}"
        )


def _ask(folder: Path, request: dict[str, Any]) -> Any:
    """Send one request to the server process and return the result."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_REQUEST_TIMEOUT_S)
            connection.connect(str(folder / server.SOCKET_NAME))
            server.send(connection, request)
            answer = server.receive(connection)
        if "result" not in answer and "error" not in answer:
            raise ValueError("the answer has neither a result nor an error")
    except (OSError, ValueError) as failed:
        raise BrokerUnavailableError(f"the embedded cluster in {folder} does not answer: {failed}") from failed
    if "error" in answer:
        raise StreamsError(str(answer["error"]))
    return answer["result"]


# -- administration ----------------------------------------------------------------------------------------------------


class EmbeddedAdmin(ConfluentAdmin):
    """The port ``Admin`` for the embedded cluster. The server process handles requests unknown to the mock cluster."""

    def __init__(self, settings: Settings, cluster: EmbeddedCluster, *, timeout_ms: int = 10_000) -> None:
        super().__init__(settings, timeout_ms=timeout_ms)
        self._cluster = cluster
        self._warned: set[str] = set()

    def cluster_id(self) -> str:
        """Return the id of the cluster, which changes with each start of the cluster; see the port."""
        return self._cluster.id

    def describe_topics(
        self, names: Collection[str] | None = None
    ) -> Mapping[str, tuple[PartitionInfo, ...] | AdminError]:
        """Return the partitions of topics; see the port.

        This lists all topics and selects from them, because the mock cluster creates topics that are requested by name.
        """
        topics = self._list_topics()
        described: dict[str, tuple[PartitionInfo, ...] | AdminError] = {}
        for name in sorted(topics if names is None else names):
            if name in topics and whole_partitions(topics[name]) is None:
                described[name] = NO_ANSWER
            elif name in topics:
                described[name] = tuple(
                    PartitionInfo(
                        name, number, part.leader if part.leader >= 0 else None, tuple(part.replicas), frozenset()
                    )
                    for number, part in sorted(topics[name].partitions.items())
                )
            else:
                described[name] = AdminError(AdminErrorKind.UNKNOWN_TOPIC, f"topic {name} does not exist")
        self._warn_of_losses()
        return described

    def create_topics(self, specs: Collection[TopicSpec]) -> Mapping[str, AdminError | None]:
        """Create topics; see the port. Topic configurations, such as compaction or retention, have no effect."""
        wanted = list(specs)
        codes = self._cluster.create_topics(
            [(spec.name, spec.partitions, max(1, spec.replication_factor)) for spec in wanted]
        )
        return {spec.name: _creation_error(code) for spec, code in zip(wanted, codes, strict=True)}

    def delete_records(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Delete the records below these offsets; see the port."""
        for partition, before in offsets.items():
            try:
                self._cluster.delete_records(*partition, before)
            except StreamsError as failed:
                self._broker_log.warn(f"records of {partition} could not be deleted: {failed}")

    def delete_retention_ms(self, topics: Collection[str]) -> Mapping[str, int | AdminError | None]:
        """Return None for each topic, since no topic is compacted; see the port."""
        return dict.fromkeys(topics)

    def cleanup(self, topics: Collection[str]) -> Mapping[str, TopicCleanup | AdminError]:
        """Return an error for each topic, since topics have no configuration; see the port."""
        return dict.fromkeys(
            topics, AdminError(AdminErrorKind.UNSUPPORTED, "the embedded cluster has no topic cleanup")
        )

    def _warn_of_losses(self) -> None:
        for partition in self._cluster.lost():
            if partition not in self._warned:
                self._warned.add(partition)
                _log.warning(
                    "the embedded cluster has dropped the oldest records of %s: on this system it keeps only a few MB "
                    "per partition. State restored from it will be incomplete; use a real broker for this much data",
                    partition,
                )


def _creation_error(code: int) -> AdminError | None:
    if code == 0:
        return None
    kind = AdminErrorKind.ALREADY_EXISTS if code == TOPIC_ALREADY_EXISTS else AdminErrorKind.OTHER
    return AdminError(kind, f"error {code} of Kafka's protocol")
