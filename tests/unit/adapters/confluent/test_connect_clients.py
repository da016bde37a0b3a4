"""Topics of a Connect sink by a regular expression: the client library checks it before it connects."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent.connect_clients import ConfluentConnectClients
from streams_py.errors import ConfigError


class Listener:
    def on_assigned(self, partitions: Collection[TopicPartition]) -> None: ...
    def on_revoked(self, partitions: Collection[TopicPartition]) -> None: ...
    def on_lost(self, partitions: Collection[TopicPartition]) -> None: ...


def subscribe(pattern: str) -> None:
    kafka = {"bootstrap.servers": "127.0.0.1:1"}
    clients = ConfluentConnectClients(producer=kafka, consumer=kafka, admin=kafka, client_id="c", group_id="g")
    clients.sink_consumer("c-1", "connect-s", [], pattern, Listener(), {}).close()


@pytest.mark.parametrize("pattern", ["orders", "orders|payments", "(a|b)-.*", "orders-[0-9]+"])
def test_regular_expression_is_accepted(pattern: str) -> None:
    subscribe(pattern)


@pytest.mark.parametrize("pattern", ["(", "[a", "(?:a)"])
def test_expression_that_the_library_does_not_support_names_the_key(pattern: str) -> None:
    with pytest.raises(ConfigError, match="POSIX extended regular expression") as error:
        subscribe(pattern)
    assert error.value.key == "topics.regex"
