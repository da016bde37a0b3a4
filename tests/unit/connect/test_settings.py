"""Settings of a worker (specification 5.2)."""

from __future__ import annotations

import logging

import pytest

from streams_protocol.connect import TaskId
from streams_py.connect.assignment.modes import Mode
from streams_py.connect.rest.listeners import Listeners
from streams_py.connect.settings import WorkerSettings
from streams_py.errors import ConfigError
from tests.support.connect.settings import NEEDED


def test_defaults() -> None:
    settings = WorkerSettings.of(NEEDED)
    assert settings.connect_protocol is Mode.STATIC
    assert settings.static_connectors is None
    assert settings.listener == Listeners("http", ("127.0.0.1", 8083), None)
    assert (settings.worker_id, settings.url) == ("127.0.0.1:8083", "http://127.0.0.1:8083/")
    assert settings.client == "connect-127.0.0.1:8083"


def test_lists_modes_and_addresses_are_read() -> None:
    settings = WorkerSettings.of(
        {
            **NEEDED,
            "connect.protocol": "Sessioned",
            "static.connectors": "",
            "static.tasks": "a-1, b-c-0",
            "listeners": "http://:9000",
            "rest.advertised.host.name": "one.example",
        }
    )
    assert settings.connect_protocol is Mode.SESSIONED
    assert settings.static_connectors == frozenset()
    assert settings.static_tasks == {TaskId("a", 1), TaskId("b-c", 0)}
    assert settings.listener.address == ("127.0.0.1", 9000)
    assert settings.url == "http://one.example:9000/"


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("group.id", None, "group.id is required"),
        ("connect.protocol", "foo", "'foo' is not a protocol"),
        ("static.tasks", "x-01", "'x-01' is not a task"),
        ("session.timeout.ms", "soon", "session.timeout.ms = 'soon'"),
        ("heartbeat.interval.ms", "9000", "must be at most a third"),
        ("scheduled.rebalance.max.delay.ms", str(2**31), "scheduled.rebalance.max.delay.ms"),
        ("status.storage.topic", "configs", "three different topics"),
        ("listeners", "ftp://:8083", "listeners = 'ftp://:8083'"),
        ("listeners", "https://host", "listeners = 'https://host'"),
        ("listeners", "unix:a.sock", "listeners = 'unix:a.sock'"),
        ("listeners", "", "listeners = ''"),
        ("rest.unix.socket.mode", "666x", "rest.unix.socket.mode = '666x'"),
        ("rest.advertised.listener", "https", "rest.advertised.listener = https is not among listeners"),
        ("ssl.client.auth", "required", "ssl.client.auth requires TLS, but listeners has no https listener"),
        ("inter.worker.signature.algorithm", "HmacMD5", "inter.worker.signature.algorithm = 'HmacMD5'"),
    ],
)
def test_wrong_values_are_named(key: str, value: str | None, message: str) -> None:
    given = {other: text for other, text in NEEDED.items() if other != key} | ({} if value is None else {key: value})
    with pytest.raises(ConfigError, match=message.replace("(", r"\(")):
        WorkerSettings.of(given)


def test_clients_get_what_is_meant_for_them_and_unknown_keys_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "streams_py.connect")
    settings = WorkerSettings.of(
        {**NEEDED, "sasl.password": "hidden", "producer.linger.ms": "5", "consumer.fetch.min.bytes": "1", "gruop": "x"}
    )
    assert settings.client_settings("producer.") == {
        "bootstrap.servers": "localhost:9092",
        "sasl.password": "hidden",
        "linger.ms": "5",
    }
    assert "hidden" not in repr(settings)
    assert [record.getMessage() for record in caplog.records] == [
        "gruop is not a setting of a worker here; ignoring it"
    ]
