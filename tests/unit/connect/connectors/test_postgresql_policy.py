"""What a connection string of the PostgreSQL connectors can make the worker read, write and send."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

psycopg = pytest.importorskip("psycopg", reason="PostgreSQL connectors need psycopg")

from streams_py.connect.connectors.postgresql import connect  # noqa: E402
from streams_py.connect.connectors.postgresql_sink import PostgresqlSinkSettings  # noqa: E402
from streams_py.connect.policy.classes import Plugins  # noqa: E402
from streams_py.connect.policy.limits import AllowedPaths, OverridePolicy  # noqa: E402
from streams_py.connect.policy.providers import ConfigProviders  # noqa: E402
from streams_py.connect.policy.worker_policy import WorkerPolicy  # noqa: E402
from streams_py.errors import ConfigError, ConnectorError  # noqa: E402

MODULES = "streams_py.connect.connectors"
SINK = {
    "name": "x", "connector.class": f"{MODULES}.postgresql_sink:PostgresqlSinkConnector",
    "task.class": f"{MODULES}.postgresql_sink:PostgresqlSinkTask", "topics": "t", "table": "t", "key.columns": "id",
}  # fmt: skip
SOURCE = {
    "name": "x", "connector.class": f"{MODULES}.postgresql_source:PostgresqlSourceConnector",
    "task.class": f"{MODULES}.postgresql_source:PostgresqlSourceTask", "topic": "t", "table": "t",
    "incrementing.column": "id",
}  # fmt: skip
GOOD = "host=db.example user=u dbname=d"
SECRET = "secret-of-the-worker"


def problems(config: dict[str, str], *folders: str) -> list[str]:
    plugins = Plugins((), AllowedPaths(folders))
    return WorkerPolicy(plugins, OverridePolicy("None"), ConfigProviders.of({})).problems(config)


@pytest.fixture(name="asked")
def _asked() -> Iterator[tuple[int, list[bytes]]]:
    """A server that asks for the password in clear text: its port, and the messages that answered it."""
    answers: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):  # shut down by a test that never connected
                answer(server.accept()[0])

        def answer(connection: socket.socket) -> None:
            with connection:
                while connection.recv(4096)[4:8] in (b"\x04\xd2\x16\x2f", b"\x04\xd2\x16\x30"):
                    connection.sendall(b"N")  # neither TLS nor GSS
                connection.sendall(b"R" + struct.pack(">ii", 8, 3))
                answers.append(connection.recv(4096))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1], answers
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def settings(**more: str) -> Any:
    return PostgresqlSinkSettings.of({**SINK, **more})


@pytest.mark.parametrize("config", [SINK, SOURCE], ids=["sink", "source"])
@pytest.mark.parametrize("form", ["words", "url"])
@pytest.mark.parametrize(
    "name",
    ["hostaddr", "passfile", "service", "sslkeylogfile", "sslcrl", "sslcrldir", "requirepeer", "gsslib", "krbsrvname",
     "replication", "sslrootcert", "sslcert", "sslkey"],
)  # fmt: skip
def test_other_parameters_of_a_connection_string_are_refused(config: dict[str, str], form: str, name: str) -> None:
    url = f"{GOOD} {name}=/etc/x" if form == "words" else f"postgresql://u@db.example/d?{name}=/etc/x"
    try:
        psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.Error:
        refused = r"connection\.url: is not a PostgreSQL connection string"  # an older libpq does not know it
    else:
        refused = rf"connection\.url: may not contain {name}\b"
    with pytest.raises(ConfigError, match=refused):
        raise ConfigError(*problems({**config, "connection.url": url}))


@pytest.mark.parametrize(
    "url",
    ["user=u dbname=d", "host=/var/run/postgresql", "host=db.example,/var/run/postgresql", "host=db.example,",
     "host='' user=u", "postgresql:///d", "postgresql://u@%2Fvar%2Frun/d", "postgresql://u@/d?host=/var/run",
     "host=@abstract"],
)  # fmt: skip
def test_unix_sockets_of_the_worker_are_refused(url: str) -> None:
    said = problems({**SINK, "connection.url": url})
    assert len(said) == 1
    assert said[0].startswith("connection.url: ")
    assert "host" in said[0]


@pytest.mark.parametrize(
    "url",
    [GOOD, "postgresql://u:p@one,two:5433/d?target_session_attrs=read-write&sslmode=require",
     f"{GOOD} sslmode=verify-full sslrootcert=system keepalives_idle=30 application_name=a connect_timeout=3"],
)  # fmt: skip
def test_usual_connection_strings_are_accepted(url: str) -> None:
    for config in (SINK, SOURCE):
        assert problems({**config, "connection.url": url}) == []


def test_values_of_a_connection_string_replace_defaults() -> None:
    parts = psycopg.conninfo.conninfo_to_dict(
        settings(**{"connection.url": f"{GOOD} connect_timeout=3 application_name=a"}).conninfo()
    )
    assert (parts["connect_timeout"], parts["application_name"]) == ("3", "a")
    parts = psycopg.conninfo.conninfo_to_dict(settings(**{"connection.url": GOOD}).conninfo())
    assert (parts["connect_timeout"], parts["application_name"]) == ("10", "streams-py-connect")


@pytest.mark.parametrize("config", [SINK, SOURCE], ids=["sink", "source"])
@pytest.mark.parametrize("name", ["sslrootcert", "sslcert", "sslkey"])
def test_tls_files_are_below_allowed_folders(config: dict[str, str], name: str, tmp_path: Path) -> None:
    key, inside = f"connection.{name}", str(tmp_path / "file.pem")
    config = {**config, "connection.url": GOOD}
    assert problems({**config, key: inside}, str(tmp_path)) == []
    for path in (inside, "/etc/passwd"):
        said = problems({**config, key: path}, str(tmp_path / "other"))
        assert len(said) == 1
        assert said[0].startswith(f"{key} = {path!r} is not below a folder of file.connectors.allowed.paths")
        with pytest.raises(ConfigError, match=rf"connection\.{name} = "):
            Plugins((), AllowedPaths(())).task({**config, key: path})


def test_tls_files_reach_libpq(tmp_path: Path) -> None:
    files = {name: str(tmp_path / name) for name in ("sslrootcert", "sslcert", "sslkey")}
    keys = {f"connection.{name}": path for name, path in files.items()}
    parts = psycopg.conninfo.conninfo_to_dict(settings(**{"connection.url": GOOD}, **keys).conninfo())
    assert {name: parts[name] for name in files} == files


def test_key_of_an_openssl_engine_is_refused(tmp_path: Path) -> None:
    said = problems({**SINK, "connection.url": GOOD, "connection.sslkey": f"{tmp_path}/engine:key"}, str(tmp_path))
    assert len(said) == 1
    assert said[0].startswith("connection.sslkey: ")


@pytest.mark.parametrize("source", ["PGPASSFILE", "HOME", "PGPASSWORD"])
def test_passwords_of_the_worker_are_sent_to_nobody(
    asked: tuple[int, list[bytes]], source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, answers = asked
    for name in ("PGPASSFILE", "PGPASSWORD"):
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / ".pgpass"
    file.write_text(f"*:*:*:*:{SECRET}\n")
    file.chmod(0o600)
    values = {"PGPASSFILE": str(file), "HOME": str(tmp_path), "PGPASSWORD": SECRET}
    monkeypatch.setenv(source, values[source])
    with pytest.raises(psycopg.OperationalError, match="no password supplied"):
        connect(settings(**{"connection.url": f"host=localhost port={port} user=u dbname=d"}))
    assert all(SECRET.encode() not in answer for answer in answers)


def test_password_of_the_configuration_is_sent(asked: tuple[int, list[bytes]], monkeypatch: pytest.MonkeyPatch) -> None:
    port, answers = asked
    monkeypatch.setenv("PGPASSWORD", SECRET)
    with pytest.raises(psycopg.OperationalError):
        connect(settings(**{"connection.url": f"host=127.0.0.1 port={port} user=u", "connection.password": "own"}))
    assert answers == [b"p\x00\x00\x00\x08own\x00"]


def test_address_of_the_environment_is_not_used(
    asked: tuple[int, list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    port, answers = asked
    monkeypatch.setenv("PGHOSTADDR", "192.0.2.1")
    monkeypatch.setenv("PGHOST", "192.0.2.1")
    for host in ("127.0.0.1", "localhost"):
        parts = psycopg.conninfo.conninfo_to_dict(settings(**{"connection.url": f"host={host}"}).conninfo())
        assert parts["hostaddr"] == ""
    with pytest.raises(psycopg.OperationalError):
        connect(settings(**{"connection.url": f"host=localhost port={port} user=u password=own"}))
    assert answers == [b"p\x00\x00\x00\x08own\x00"]


def test_client_certificate_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PGSSLCERT", str(tmp_path))
    monkeypatch.setenv("PGSSLKEY", str(tmp_path))
    parts = psycopg.conninfo.conninfo_to_dict(settings(**{"connection.url": GOOD}).conninfo())
    for name in ("sslcert", "sslkey", "passfile"):
        assert parts[name]
        assert not Path(parts[name]).exists()


def test_service_of_the_environment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGSERVICE", "of-the-worker")
    with pytest.raises(ConnectorError, match=r"connection\.url: .*PGSERVICE.*start the worker without it"):
        connect(settings(**{"connection.url": GOOD}))
