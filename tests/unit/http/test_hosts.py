"""Where HTTP services listen, and by which names they may be called."""

from __future__ import annotations

import contextlib
import socket

import pytest

from streams_py.http.hosts import ANY_NAME, accepted_names, listen, refused_name


def test_answers_do_not_wait_for_acknowledgements() -> None:
    with contextlib.closing(listen("127.0.0.1", 0)) as server, contextlib.closing(socket.socket()) as caller:
        caller.connect(server.getsockname())
        accepted, _ = server.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
        with pytest.raises(OSError, match="in use"):
            listen(*server.getsockname())


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
