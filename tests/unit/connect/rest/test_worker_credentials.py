"""A member of the group names the addresses of workers, and must not collect credentials in this way."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from streams_py.connect.errors import ConnectError, NotLeaderError
from streams_py.connect.rest.authentication import KEY
from streams_py.connect.rest.forwarding import OtherWorkers
from streams_py.connect.rest.protection import RestProtection
from streams_py.connect.rest.tasks import TaskConfigSender
from streams_py.connect.settings import WorkerSettings
from tests.support.connect.settings import KEY as SESSION_KEY
from tests.support.connect.settings import NEEDED


@pytest.fixture
def users(tmp_path: Path) -> str:
    file = tmp_path / "users.properties"
    file.write_text("ann = pass-word\n", encoding="utf-8")
    file.chmod(0o600)
    return str(file)


def protection(given: Mapping[str, str]) -> RestProtection:
    return WorkerSettings.of({**NEEDED, **given}).rest_protection()


def recording(sent: list[httpx.Request]) -> httpx.MockTransport:
    """A transport that answers each request, and adds it to a list."""

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(200, json={})

    return httpx.MockTransport(answer)


def forwarded(own: RestProtection, url: str, headers: Mapping[str, str]) -> list[httpx.Request]:
    """Forward a request to the worker at a URL. Returns what was sent."""
    sent: list[httpx.Request] = []

    async def forward() -> None:
        workers = OtherWorkers(own, recording(sent))

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        scope = {"type": "http", "method": "GET", "raw_path": b"/connectors", "query_string": b"", "headers": raw}
        try:
            await workers.forward(Request(scope, receive), NotLeaderError("not here", url), 60)
        finally:
            await workers.close()

    asyncio.run(forward())
    return sent


STRANGE = [
    "http://evil:8083/",
    "HTTP://evil:8083/",
    "http://localhost@evil:8083/",
    "http://localhost.evil/",
    "http://127.0.0.1.evil/",
    "http://127.0.0.1@evil/",
    "http://known@evil/",
    "http://known.evil/",
    "http://192.0.2.1/",
    "http://[2001:db8::1]:8083/",
    "http://evil#@known/",
    "http://evil?@known/",
    "http://kno\twn@evil/",
    "http://[::1",
    "//evil/",
    "evil",
    "ftp://evil/",
    "",
]


@pytest.mark.parametrize("names", ["known", "*", ""])
@pytest.mark.parametrize("url", STRANGE)
@pytest.mark.parametrize("has_users", [True, False])
def test_credentials_are_not_sent_in_clear_text_to_an_address_that_a_member_names(
    users: str, names: str, url: str, has_users: bool
) -> None:
    """Neither the worker's own credentials nor the caller's."""
    given = {"rest.accepted.names": names} | ({KEY: users} if has_users else {})
    headers = {} if has_users else {"Authorization": "Basic abc"}
    with pytest.raises(ConnectError):
        forwarded(protection(given), url, headers)
    if has_users:
        sent: list[httpx.Request] = []
        transport = recording(sent)
        sender = TaskConfigSender(protection=protection(given), transport=transport)
        with pytest.raises(ConnectError):
            sender.send(url, "c", [], None)
        sender.close()
        assert sent == []


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8083/",
        "http://localhost/",
        "http://[::1]:1/",
        "http://known:1/",
        "http://KNOWN/",
        "https://evil/",
    ],
)
def test_credentials_are_sent_to_https_loopback_and_accepted_hosts(users: str, url: str) -> None:
    (sent,) = forwarded(protection({KEY: users, "rest.accepted.names": "Known"}), url, {})
    assert sent.headers["authorization"].startswith("Basic ")


def test_requests_without_credentials_may_go_to_any_worker(users: str) -> None:
    (sent,) = forwarded(protection({}), "http://worker-2:8083/", {})
    assert "authorization" not in sent.headers
    seen: list[httpx.Request] = []
    transport = recording(seen)
    sender = TaskConfigSender(protection=protection({KEY: users}), transport=transport)
    sender.send("http://worker-2:8083/", "c", [], SESSION_KEY)  # signed, so it has no credentials
    sender.close()
    assert len(seen) == 1
    assert "authorization" not in seen[0].headers


def test_refused_target_is_named_with_the_remedy(users: str) -> None:
    with pytest.raises(ConnectError, match=r"http://evil:8083.*https on all workers.*rest\.accepted\.names"):
        forwarded(protection({KEY: users}), "http://evil:8083/", {})
