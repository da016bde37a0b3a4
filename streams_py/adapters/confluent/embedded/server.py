"""The server process of the embedded cluster. It runs while any process uses the cluster.

The cluster must outlive the application process that started it: a demonstration of failover may kill that process. So
it runs in a small separate process, detached from the application's terminal and process group. It stops automatically:

* Each user process holds a shared ``flock`` on the file ``users``. The kernel releases the lock when the process exits
  for any reason, including SIGKILL.
* The server regularly tries to get an exclusive lock on that file. When it has succeeded for a while, all user
  processes have exited, and the server exits too. A new user process could arrive at that moment. So the server exits
  only while it holds the lock ``start``, under which user processes decide whether to start a server.

User processes connect through a Unix socket in the same folder (mode 0700). A connection carries one request and one
answer, each with a 32-bit big-endian length and that number of bytes of JSON.

Run as ``python -m streams_py.adapters.confluent.embedded.server FOLDER BROKERS``. Prints ``ready`` when it accepts
requests.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import struct
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from streams_py.adapters.confluent.embedded.mock_library import MockCluster
from streams_py.adapters.connection.exact_reads import read_exactly
from streams_py.errors import StreamsError
from streams_py.ports import EMBEDDED_CLUSTER_ID

START_LOCK: Final = "start"
SERVER_LOCK: Final = "server"
USERS_LOCK: Final = "users"
SOCKET_NAME: Final = "control"

MESSAGE_BYTES_MAX: Final = 1 << 20  # enough for a request with a thousand topics
_RETENTION_BYTES: Final = 1 << 30  # per partition; the mock cluster's default is 5 MB
_TICK_S: Final = 0.25
_LINGER_S: Final = 1.5
_REQUEST_TIMEOUT_S: Final = 5.0
_LOSS_CHECK_EVERY_S: Final = 1.0


# -- locks and messages: used on both sides ----------------------------------------------------------------------------


@contextlib.contextmanager
def locked(path: Path, operation: int) -> Iterator[bool]:
    """Hold ``flock`` on a file. Yields False when ``LOCK_NB`` is requested and another process has the lock."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, operation)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


def send(connection: socket.socket, message: dict[str, Any]) -> None:
    """Write one message."""
    content = json.dumps(message).encode()
    connection.sendall(struct.pack(">I", len(content)) + content)


def receive(connection: socket.socket) -> dict[str, Any]:
    """Read one message.

    Raises:
        ValueError: The bytes are not a message.
        ConnectionResetError: The connection was closed too early.
    """
    (length,) = struct.unpack(">I", read_exactly(connection, 4))
    if length > MESSAGE_BYTES_MAX:
        raise ValueError(f"a message of {length} bytes is too long")
    message = json.loads(read_exactly(connection, length))
    if not isinstance(message, dict):
        raise ValueError("a message must be a JSON object")
    return message


# -- requests -------------------------------------------------------------------------------------------------


class _Requests:
    """Handler of requests for one cluster. Arguments come from JSON; an invalid one results in an error answer."""

    def __init__(self, cluster: MockCluster) -> None:
        self._cluster = cluster
        self._id = EMBEDDED_CLUSTER_ID + uuid.uuid4().hex
        self._watch = _LossWatch(cluster)
        self._operations: dict[str, Callable[..., Any]] = {
            "info": self._info,
            "create_topics": self._create_topics,
            "delete_records": self._delete_records,
            "set_leader": cluster.set_leader,
            "stop_broker": cluster.stop_broker,
            "start_broker": cluster.start_broker,
            "set_round_trip": cluster.set_round_trip,
            "push_errors": cluster.push_errors,
        }

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to one request: ``{"result": ...}`` or ``{"error": text}``."""
        arguments = dict(request)
        meant = arguments.pop("cluster", self._id)
        if meant != self._id:  # the user process joined an earlier server, which was killed
            return {"error": "the embedded cluster was stopped and its data is lost; a new one is running: restart"}
        operation = self._operations.get(str(arguments.pop("do", None)))
        if operation is None:
            return {"error": "no such operation"}
        try:
            return {"result": operation(**arguments)}
        except (StreamsError, TypeError, ValueError) as error:
            return {"error": str(error)}

    def tick(self) -> None:
        """Raise the limits of topics that clients have created, and check for lost records."""
        self._watch.check()

    def close(self) -> None:
        """Stop the cluster."""
        self._watch.close()
        self._cluster.close()

    def _info(self) -> dict[str, Any]:
        return {
            "bootstrap": self._cluster.bootstrap,
            "brokers": self._cluster.brokers,
            "id": self._id,
            "pid": os.getpid(),
            "lost": sorted(self._watch.lost),
        }

    def _create_topics(self, topics: list[tuple[str, int, int]]) -> list[int]:
        codes = [self._cluster.create_topic(name, partitions, replicas) for name, partitions, replicas in topics]
        made = sum(partitions for (_, partitions, _), code in zip(topics, codes, strict=True) if code == 0)
        self._cluster.raise_retention(_RETENTION_BYTES, partitions=made)
        self._watch.known.update(name for name, _, _ in topics)
        return codes

    def _delete_records(self, topic: str, partition: int, before: int) -> None:
        self._cluster.delete_records(topic, partition, before)
        self._watch.deleted.add((topic, partition))


class _LossWatch:
    """Finds partitions whose oldest records are missing without a deletion request: the mock cluster dropped them.

    It also raises the limits of topics that a client's metadata request has created.
    """

    def __init__(self, cluster: MockCluster) -> None:
        self._cluster = cluster
        self.known: set[str] = set()
        self.deleted: set[tuple[str, int]] = set()
        self.lost: set[str] = set()
        self._next_s = 0.0
        self._consumer = Consumer(
            {"bootstrap.servers": cluster.bootstrap, "group.id": "embedded-server", "log_level": 0}
        )

    def check(self) -> None:
        if time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + _LOSS_CHECK_EVERY_S
        # A stopped broker does not answer. The next check will get an answer.
        with contextlib.suppress(KafkaException):
            topics = self._consumer.list_topics(timeout=0.2).topics
            new = sum(len(topics[name].partitions) for name in topics.keys() - self.known)
            self._cluster.raise_retention(_RETENTION_BYTES, partitions=new)
            self.known.update(topics)
            for name, topic in topics.items():
                for number in topic.partitions:
                    self._check_partition(name, number)

    def _check_partition(self, topic: str, partition: int) -> None:
        if f"{topic}-{partition}" in self.lost or (topic, partition) in self.deleted:
            return
        first, _ = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=0.2)
        if first > 0:
            self.lost.add(f"{topic}-{partition}")

    def close(self) -> None:
        self._consumer.close()


# -- the process -------------------------------------------------------------------------------------------------------


def main(folder: Path, brokers: int) -> None:
    """Serve requests until no user process is left."""
    with locked(folder / SERVER_LOCK, fcntl.LOCK_EX | fcntl.LOCK_NB) as alone:
        if not alone:
            return
        listener = _listen(folder / SOCKET_NAME)
        requests = _Requests(MockCluster(brokers))
        print("ready", flush=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the parent process stops reading
        try:
            _serve(folder, listener, requests)
        finally:
            (folder / SOCKET_NAME).unlink(missing_ok=True)
            listener.close()
            requests.close()


def _listen(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)  # left by a server that was killed: this process holds the lock now
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen(64)
    listener.settimeout(_TICK_S)
    return listener


def _serve(folder: Path, listener: socket.socket, requests: _Requests) -> None:
    alone_since_s: float | None = None
    while True:
        with contextlib.suppress(TimeoutError):
            connection, _ = listener.accept()
            _serve_one(connection, requests)
        requests.tick()
        with locked(folder / USERS_LOCK, fcntl.LOCK_EX | fcntl.LOCK_NB) as has_no_users:
            pass
        if not has_no_users:
            alone_since_s = None
            continue
        alone_since_s = alone_since_s or time.monotonic()
        if time.monotonic() - alone_since_s > _LINGER_S and _may_stop(folder):
            return


def _may_stop(folder: Path) -> bool:
    """Whether no process uses or joins the cluster. Then removes the socket, so that the next user starts a server."""
    with (
        locked(folder / START_LOCK, fcntl.LOCK_EX | fcntl.LOCK_NB) as no_user_joins,
        locked(folder / USERS_LOCK, fcntl.LOCK_EX | fcntl.LOCK_NB) as no_user_left,
    ):
        if no_user_joins and no_user_left:
            (folder / SOCKET_NAME).unlink(missing_ok=True)
            return True
    return False


def _serve_one(connection: socket.socket, requests: _Requests) -> None:
    connection.settimeout(_REQUEST_TIMEOUT_S)
    with connection, contextlib.suppress(OSError):
        try:
            request = receive(connection)
        except ValueError as error:
            send(connection, {"error": str(error)})
        else:
            send(connection, requests.answer(request))


def _detach() -> None:
    """Detach from the parent process, which can reap its child immediately and never sees a zombie."""
    if os.fork():
        os._exit(0)
    os.setsid()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))


if __name__ == "__main__":
    _detach()
    main(Path(sys.argv[1]), int(sys.argv[2]))
