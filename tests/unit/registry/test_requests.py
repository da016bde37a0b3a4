"""What becomes of requests that a registry does not answer, or refuses."""

from __future__ import annotations

import json
import logging
import socket
from typing import Any

import pytest

from streams_py.errors import BrokerUnavailableError, RegistryError, RegistryUnavailableError
from streams_py.registry import SchemaRegistry, schema_registry
from streams_py.registry.requests import GuardedRequests

pytest.importorskip("fastavro")

from tests.support.registry.stub import RegistryStub, running


def write(registry: SchemaRegistry, value: str = "a") -> bytes:
    return registry.avro('"string"').serializer("t", is_key=False)(value)


def httpx_of_the_client() -> Any:
    from confluent_kafka.schema_registry._sync import schema_registry_client

    return schema_registry_client.httpx


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def test_registry_that_is_away_is_named_and_may_be_asked_again() -> None:
    address = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(RegistryUnavailableError, match=rf"the schema registry at {address} is not available") as caught:
        write(SchemaRegistry(address))
    assert caught.value.retriable
    assert isinstance(caught.value, BrokerUnavailableError)  # what every part of a task knows to wait for


@pytest.mark.parametrize(
    "answer",
    [
        (500, b'{"error_code":50001,"message":"Error in the backend data store"}'),
        (503, b"<html>unavailable</html>"),
        (429, b'{"error_code":429,"message":"slow down"}'),
        (404, b"<html>default backend</html>"),
        (404, b'{"error_code":404,"message":"HTTP 404 Not Found"}'),
        (200, b"<html>log in</html>"),
        (200, b'{"login":"https://elsewhere"}'),
        (200, b"[]"),
    ],
)
def test_answers_that_say_nothing_about_the_schema_pass(answer: tuple[int, bytes]) -> None:
    with running(RegistryStub()) as stub:
        stub.answer = answer
        with pytest.raises(RegistryUnavailableError):
            write(stub.registry())
        with pytest.raises(RegistryUnavailableError):
            stub.registry().avro('"string"').deserializer("t", is_key=False)(b"\x00\x00\x00\x00\x01\x02a")


@pytest.mark.parametrize("answer", [(409, b'{"error_code":409,"message":"incompatible"}'),
                                    (422, b'{"error_code":42201,"message":"Invalid schema"}')])  # fmt: skip
def test_schema_that_the_registry_refuses_is_not_asked_for_again(answer: tuple[int, bytes]) -> None:
    with running(RegistryStub()) as stub:
        stub.answer = answer
        with pytest.raises(ValueError, match=r"the schema registry responded: (incompatible|Invalid schema)"):
            write(stub.registry())


def test_answer_too_slow_is_no_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        registry = SchemaRegistry(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout_ms=50)
        with pytest.raises(RegistryUnavailableError, match="Timeout"):
            write(registry)


def test_schemas_that_are_known_need_no_registry() -> None:
    stub = RegistryStub()
    with running(stub):
        serde = stub.registry().avro('"string"')
        encode, decode = serde.serializer("t", is_key=False), serde.deserializer("t", is_key=False)
        data = encode("a")
        assert decode(data) == "a"
        stub.answer = (503, b"")
        with pytest.raises(RegistryUnavailableError):
            decode(b"\x00\x00\x00\x00\x63\x02a")
        assert (encode("b"), decode(data)) == (data[:-1] + b"b", "a")


class Inner:
    def __init__(self) -> None:
        self.errors: list[Exception] = []
        self.calls = 0

    def get(self, url: str) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return url


def transport_error() -> Exception:
    from confluent_kafka.schema_registry.common._httpx_compat import httpx

    error: Exception = httpx.ConnectError("refused")
    return error


def test_registry_that_is_away_is_not_asked_without_pause() -> None:
    now = [0.0]
    inner = Inner()
    guarded = GuardedRequests(inner, "http://r", clock_s=lambda: now[0])
    inner.errors = [transport_error(), transport_error()]
    asked: list[int] = []
    for second in (0.0, 0.4, 0.6, 1.5, 1.7):
        now[0] = second
        if second < 1.7:
            with pytest.raises(RegistryUnavailableError, match="http://r is not available: ConnectError: refused"):
                guarded.get("subjects")
        else:
            guarded.get("subjects")
        asked.append(inner.calls)
    assert asked == [1, 1, 2, 2, 3]  # pauses of 0.5 and 1 s
    assert guarded.get("subjects") == "subjects"


def test_other_errors_of_the_client_are_not_hidden() -> None:
    inner = Inner()
    inner.errors = [ZeroDivisionError()]
    with pytest.raises(ZeroDivisionError):
        GuardedRequests(inner, "http://r").get("x")


@pytest.mark.parametrize("where", ["url", "setting"])
def test_credentials_are_sent_and_shown_nowhere(where: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    stub = RegistryStub(user_info="me:s3cret/")
    with running(stub):
        if where == "url":
            registry = SchemaRegistry(stub.url.replace("http://", "http://me:s3cret%2F@"))
        else:
            registry = stub.registry({"basic.auth.user.info": "me:s3cret/"})
        assert write(registry) == b"\x00\x00\x00\x00\x01\x02a"
        stub.answer = (500, b"me:s3cret/")
        with pytest.raises(RegistryUnavailableError) as away:
            write(registry, "b" * 3) and registry.avro('"int"').serializer("t", is_key=False)(1)
    shown = f"{caplog.text}{registry!r}{away.value!r}{away.value.__cause__!r}{registry.address}"
    assert "s3cret" not in shown


@pytest.mark.parametrize("status", [401, 403])
def test_refused_credentials_say_what_to_set(status: int) -> None:
    with running(RegistryStub()) as stub:
        stub.answer = (status, b'{"error_code":40101,"message":"no"}')
        with pytest.raises(RegistryError, match=r"basic\.auth\.user\.info") as caught:
            write(stub.registry({"basic.auth.user.info": "me:s3cret"}))
        assert not caught.value.retriable
        assert "s3cret" not in str(caught.value)


def test_client_of_confluent_kafka_sends_its_requests_through_what_is_replaced() -> None:
    """A fact of confluent-kafka that the guard leans on."""
    with running(RegistryStub()) as stub:
        registry = stub.registry()
        client: Any = registry._client  # only this client has the guard
        assert isinstance(client._rest_client, GuardedRequests)  # the part that streams_py replaces
        client._rest_client._inner.get = lambda *args: ["from here"]  # the library's own requests
        assert client.get_subjects() == ["from here"]


GARBAGE = [
    b'{"schema":"not avro"}',
    b'{"schema":"{"}',
    b'{"schema":"7"}',
    b'{"schema":"{\\"type\\":\\"recrod\\"}"}',
    b'{"schema":"\\"string\\"","schemaType":"JSON"}',
    b'{"schema":"\\"string\\"","schemaType":"PROTOBUF"}',
    b'{"schema":"\\"string\\"","schemaType":"COBOL"}',
    b'{"schema":"\\"string\\"","schemaType":7}',
    b'{"schema":"\\"string\\"","references":7}',
    b'{"schema":"\\"string\\"","references":[{"name":"a"}]}',
    b'{"schema":"\\"string\\"","id":-1}',
    b'{"schema":7}',
    b'{"schema":"\\"string\\"","ruleSet":5}',
    b'{"schema":"\\"string\\"","ruleSet":{"domainRules":[5]}}',
    b'{"schema":"\\"string\\"","ruleSet":{"encodingRules":[{"kind":"??"}]}}',
    b'{"schema":"\\"string\\"","ruleSet":{"encodingRules":[{"mode":"READ","kind":"TRANSFORM","type":5}]}}',
    b'{"schema":"\\"string\\"","ruleSet":{"encodingRules":[{"mode":"READ","params":{"a":[1]}}]}}',
    b'{"schema":"\\"string\\"","ruleSet":{"enableAt":[1]}}',
    b'{"schema":"\\"string\\"","metadata":5}',
    b'{"schema":"\\"string\\"","metadata":{"tags":5}}',
    b'{"schema":"\\"string\\"","metadata":{"properties":{"a":[1]}}}',
    b"[" * 100_000,
    b"1" * 5000,
    b"\xff",
]


@pytest.mark.parametrize("answer", GARBAGE)
def test_schema_that_cannot_be_read_is_not_blamed_on_the_record(answer: bytes) -> None:
    with running(RegistryStub()) as stub:
        stub.answer = (200, answer)
        read = stub.registry().avro('"string"').deserializer("t", is_key=False)
        with pytest.raises(RegistryUnavailableError):
            read(b"\x00\x00\x00\x00\x01\x02a")


@pytest.mark.parametrize("number", [b'{"id":true}', b'{"id":-1}', b'{"id":4294967296}', b'{"id":1.5}', b'{"id":"1"}'])
def test_id_that_is_no_number_of_a_schema_is_not_blamed_on_the_record(number: bytes) -> None:
    with running(RegistryStub()) as stub:
        stub.answer = (200, number)
        with pytest.raises(RegistryUnavailableError):
            write(stub.registry())


@pytest.mark.parametrize(
    "echo", ["s3cret", "dXNlcjpzM2NyZXQ=", "user:s3cret", "Basic dXNlcjpzM2NyZXQ=", "password=s3cret"]
)
def test_registry_that_repeats_credentials_does_not_put_them_into_errors(echo: str) -> None:
    with running(RegistryStub()) as stub:
        stub.answer = (422, json.dumps({"error_code": 42201, "message": f"got \x1b[31m{echo} here"}).encode())
        registry = stub.registry({"basic.auth.user.info": "user:s3cret"})
        with pytest.raises(ValueError, match="the schema registry responded: got") as caught:
            write(registry)
    for secret in ("s3cret", "dXNlcjpzM2NyZXQ", "\x1b"):
        assert secret not in str(caught.value)


@pytest.mark.parametrize("status", [200, 404, 500])
def test_an_answer_that_is_too_long_is_not_read(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_registry, "_ANSWER_BYTES_MAX", 1000)
    with running(RegistryStub()) as stub:
        stub.answer = (status, b'{"id": 1' + b" " * 1000 + b"}")
        with pytest.raises(RegistryUnavailableError, match="the response is longer than 1,000 bytes"):
            write(stub.registry())
