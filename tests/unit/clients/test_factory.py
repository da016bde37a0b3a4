"""Which settings the factory gives to which of its clients."""

from __future__ import annotations

from typing import Any

import pytest

from streams_py.adapters.security.settings import SecuritySettings
from streams_py.clients import factory
from streams_py.clients.factory import KafkaClients
from streams_py.config.streams_config import StreamsConfig
from streams_py.errors import ConfigError

BASE = {"application.id": "app", "bootstrap.servers": "127.0.0.1:1"}


def test_login_of_the_admin_client_and_of_the_member_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The member uses the settings of the main consumer."""
    checked: list[str | None] = []

    def check(_: str, security: SecuritySettings, **__: Any) -> None:
        checked.append(security.username)

    monkeypatch.setattr(factory, "check_admitted", check)
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.password": "p"}
    for names, expected in (
        ({"sasl.username": "all"}, ["all"]),
        ({"sasl.username": "all", "consumer.sasl.username": "reader"}, ["all", "reader"]),
        ({"admin.sasl.username": "admin", "sasl.username": "all"}, ["admin", "all"]),
        ({"sasl.username": "all", "main.consumer.sasl.username": "member"}, ["all", "member"]),
        ({"sasl.username": "all", "restore.consumer.sasl.username": "restorer"}, ["all"]),
    ):
        checked.clear()
        clients = KafkaClients(StreamsConfig.of({**BASE, **login, **names}))
        clients.check_connection()
        clients.close()
        assert checked == expected


@pytest.mark.parametrize("prefix", ["", "main.consumer.", "producer.", "admin.", "assignment.events.producer."])
def test_embedded_cluster_refuses_security_of_every_client(prefix: str) -> None:
    key = f"{prefix}ssl.ca.location"
    with pytest.raises(ConfigError, match=f"^{key}: the embedded cluster has no security") as raised:
        KafkaClients(StreamsConfig.of({**BASE, "bootstrap.servers": "embedded", key: "/ca.pem"}))
    assert raised.value.key == key
