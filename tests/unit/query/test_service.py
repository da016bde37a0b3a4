"""The query service as a server."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from types import SimpleNamespace

import httpx
import pytest
import uvicorn.protocols.http.auto

from streams_protocol.types import HostInfo
from streams_py import http_connections
from streams_py.query import QueryService


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[QueryService]:
    monkeypatch.setattr(uvicorn.protocols.http.auto, "AutoHTTPProtocol", None)  # there may be one without limits
    hosts = SimpleNamespace(own=HostInfo("127.0.0.1", 1), application_id="app", stores={})
    with QueryService(SimpleNamespace(store_hosts=hosts), port=0) as service:  # type: ignore[arg-type]  # what it uses
        yield service


def test_connections_past_the_limit_are_closed_and_idle_ones_make_room(
    service: QueryService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_connections, "MAX_CONNECTIONS", 2)
    with contextlib.ExitStack() as stack:
        idle = [
            stack.enter_context(socket.create_connection(("127.0.0.1", service.port), timeout=60)) for _ in range(3)
        ]
        assert idle[2].recv(1) == b""  # one too many
        assert [one.recv(1) for one in idle[:2]] == [b"", b""]  # they never asked for anything
        assert httpx.get(f"http://127.0.0.1:{service.port}/stores", trust_env=False).status_code == 200


def test_head_of_a_request_is_no_longer_than_it_may_be_whatever_parser_is_installed(service: QueryService) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{service.port}", timeout=60, trust_env=False) as client:
        assert client.get("/stores").json() == {"stores": {}}
        assert client.get("/stores", headers={"x": "k" * 200_000}).status_code == 400
