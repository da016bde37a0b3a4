"""The embedded cluster's calls while its server process dies under them: the truth, or "ask again"."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent import ConfluentClients, EmbeddedCluster

# The protocol with the process of a cluster is of no use to users.
from streams_py.adapters.confluent.embedded.cluster import EmbeddedAdmin, _ask, _folder, _is_running
from streams_py.adapters.confluent.embedded.server import SOCKET_NAME
from streams_py.config.streams_config import StreamsConfig
from streams_py.errors import BrokerUnavailableError, StreamsError
from streams_py.ports import Admin, AdminError, AdminErrorKind, TopicSpec
from tests.support.waiting import until

_numbers = itertools.count()
HERE = TopicPartition("there", 0)


class Victim:
    """A separate cluster with one topic, and its admin client."""

    def __init__(self) -> None:
        self.name = f"dying-{os.getpid()}-{next(_numbers)}"
        keys = {"bootstrap.servers": f"embedded://{self.name}", "admin.default.api.timeout.ms": 500}
        self.clients = ConfluentClients(StreamsConfig.of({"application.id": "dying", **keys}))
        assert self.clients.embedded is not None
        self.cluster = self.clients.embedded
        self.pid: int = self.cluster._do("info")["pid"]  # users have no use for it
        self.cluster.create_topic(HERE.topic, 1)
        self.is_killed = False
        self.admin = self.clients.admin()
        assert isinstance(self.admin, EmbeddedAdmin)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self.is_killed = True
        until(lambda: not _is_running(_folder(self.name)), "the server is killed")

    def close(self) -> None:
        self.admin.close()
        self.clients.close()


@pytest.fixture
def victim() -> Iterator[Victim]:
    made = Victim()
    yield made
    if not made.is_killed:
        made.kill()
    made.close()


def described(admin: Admin) -> object:
    found = admin.describe_topics([HERE.topic])[HERE.topic]
    return found if isinstance(found, AdminError) else len(found)


CALLS: dict[str, tuple[Callable[[Admin], object], object]] = {
    "describe": (described, 1),
    "create": (lambda admin: admin.create_topics([TopicSpec("made", 1)])["made"], None),
    "end-offsets": (lambda admin: admin.list_offsets([HERE])[HERE], 0),
    "committed": (lambda admin: admin.committed_offsets("g", [HERE])[HERE], None),
    "all-topics": (lambda admin: HERE.topic in admin.describe_topics(), True),
    "delete": (lambda admin: admin.delete_records({HERE: 0}), None),
}
ALWAYS = {"describe", "create"}


@pytest.mark.parametrize(
    ("call", "truth"),
    [pytest.param(*row, id=name, marks=() if name in ALWAYS else pytest.mark.weekly) for name, row in CALLS.items()],
)
def test_call_gives_the_truth_or_asks_to_be_repeated_when_the_server_dies_under_it(
    victim: Victim, call: Callable[[Admin], object], truth: object
) -> None:
    os.kill(victim.pid, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as asking:
        answer = asking.submit(call, victim.admin)
        until(lambda: answer.running() or answer.done(), "the call is made")
        victim.kill()
        for given in (answer.result, lambda: call(victim.admin)):  # while it dies, and when it is dead
            try:
                found = given()
            except StreamsError as error:
                if not error.retriable:
                    raise
                continue
            if isinstance(found, AdminError):
                assert found.kind is AdminErrorKind.TIMED_OUT
            else:
                assert found == truth


def test_server_that_took_the_place_of_a_killed_one_is_not_taken_for_it(victim: Victim) -> None:
    victim.kill()
    with EmbeddedCluster.join(victim.name) as other:
        assert other.id != victim.cluster.id
        with pytest.raises(StreamsError, match="was stopped and its data is lost"):
            victim.admin.create_topics([TopicSpec("stray", 1)])
        other.create_topic("stray", 1)  # no request has created it before
        with pytest.raises(StreamsError, match="was stopped and its data is lost"):
            victim.cluster.lost()


ANSWER = json.dumps({"result": [0, 36]}).encode()
WHOLE = struct.pack(">I", len(ANSWER)) + ANSWER


@pytest.mark.parametrize("after_bytes", range(len(WHOLE)))
def test_answer_that_is_cut_is_none(tmp_path: Path, after_bytes: int) -> None:
    with Answering(tmp_path, WHOLE[:after_bytes]), pytest.raises(BrokerUnavailableError, match="does not answer"):
        _ask(tmp_path, {"do": "info"})


@pytest.mark.parametrize("content", [b"{}", b"[]", b"null", b"\xff\xfe", b'{"results": 1}', b'{"result": 1'])
def test_answer_that_says_nothing_is_none(tmp_path: Path, content: bytes) -> None:
    whole = struct.pack(">I", len(content)) + content
    with Answering(tmp_path, whole), pytest.raises(BrokerUnavailableError, match="does not answer"):
        _ask(tmp_path, {"do": "info"})


class Answering:
    """A server that gives these bytes to the first who asks, and dies."""

    def __init__(self, folder: Path, content: bytes) -> None:
        self._content = content
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(os.path.relpath(folder / SOCKET_NAME))
        self._listener.listen(1)
        self._thread = threading.Thread(target=self._serve)

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            connection.recv(65_536)
            connection.sendall(self._content)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._thread.join(60)
        self._listener.close()
