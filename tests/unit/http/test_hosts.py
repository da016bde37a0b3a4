"""Where HTTP services listen, and by which names they may be called."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import pytest

from streams_py.errors import ConfigError
from streams_py.http.hosts import ANY_NAME, accepted_names, listen, listen_unix, refused_name


def test_answers_do_not_wait_for_acknowledgements() -> None:
    with contextlib.closing(listen("127.0.0.1", 0, key="x")) as server, contextlib.closing(socket.socket()) as caller:
        caller.connect(server.getsockname())
        accepted, _ = server.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


def test_error_names_the_key_of_the_caller_and_what_to_do(tmp_path: Path) -> None:
    path = str(tmp_path / "service.sock")
    with (
        contextlib.closing(listen("127.0.0.1", 0, key="x")) as server,
        contextlib.closing(listen_unix(path, 0o600, key="x")),
    ):
        port = server.getsockname()[1]
        in_use = {
            f"application.server: 127.0.0.1:{port} cannot be served (Address already in use); choose another port, or "
            "stop the process that uses it": lambda: listen("127.0.0.1", port, key="application.server"),
            f"metrics: 127.0.0.1:{port} cannot be served (Address already in use); remove the line": lambda: listen(
                "127.0.0.1", port, key="metrics", advice="remove the line"
            ),
            f"listeners: {path} cannot be served (Address already in use); choose another path, or stop the process "
            "that uses it": lambda: listen_unix(path, 0o600, key="listeners"),
        }
        for message, bind in in_use.items():
            with pytest.raises(ConfigError) as raised:
                bind()
            assert (str(raised.value), raised.value.key) == (message, message.partition(":")[0])
    with pytest.raises(ConfigError, match=r"^--port: no\.invalid:80 cannot be served \(\w.*\); choose another port"):
        listen("no.invalid", 80, key="--port")


@pytest.mark.parametrize(
    "header",
    [
        "localhost", "LOCALHOST:8083", "localhost.", "127.0.0.1:8083", "10.1.2.3", "[::1]:8083", "w1:80", "W1.",
        socket.gethostname(),
    ],
)  # fmt: skip
def test_service_answers_to_addresses_and_its_own_names(header: str) -> None:
    assert refused_name(header, accepted_names("127.1", ["w1"])) is None


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1", "localhost.", "0.0.0.0", ""])
@pytest.mark.parametrize(
    "header", ["rebound.example", "rebound.example:8083", "localhost.example", "", "[::1", "127.1.evil"]
)
def test_service_does_not_answer_to_names_of_others_wherever_it_listens(host: str, header: str) -> None:
    assert refused_name(header, accepted_names(host, ["w1"])) is not None


def test_any_name_may_be_accepted_on_purpose() -> None:
    assert refused_name("rebound.example", accepted_names("0.0.0.0", [ANY_NAME])) is None
