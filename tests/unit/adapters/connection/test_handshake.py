"""What counts as a refusal, and what may be an outage. The real doors are tested on a real broker."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streams_py import KafkaStreams, StreamsBuilder, serdes
from streams_py.adapters.connection import handshake
from streams_py.adapters.connection.handshake import check_admitted, refusal
from streams_py.adapters.security.settings import SecuritySettings, parse_security
from streams_py.errors import BrokerUnavailableError, ConfigError
from streams_py.ports.rights import CLUSTER, GROUP, TOPIC, TRANSACTIONAL_ID, missing_right

Serve = Callable[[socket.socket], None]
_API_VERSIONS, _SASL_HANDSHAKE = 18, 17


@contextlib.contextmanager
def broker(serve: Serve) -> Iterator[str]:
    """A server that treats every connection so; its address."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def run() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection, contextlib.suppress(OSError):
                        serve(connection)

        threading.Thread(target=run, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)


def _request(connection: socket.socket) -> int:
    """Read one request; its key."""
    with connection.makefile("rb", buffering=0) as stream:
        start = stream.read(4) or b""
        if len(start) < 4:
            raise ConnectionResetError
        return int(struct.unpack(">h", (stream.read(struct.unpack(">i", start)[0]) or b"\xff\xff")[:2])[0])


def _answer(connection: socket.socket, body: bytes) -> None:
    connection.sendall(struct.pack(">ii", 4 + len(body), 1) + body)


def _versions(*keys: int) -> bytes:
    return struct.pack(">hi", 0, len(keys)) + b"".join(struct.pack(">hhh", key, 0, 1) for key in keys)


def speaks(*answers: tuple[int, bytes]) -> Serve:
    """A broker that knows these requests, and hangs up at others."""

    def serve(connection: socket.socket) -> None:
        known = dict(answers)
        while (body := known.get(_request(connection))) is not None:
            _answer(connection, body)

    return serve


def _silent(connection: socket.socket) -> None:
    connection.recv(1000)
    connection.recv(1000)  # until the other side gives up


OUTAGES: dict[str, Serve] = {
    "hangs-up": lambda connection: None,
    "hangs-up-after-the-request": lambda connection: _request(connection) and None,
    "silent": _silent,
    "half-an-answer": lambda connection: connection.sendall(b"\0\0\0\xff\0\0"),
    "no-kafka": lambda connection: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    "huge": lambda connection: connection.sendall(b"\x7f\xff\xff\xff"),
    "hangs-up-when-asked-for-a-login": speaks((_API_VERSIONS, _versions(_SASL_HANDSHAKE))),
}


@pytest.mark.parametrize("outage", OUTAGES)
@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL", "SASL_PLAINTEXT"])
def test_what_may_be_an_outage_is_no_refusal(outage: str, protocol: str) -> None:
    login = {"sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p"} if "SASL" in protocol else {}
    with broker(OUTAGES[outage]) as address:
        why = refusal(address, parse_security({"security.protocol": protocol, **login}), timeout_s=0.3)
    # What answers without TLS has said so, whatever else it is; a reset may come before that is read.
    assert why is None or (protocol == "SSL" and "does not use TLS" in why)


def test_nobody_there_is_no_refusal() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        address = f"127.0.0.1:{gone.getsockname()[1]}"
    assert refusal(f"{address}, host.invalid:9092", SecuritySettings()) is None


@pytest.mark.parametrize("outage", OUTAGES)
def test_who_does_not_want_to_wait_hears_soon_that_nobody_is_there(
    outage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshake, "_TIMEOUT_S", 0.05)
    monkeypatch.setattr(handshake, "_PATIENCE_S", 0.1)
    with broker(OUTAGES[outage]) as address, pytest.raises(BrokerUnavailableError) as away:
        check_admitted(f"127.0.0.1:1, {address}", SecuritySettings(), must_answer=True)
    start = f"no broker answers at 127.0.0.1:1 (Connection refused), {address} ("
    assert str(away.value).startswith(start)
    assert len(str(away.value)) > len(start) + 1


def test_broker_that_is_slow_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waited = threading.Event()

    def slow(connection: socket.socket) -> None:
        assert waited.wait(60)
        speaks((_API_VERSIONS, _versions(3)))(connection)

    threading.Timer(0.2, waited.set).start()
    monkeypatch.setattr(handshake, "_TIMEOUT_S", 0.05)
    monkeypatch.setattr(handshake, "_PATIENCE_S", 60)
    with broker(slow) as address:
        check_admitted(address, SecuritySettings(), must_answer=True)


def test_not_every_address_of_many_is_asked_so_none_is_said_to_be_away() -> None:
    check_admitted(",".join(["127.0.0.1:1"] * 4), SecuritySettings(), must_answer=True)


def test_alert_of_tls_is_told_from_an_answer() -> None:
    with broker(lambda connection: connection.sendall(b"\x15\x03\x03\x00\x02\x02\x50")) as address:
        why = refusal(address, SecuritySettings())
    assert why == (
        f"{address} accepts TLS only: set security.protocol to SSL or SASL_SSL, and ssl.ca.location, or use the port "
        "of a listener without TLS"
    )


def test_login_is_asked_for_only_where_the_broker_knows_the_request() -> None:
    with broker(speaks((_API_VERSIONS, _versions(3)))) as address:
        assert refusal(address, SecuritySettings()) is None
    offered = struct.pack(">hih", 0, 1, 5) + b"PLAIN"
    with broker(speaks((_API_VERSIONS, _versions(3, _SASL_HANDSHAKE)), (_SASL_HANDSHAKE, offered))) as address:
        assert "requires a login: set security.protocol to SASL_PLAINTEXT, sasl.mechanism to one of PLAIN" in str(
            refusal(address, SecuritySettings())
        )


def test_one_broker_that_lets_us_in_is_enough() -> None:
    with (
        broker(lambda connection: connection.sendall(b"\x15\x03\x03\x00\x02\x02\x50")) as refuses,
        broker(speaks((_API_VERSIONS, _versions(3)))) as serves,
    ):
        assert refusal(f"{refuses},{serves}", SecuritySettings()) is None
        assert refuses in str(refusal(f"{refuses},127.0.0.1:1", SecuritySettings()))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (missing_right("READ", GROUP, ["g"]), ("READ on group g: give it, kafka-acls --add --allow-principal User:NAME "
         "--operation READ --group g")),
        (missing_right("IDEMPOTENT_WRITE", CLUSTER), ("IDEMPOTENT_WRITE on cluster: give it, kafka-acls --add "
         "--allow-principal User:NAME --operation IDEMPOTENT_WRITE --cluster")),
        (missing_right("WRITE", TRANSACTIONAL_ID, prefix="a-"), ("WRITE on transactional ids that begin with a-: give "
         "it, kafka-acls --add --allow-principal User:NAME --operation WRITE --transactional-id a- "
         "--resource-pattern-type prefixed")),
        (missing_right("READ", TOPIC, [f"t{n}" for n in range(7)]), ("READ on topic t0, t1, t2, t3, t4, ...: give it, "
         "kafka-acls --add --allow-principal User:NAME --operation READ --topic t0 --topic t1 --topic t2 --topic t3 "
         "--topic t4")),
    ],
    ids=["group", "cluster", "prefix", "many"],
)  # fmt: skip
def test_missing_right_is_named_with_the_command_that_gives_it(text: str, expected: str) -> None:
    assert text == f"the user has no right {expected}"


def test_what_refuses_one_process_is_not_asked_again_and_again_by_many(tmp_path: Path) -> None:
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    builder.stream("in").to("out")
    with broker(lambda connection: connection.sendall(b"\x15\x03\x03\x00\x02\x02\x50")) as address:
        settings = {"application.id": "a", "bootstrap.servers": address, "state.dir": str(tmp_path)}
        with pytest.raises(ConfigError, match=f"{address} accepts TLS only"):
            KafkaStreams(builder.build(), settings).run(processes=2)
