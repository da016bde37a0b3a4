"""The proxy in front of a cluster: clients keep using it, and it injects the requested faults."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from kafka.protocol.admin import DescribeClusterResponse
from kafka.protocol.metadata import FindCoordinatorResponse, MetadataResponse

from streams_py.testing.torture.proxy import Proxy

ECHO = 18
"""API key of a request whose answer contains no broker address."""


class OneBroker:
    """Answers as a broker that advertises ``advertised``; echoes requests of other kinds."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.advertised = [("127.0.0.1", self.port)]
        self.heard: list[bytes] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                one, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(one,), daemon=True).start()

    def _serve(self, one: socket.socket) -> None:
        with one:
            while (frame := receive(one)) is not None:
                self.heard.append(frame)
                kind, version, number = struct.unpack_from(">hhi", frame)
                send(one, self._answer(kind, version, number, frame[8:]))

    def _answer(self, kind: int, version: int, number: int, rest: bytes) -> bytes:
        if kind == MetadataResponse.API_KEY:
            part = MetadataResponse.MetadataResponseBroker
            brokers = [part(node_id=i, host=host, port=port) for i, (host, port) in enumerate(self.advertised)]
            return encoded(MetadataResponse(brokers=brokers, version=version, topics=[]), version, number)
        if kind == DescribeClusterResponse.API_KEY:
            node = DescribeClusterResponse.DescribeClusterBroker
            nodes = [node(broker_id=i, host=host, port=port) for i, (host, port) in enumerate(self.advertised)]
            return encoded(DescribeClusterResponse(brokers=nodes, version=version), version, number)
        if kind == FindCoordinatorResponse.API_KEY:
            host, port = self.advertised[0]
            if version < 4:
                found = FindCoordinatorResponse(node_id=1, host=host, port=port, version=version)
            else:
                one = FindCoordinatorResponse.Coordinator(key="g", node_id=1, host=host, port=port)
                found = FindCoordinatorResponse(coordinators=[one], version=version)
            return encoded(found, version, number)
        return struct.pack(">i", number) + rest

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # otherwise the accepting thread keeps it open
        self._socket.close()


def encoded(answer: Any, version: int, number: int) -> bytes:
    tags = b"\0" if answer.flexible_version_q(version) else b""
    return struct.pack(">i", number) + tags + bytes(answer.encode(version=version))


def send(to: socket.socket, frame: bytes) -> None:
    to.sendall(struct.pack(">i", len(frame)) + frame)


def receive(one: socket.socket) -> bytes | None:
    """Receive a frame; return None if the other side has closed."""
    length = _exactly(one, 4)
    return None if length is None else _exactly(one, int.from_bytes(length, "big"))


def _exactly(one: socket.socket, count: int) -> bytes | None:
    data = b""
    while len(data) < count:
        try:
            more = one.recv(count - len(data))
        except ConnectionError:
            return None
        if not more:
            return None
        data += more
    return data


def ask(port: int, kind: int, version: int = 0, rest: bytes = b"") -> bytes:
    with socket.create_connection(("127.0.0.1", port)) as client:
        send(client, struct.pack(">hhi", kind, version, 77) + rest)
        answer = receive(client)
    assert answer is not None
    return answer


@pytest.fixture
def broker() -> Iterator[OneBroker]:
    made = OneBroker()
    yield made
    made.close()


@pytest.fixture
def proxy(broker: OneBroker) -> Iterator[Proxy]:
    made = Proxy(f"127.0.0.1:{broker.port}")
    yield made
    made.close()


def port_of(proxy: Proxy) -> int:
    return int(proxy.bootstrap.rpartition(":")[2])


@pytest.mark.parametrize("version", range(MetadataResponse.max_version + 1))
def test_metadata_leads_to_a_proxy_for_each_broker(broker: OneBroker, proxy: Proxy, version: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        broker.advertised.append(other.getsockname())
        answer = ask(port_of(proxy), MetadataResponse.API_KEY, version)
        brokers = MetadataResponse.decode(answer, version=version, header=True).brokers
        assert (brokers[0].host, brokers[0].port) == ("127.0.0.1", port_of(proxy))
        assert brokers[1].port not in (port_of(proxy), other.getsockname()[1])
        with socket.create_connection(("127.0.0.1", brokers[1].port)) as client:
            send(client, b"a request")
            reached, _ = other.accept()
            with reached:
                assert receive(reached) == b"a request"


@pytest.mark.parametrize("version", range(FindCoordinatorResponse.max_version + 1))
def test_coordinator_is_found_behind_the_proxy(broker: OneBroker, proxy: Proxy, version: int) -> None:
    answer = ask(port_of(proxy), FindCoordinatorResponse.API_KEY, version)
    found = FindCoordinatorResponse.decode(answer, version=version, header=True)
    assert (found if version < 4 else found.coordinators[0]).port == port_of(proxy)


def test_coordinator_that_is_not_known_stays_so(broker: OneBroker, proxy: Proxy) -> None:
    broker.advertised = [("", -1)]
    answer = ask(port_of(proxy), FindCoordinatorResponse.API_KEY, 2)
    assert FindCoordinatorResponse.decode(answer, version=2, header=True).port == -1


@pytest.mark.parametrize("version", range(DescribeClusterResponse.max_version + 1))
def test_description_of_the_cluster_names_proxies(broker: OneBroker, proxy: Proxy, version: int) -> None:
    answer = ask(port_of(proxy), DescribeClusterResponse.API_KEY, version)
    (found,) = DescribeClusterResponse.decode(answer, version=version, header=True).brokers
    assert found.port == port_of(proxy)


def test_everything_else_passes_as_it_is(broker: OneBroker, proxy: Proxy) -> None:
    rest = bytes(range(256)) * 400
    assert ask(port_of(proxy), ECHO, rest=rest) == struct.pack(">i", 77) + rest
    assert broker.heard == [struct.pack(">hhi", ECHO, 0, 77) + rest]


def test_last_request_arrives_although_the_client_ends_immediately(broker: OneBroker, proxy: Proxy) -> None:
    proxy.delay(0.2)
    with socket.create_connection(("127.0.0.1", port_of(proxy))) as client:
        send(client, struct.pack(">hhi", ECHO, 0, 1))
    until_s = time.monotonic() + 20
    while not broker.heard and time.monotonic() < until_s:
        time.sleep(0.01)
    assert len(broker.heard) == 1


def test_cut_connection_ends_and_the_next_one_is_served(broker: OneBroker, proxy: Proxy) -> None:
    with socket.create_connection(("127.0.0.1", port_of(proxy))) as client:
        send(client, struct.pack(">hhi", ECHO, 0, 1))
        assert receive(client) is not None
        assert proxy.cut() == 1
        assert receive(client) is None
    assert ask(port_of(proxy), ECHO)


def test_connection_to_a_broker_that_is_away_ends(broker: OneBroker, proxy: Proxy) -> None:
    broker.close()
    with socket.create_connection(("127.0.0.1", port_of(proxy))) as client:
        assert receive(client) is None


def test_delay_holds_everything_up_and_keeps_its_order(broker: OneBroker, proxy: Proxy) -> None:
    proxy.delay(0.25)
    with socket.create_connection(("127.0.0.1", port_of(proxy))) as client:
        began_s = time.monotonic()
        for number in range(5):
            send(client, struct.pack(">hhi", ECHO, 0, number))
        until_s = time.monotonic() + 20
        while len(broker.heard) < 5 and time.monotonic() < until_s:
            time.sleep(0.01)
        assert time.monotonic() - began_s >= 0.25
        assert [struct.unpack_from(">hhi", frame)[2] for frame in broker.heard] == list(range(5))


def test_stalled_connection_neither_ends_nor_brings_anything(broker: OneBroker, proxy: Proxy) -> None:
    with socket.create_connection(("127.0.0.1", port_of(proxy))) as client:
        proxy.stall(True)
        send(client, struct.pack(">hhi", ECHO, 0, 1))
        client.settimeout(0.3)
        with pytest.raises(TimeoutError):
            client.recv(1)
        assert broker.heard == []
        proxy.stall(False)
        client.settimeout(20)
        assert receive(client) is not None
