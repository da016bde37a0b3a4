"""Readiness of a broker is decided from two small answers."""

from __future__ import annotations

import socket
import struct
import threading

import pytest

from streams_py.testing.broker.interface import NoBrokerError
from streams_py.testing.broker.readiness import is_ready, wait_until_ready


class FakeBroker:
    """Answers Metadata v1 with a number of brokers, and FindCoordinator v1 with an error code."""

    def __init__(self, *, brokers: int, coordinator_error: int) -> None:
        self._brokers, self._error = brokers, coordinator_error
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            with connection:
                request = connection.recv(1000)
                (key,) = struct.unpack_from(">h", request, 4)
                body = struct.pack(">i", self._brokers) if key == 3 else struct.pack(">ih", 0, self._error)
                connection.sendall(struct.pack(">ii", 4 + len(body), 1) + body)

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join(60)


@pytest.fixture
def fake():
    made = []

    def start(brokers=1, coordinator_error=0):
        made.append(FakeBroker(brokers=brokers, coordinator_error=coordinator_error))
        return made[-1].address

    yield start
    for broker in made:
        broker.close()


def test_ready_when_all_brokers_are_seen_and_coordinators_answer(fake):
    assert is_ready(fake(brokers=3), nodes=3)


def test_not_ready_when_a_broker_is_missing(fake):
    assert not is_ready(fake(brokers=2), nodes=3)


def test_not_ready_when_a_coordinator_is_not_available(fake):
    assert not is_ready(fake(coordinator_error=15), nodes=1)


def test_not_ready_when_nobody_listens():
    assert not is_ready("127.0.0.1:1", nodes=1)


def test_waiting_ends_with_the_addresses_that_are_not_ready(fake):
    with pytest.raises(NoBrokerError, match=r"^127\.0\.0\.1:1 not ready after 0 s"):
        wait_until_ready([fake(), "127.0.0.1:1"], nodes=1, timeout_ms=0)


def test_waiting_ends_when_a_process_has_died():
    def dead() -> None:
        raise NoBrokerError("node 1 ended with 1")

    with pytest.raises(NoBrokerError, match="node 1 ended"):
        wait_until_ready(["127.0.0.1:1"], nodes=1, timeout_ms=60_000, check_alive=dead)
