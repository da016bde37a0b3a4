"""kafka-python's network thread: callers that wait for a failed task get an error."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from kafka import errors as kafka_errors
from kafka.net.compat import KafkaNetClient
from kafka.protocol.metadata import ApiVersionsRequest

from streams_py.adapters.kafka_python.network import close_with_dead_tasks, revive_refresh
from tests.support.waiting import until


@pytest.fixture
def client() -> Iterator[Any]:
    """A client of a broker that accepts connections and answers every request with four bytes."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        made = KafkaNetClient(
            bootstrap_servers=f"127.0.0.1:{server.getsockname()[1]}", api_version=(2, 0), request_timeout_ms=600_000
        )

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"\0\0\0\4\0\0\0\1")
                while connection.recv(4096):
                    pass

        threading.Thread(target=serve, daemon=True).start()
        close_with_dead_tasks(made)
        net = made._net  # a consumer starts it, which would need a broker
        net.start()
        yield made
        net.stop(timeout_ms=5_000)


@pytest.mark.parametrize("problem", [ReferenceError("weak"), IndexError(), ValueError("decoder")])
def test_connection_whose_answer_cannot_be_read_is_closed_and_its_callers_fail(client: Any, problem: Exception) -> None:
    manager = client._manager  # it has no public name
    [broker] = client.cluster.bootstrap_brokers()

    def explode(data: bytes) -> None:
        raise problem

    def send() -> Any:
        connection = manager.get_connection(broker.node_id)
        connection.data_received = explode
        return connection.send_request(ApiVersionsRequest(version=0))

    waiting = client._net.call_soon_with_future(send)  # connections belong to that thread
    until(lambda: waiting.is_done, "the caller gets an error, long before its request times out")
    assert isinstance(waiting.exception, kafka_errors.KafkaConnectionError)
    assert type(problem).__name__ in str(waiting.exception)


def test_refreshing_of_metadata_is_started_again_when_an_error_has_ended_it(client: Any) -> None:
    cluster = client.cluster
    tried: list[int] = []

    async def loop() -> None:
        tried.append(1)
        raise kafka_errors.KafkaConnectionError("another caller's refresh failed")

    cluster._refresh_loop = loop  # the loop of the library, which an error ends
    revive_refresh(client)
    assert tried == [], "a loop that was never started is not revived"
    client._net.call_soon_threadsafe(cluster.start_refresh_loop)  # it belongs to that thread
    # The library does not say that the loop has ended.
    until(lambda: cluster._refresh_loop_future is not None and cluster._refresh_loop_future.is_done, "its end")
    revive_refresh(client)
    until(lambda: len(tried) == 2, "another start")
