"""``streams-py connect status`` of workers that require TLS, a certificate and a user, and at a Unix socket."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from streams_py.cli.commands import app
from streams_py.connect.rest.app import rest_app
from streams_py.connect.rest.server import rest_service
from streams_py.connect.settings import WorkerSettings
from tests.support.connect.certificates import Authority
from tests.support.connect.memory_herder import Connector, Group, MemoryHerder, State, Status
from tests.support.connect.settings import NEEDED


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    authority = Authority(tmp_path, "ca")
    for name in ("worker", "user"):
        authority.signed(name)
    users = tmp_path / "users"
    users.write_text("ann = pass-word\n", encoding="utf-8")
    users.chmod(0o600)
    return tmp_path


@pytest.fixture
def port(folder: Path) -> Iterator[int]:
    ssl = "listeners.https.ssl."
    own = WorkerSettings.of(
        {
            **NEEDED,
            "listeners": "https://127.0.0.1:0",
            f"{ssl}keystore.type": "PEM",
            f"{ssl}keystore.location": str(folder / "worker.pem"),
            f"{ssl}truststore.type": "PEM",
            f"{ssl}truststore.location": str(folder / "ca.pem"),
            f"{ssl}client.auth": "required",
            "rest.basic.auth.credentials.file": str(folder / "users"),
        }
    ).rest_protection()
    group = Group(connectors={"c": Connector({"name": "c"}, connector=Status(State.RUNNING, "w1"))})
    server = rest_service(tls=own.server, unix=(str(folder / "s.sock"), 0o600))
    server.start(rest_app(MemoryHerder(group), protection=own))
    yield server.port
    server.stop()


def status(url: str, *more: str) -> Result:
    return CliRunner().invoke(app, ["connect", "status", "--json", *more], env={"CONNECT_URL": url})


def test_status_is_asked_with_a_certificate_and_a_user(port: int, folder: Path) -> None:
    files = ("--ca-location", str(folder / "ca.pem"), "--certificate-location", str(folder / "user.pem"))
    assert '"c"' in status(f"https://ann:pass-word@localhost:{port}", *files).output
    for url, given, said in (
        (f"https://ann:wrong-word@localhost:{port}", files, "401"),
        (f"https://ann:wrong-word@localhost:{port}", files[:2], "no worker answers at"),
        (f"https://ann:wrong-word@localhost:{port}", (), "CERTIFICATE_VERIFY_FAILED"),
        ("https://ann:wrong-word@localhost:1", ("--ca-location", "/none"), "--ca-location or --certificate-location"),
    ):
        result = status(url, *given)
        assert result.exit_code == 2, result.output
        assert said in result.output
        assert "wrong-word" not in result.output


def test_status_is_asked_at_a_unix_socket(port: int, folder: Path) -> None:
    assert '"c"' in status(f"unix:{folder / 's.sock'}").output
    assert status(f"unix:{folder / 'none.sock'}").exit_code == 2
