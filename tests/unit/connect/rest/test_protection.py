"""Who may use the REST interface of a worker: users with a password, callers with a certificate, a Unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import stat
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from streams_py.connect.errors import ConnectError
from streams_py.connect.rest.app import rest_app
from streams_py.connect.rest.authentication import KEY, Credentials
from streams_py.connect.rest.protection import RestProtection
from streams_py.connect.rest.server import rest_service
from streams_py.connect.rest.signing import sign
from streams_py.connect.rest.tasks import TaskConfigSender
from streams_py.connect.settings import WorkerSettings
from streams_py.errors import ConfigError
from streams_py.http import tls_gate
from streams_py.http.service import HttpService
from tests.support.connect.certificates import Authority
from tests.support.connect.memory_herder import Connector, Group, Key, MemoryHerder
from tests.support.connect.settings import CONFIG, NEEDED
from tests.support.connect.settings import KEY as SESSION_KEY
from tests.support.waiting import until

USER = ("ann", "pass-word")


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pki")
    ours, theirs = Authority(folder, "ours"), Authority(folder, "theirs")
    return {
        "ca": ours.certificate,
        "worker": ours.signed("worker"),
        "user": ours.signed("user"),
        "stranger": theirs.signed("stranger"),
    }


@pytest.fixture
def users(tmp_path: Path) -> str:
    file = tmp_path / "users.properties"
    file.write_text("ann = pass-word\nbob = other-word\n", encoding="utf-8")
    file.chmod(0o600)
    return str(file)


def tls(pki: Mapping[str, Path], **more: str) -> dict[str, str]:
    given = {
        "ssl.keystore.type": "PEM", "ssl.keystore.location": str(pki["worker"]),
        "ssl.truststore.type": "PEM", "ssl.truststore.location": str(pki["ca"]), **more,
    }  # fmt: skip
    return {f"listeners.https.{key}": value for key, value in given.items()}


def protection(given: Mapping[str, str]) -> RestProtection:
    return WorkerSettings.of({**NEEDED, **given}).rest_protection()


@pytest.fixture
def serve() -> Iterator[Callable[..., HttpService]]:
    with contextlib.ExitStack() as stack:

        def start(herder: MemoryHerder, own: RestProtection, **where: Any) -> HttpService:
            server = rest_service(tls=own.server, **where)
            stack.callback(server.stop)
            server.start(rest_app(herder, rebalance_s=0.3, protection=own))
            return server

        yield start


@pytest.fixture
def group() -> Group:
    return Group(connectors={"c": Connector(dict(CONFIG), tasks=[{"n": "0"}])}, key=Key(SESSION_KEY))


@pytest.fixture
def client(pki: Mapping[str, Path], serve: Callable[..., HttpService]) -> Iterator[Callable[..., httpx.Client]]:
    """Makes clients."""
    with contextlib.ExitStack() as stack:

        def make(identity: str | None = None) -> httpx.Client:
            context = ssl.create_default_context(cafile=str(pki["ca"]))
            if identity is not None:
                context.load_cert_chain(pki[identity])
            return stack.enter_context(httpx.Client(verify=context, trust_env=False, timeout=60))

        yield make


# -- basic authentication ----------------------------------------------------------------------------------------------


def test_only_users_of_the_file_may_use_the_interface(
    users: str, group: Group, serve: Callable[..., HttpService]
) -> None:
    server = serve(MemoryHerder(group), protection({KEY: users}))
    url = f"http://127.0.0.1:{server.port}"

    def status(method: str, path: str, auth: tuple[str, str] | None, **more: Any) -> int:
        return httpx.request(method, url + path, auth=auth, trust_env=False, timeout=60, **more).status_code

    for path in (
        "/",
        "/health",
        "/connectors",
        "/connectors/c/config",
        "/connectors/c/tasks",
        "/openapi.json",
        "/none",
    ):
        for wrong in (None, ("ann", "other-word"), ("ann", ""), ("carl", "pass-word"), ("", "")):
            assert status("GET", path, wrong) == 401, (path, wrong)
    assert status("GET", "/connectors", USER) == 200
    assert status("GET", "/connectors", ("bob", "other-word")) == 200
    for scheme in ("Bearer YW5uOnBhc3Mtd29yZA==", "Basic", "Basic ===", "basic \xe9"):
        assert status("GET", "/connectors", None, headers={"Authorization": scheme.encode("latin-1")}) == 401
    refused = httpx.get(f"{url}/connectors", trust_env=False, timeout=60)
    assert refused.headers["WWW-Authenticate"].startswith("Basic ")
    assert refused.json()["error_code"] == 401


@pytest.mark.parametrize("signs", [True, False])
def test_task_configurations_need_a_signature_or_a_user(
    signs: bool, users: str, group: Group, serve: Callable[..., HttpService]
) -> None:
    group.signs = signs
    own = protection({KEY: users})
    server = serve(MemoryHerder(group), own)
    url, body = f"http://127.0.0.1:{server.port}", b'[{"n": "9"}]'

    def post(headers: Mapping[str, str], auth: tuple[str, str] | None = None) -> int:
        headers = {"Content-Type": "application/json", **headers}
        return httpx.post(
            f"{url}/connectors/c/tasks", content=body, headers=headers, auth=auth, trust_env=False, timeout=60
        ).status_code

    forged = sign(SESSION_KEY[::-1].replace("=", "A"), body)
    assert post({}) == 401
    assert post(forged) == (403 if signs else 401)
    assert post(forged, USER) == 403, "a signature is always verified"
    assert post({}, USER) == (400 if signs else 204)
    TaskConfigSender(protection=own).send(url, "c", [{"n": "3"}], SESSION_KEY if signs else None)
    assert group.connectors["c"].tasks == [{"n": "3"}]
    with pytest.raises(ConnectError, match="answered 401"):
        TaskConfigSender().send(url, "c", [{"n": "4"}], None)


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [
        ("ann = pass-word", 0o644, "has mode 0644, so other users can read it; use chmod 600"),
        ("ann = pass-word", 0o620, "has mode 0620"),
        ("", 0o600, "must contain lines user = password"),
        ("ann =", 0o600, "must contain lines user = password"),
        ("a\\:n : pass-word\nx:y = pass-word\n", 0o600, None),
        (None, 0o600, "cannot be read: No such file"),
    ],
)
def test_file_with_credentials_that_others_could_read_or_that_has_none_ends_the_start(
    content: str | None, mode: int, said: str | None, tmp_path: Path
) -> None:
    file = tmp_path / "users"
    if content is not None:
        file.write_text(content, encoding="utf-8")
        file.chmod(mode)
    if said is None:
        Credentials.read(str(file))
        return
    with pytest.raises(ConfigError, match=said) as caught:
        protection({KEY: str(file)})
    assert caught.value.key == KEY
    assert "pass-word" not in str(caught.value)


def test_credentials_are_in_no_text(users: str) -> None:
    own = protection({KEY: users})
    assert "pass-word" not in repr(own) + repr(own.credentials) + repr(WorkerSettings.of({**NEEDED, KEY: users}))


# -- TLS ---------------------------------------------------------------------------------------------------------------


def test_https_with_client_certificates_lets_in_those_of_the_authority(
    pki: Mapping[str, Path], group: Group, serve: Callable[..., HttpService], client: Callable[..., httpx.Client]
) -> None:
    own = protection({"listeners": "https://127.0.0.1:0", **tls(pki, **{"ssl.client.auth": "required"})})
    server = serve(MemoryHerder(group), own)
    url = f"https://127.0.0.1:{server.port}/connectors"
    assert client("user").get(url).json() == ["c"]
    for identity in (None, "stranger"):
        with pytest.raises(httpx.TransportError):
            client(identity).get(url)
    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://127.0.0.1:{server.port}/connectors", trust_env=False)


def test_shared_ssl_keys_are_used_unless_the_listener_has_its_own(pki: Mapping[str, Path]) -> None:
    shared = {key.removeprefix("listeners.https."): value for key, value in tls(pki).items()}
    one = {"listeners": "https://127.0.0.1:0"}
    assert protection({**one, **shared}).server is not None
    assert protection({**one, **shared, "ssl.client.auth": "required"}).server.verify_mode is ssl.CERT_REQUIRED  # type: ignore[union-attr]
    with pytest.raises(ConfigError, match=r"listeners\.https\.ssl\.keystore\.location is missing"):
        protection({**one, **shared, "listeners.https.ssl.client.auth": "none"})


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"ssl.keystore.type": "JKS"}, "listeners.https.ssl.keystore.location: a store of type JKS cannot be used"),
        ({"ssl.client.auth": "maybe"}, "listeners.https.ssl.client.auth = 'maybe' must be none, requested or required"),
        ({"ssl.keystore.location": "/none"}, "listeners.https.ssl.keystore.location: no readable file"),
        ({"ssl.engine.factory.class": "x"}, "listeners.https.ssl.engine.factory.class cannot be used"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "listeners.https.ssl.enabled.protocols is always"),
        ({"sasl.mechanism": "PLAIN"}, "listeners.https.sasl.mechanism is not a setting of a listener here"),
    ],
)
def test_tls_setting_that_cannot_be_followed_ends_the_start(
    more: dict[str, str], said: str, pki: Mapping[str, Path]
) -> None:
    with pytest.raises(ConfigError) as caught:
        protection({"listeners": "https://127.0.0.1:0", **tls(pki, **more)})
    assert str(caught.value).startswith(said)


def test_client_certificates_need_an_authority(pki: Mapping[str, Path]) -> None:
    given = {key: value for key, value in tls(pki).items() if "truststore" not in key}
    with pytest.raises(ConfigError, match=r"ssl\.truststore\.location is missing"):
        protection({"listeners": "https://127.0.0.1:0", **given, "listeners.https.ssl.client.auth": "required"})


def test_requests_between_workers_use_tls_their_certificate_and_the_callers_credentials(
    pki: Mapping[str, Path],
    users: str,
    group: Group,
    serve: Callable[..., HttpService],
    client: Callable[..., httpx.Client],
    tmp_path: Path,
) -> None:
    own = protection({"listeners": "https://127.0.0.1:0", KEY: users, **tls(pki, **{"ssl.client.auth": "required"})})
    leader = MemoryHerder(group)
    leading = serve(leader, own)
    group.leader = leader._url = f"https://localhost:{leading.port}/"  # its port is known only now
    path = str(tmp_path / "connect.sock")
    following = serve(MemoryHerder(group, "https://other/"), own, unix=(path, 0o600))
    url = f"https://localhost:{following.port}/connectors/c"
    caller = client("user")
    assert caller.put(f"{url}/stop", auth=USER).status_code == 204
    assert caller.put(f"{url}/stop").status_code == 401
    assert group.done == [(group.leader, "stop")]
    with httpx.Client(transport=httpx.HTTPTransport(uds=path), timeout=60) as local:
        assert local.put("http://localhost/connectors/c/stop").status_code == 204, "the worker has credentials"
    with contextlib.closing(TaskConfigSender(protection=own)) as sender:
        sender.send(group.leader, "c", [{"n": "5"}], SESSION_KEY)
    assert group.connectors["c"].tasks == [{"n": "5"}]
    with pytest.raises(ConnectError, match="does not answer"):
        TaskConfigSender().send(group.leader, "c", [{"n": "6"}], SESSION_KEY)


def test_worker_with_tls_sends_nothing_in_clear_text(
    pki: Mapping[str, Path],
    users: str,
    group: Group,
    serve: Callable[..., HttpService],
    client: Callable[..., httpx.Client],
) -> None:
    """A member of the group may give any address for the leader."""
    own = protection({"listeners": "https://127.0.0.1:0", KEY: users, **tls(pki)})
    server = serve(MemoryHerder(group, "https://other/"), own)
    with socket.create_server(("127.0.0.1", 0)) as evil:
        evil.settimeout(0.3)
        group.leader = f"http://127.0.0.1:{evil.getsockname()[1]}/"
        answer = client().put(f"https://localhost:{server.port}/connectors/c/stop", auth=USER)
        assert "has no https listener" in answer.json()["message"]
        with pytest.raises(ConnectError, match="has no https listener"):
            TaskConfigSender(protection=own).send(group.leader, "c", [], None)
        with pytest.raises(TimeoutError):
            evil.accept()


def test_connections_in_a_handshake_are_bounded_in_number_and_time(
    pki: Mapping[str, Path],
    group: Group,
    serve: Callable[..., HttpService],
    client: Callable[..., httpx.Client],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tls_gate, "_HANDSHAKES_MAX", 3)
    server = serve(MemoryHerder(group), protection({"listeners": "https://127.0.0.1:0", **tls(pki)}))
    silent = [socket.create_connection(("127.0.0.1", server.port), timeout=60) for _ in range(6)]
    try:
        for pushed_out in silent[:3]:
            assert is_closed(pushed_out)
        assert client().get(f"https://localhost:{server.port}/connectors").json() == ["c"]
        monkeypatch.setattr(tls_gate, "_HANDSHAKE_S", 0.2)
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as slow:
            slow.sendall(b"\x16\x03\x01")
            assert is_closed(slow)
    finally:
        for connection in silent:
            connection.close()


def test_worker_does_not_wait_for_clients_that_keep_an_idle_https_connection(
    pki: Mapping[str, Path],
    group: Group,
    serve: Callable[..., HttpService],
    client: Callable[..., httpx.Client],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(asyncio.constants, "SSL_SHUTDOWN_TIMEOUT", 3_600)
    server = serve(MemoryHerder(group), protection({"listeners": "https://127.0.0.1:0", **tls(pki)}))
    for _ in range(3):
        assert client().get(f"https://localhost:{server.port}/connectors").json() == ["c"]
    server.stop()
    assert "timeout graceful shutdown exceeded" not in caplog.text


def test_client_that_reads_slowly_gets_its_answer_although_the_service_stops(pki: Mapping[str, Path]) -> None:
    size = 200_000
    server = HttpService("127.0.0.1", 0, name="service", key="port", stop_s=60, tls=protection(
        {"listeners": "https://127.0.0.1:0", **tls(pki)}).server)  # fmt: skip

    async def app(_: Any, __: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % size)]})
        await send({"type": "http.response.body", "body": b"x" * size})

    plain = socket.socket()
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    plain.settimeout(60)
    context = ssl.create_default_context(cafile=str(pki["ca"]))
    with server.start(app, lifespan=False), plain:
        plain.connect(("127.0.0.1", server.port))
        with context.wrap_socket(plain, server_hostname="localhost") as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = connection.recv(1)
            stopping = threading.Thread(target=server.stop)
            stopping.start()
            # `stop` returns later.
            until(lambda: server._server is None or not server._server.servers[0].is_serving(), "the service stops")
            while piece := connection.recv(1 << 16):
                answer += piece
            stopping.join()
    assert answer.endswith(b"x" * size)


def is_closed(connection: socket.socket) -> bool:
    try:
        while connection.recv(1 << 16):
            pass
    except ConnectionError:
        pass
    return True


# -- a Unix socket -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["0600", "0660"])
def test_mode_of_a_unix_socket_says_who_may_connect(
    mode: str, users: str, group: Group, serve: Callable[..., HttpService], tmp_path: Path
) -> None:
    path = tmp_path / "connect.sock"
    server = serve(MemoryHerder(group), protection({KEY: users}), host=None, unix=(str(path), int(mode, 8)))
    assert stat.S_IMODE(os.lstat(path).st_mode) == int(mode, 8)
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), timeout=60) as local:
        assert local.get("http://localhost/connectors").json() == ["c"]
        assert local.get("http://evil.example/connectors").status_code == 403
    with pytest.raises(ConfigError, match="cannot be served \\(Address already in use\\)"):
        rest_service(None, unix=(str(path), 0o600))
    server.stop()
    until(lambda: not path.exists(), "the socket is removed")


def test_socket_of_a_worker_that_was_killed_is_replaced(tmp_path: Path) -> None:
    path = str(tmp_path / "connect.sock")
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(path)
    rest_service(None, unix=(path, 0o600)).stop()
    assert not os.path.exists(path)


def test_socket_takes_the_place_of_nothing_else_and_lies_in_no_folder_of_others(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine", encoding="utf-8")
    with pytest.raises(ConfigError, match="something else than a socket"):
        rest_service(None, unix=(str(file), 0o600))
    assert file.read_text(encoding="utf-8") == "mine"
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(ConfigError, match="is writable for all users"):
        rest_service(None, unix=(str(tmp_path / "open" / "s"), 0o600))


def test_worker_without_an_address_serves_its_socket_alone() -> None:
    settings = WorkerSettings.of({**NEEDED, "listeners": "unix:/run/connect.sock"})
    assert (settings.listener.address, settings.listener.unix) == (None, "/run/connect.sock")
    both = WorkerSettings.of({**NEEDED, "listeners": "http://127.0.0.1:1, unix:/run/connect.sock"})
    assert (both.listener.address, both.listener.unix) == (("127.0.0.1", 1), "/run/connect.sock")
