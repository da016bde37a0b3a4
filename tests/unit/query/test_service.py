"""The query service as a server."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import httpx
import pytest
import uvicorn.protocols.http.auto

from streams_protocol.types import HostInfo
from streams_py.query import QueryService


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[QueryService]:
    monkeypatch.setattr(uvicorn.protocols.http.auto, "AutoHTTPProtocol", None)  # there may be one without limits
    hosts = SimpleNamespace(own=HostInfo("127.0.0.1", 1), application_id="app", stores={})
    with QueryService(SimpleNamespace(store_hosts=hosts), port=0) as service:  # type: ignore[arg-type]  # what it uses
        yield service


def test_head_of_a_request_is_no_longer_than_it_may_be_whatever_parser_is_installed(service: QueryService) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{service.port}", timeout=60, trust_env=False) as client:
        assert client.get("/stores").json() == {"stores": {}}
        assert client.get("/stores", headers={"x": "k" * 200_000}).status_code == 400
