"""What is asked before transactions begin; the rest is with the broker tests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import InvalidProducerEpochError, KafkaError, KafkaTimeoutError, ProducerFencedError
from kafka.protocol.broker_version_data import BrokerVersionData

from streams_protocol.types import TopicPartition
from streams_py.adapters.connection import direct_requests
from streams_py.adapters.kafka_python.admin.transaction_admin import KafkaPythonTransactionAdmin
from streams_py.errors import BrokerUnavailableError, TaskMigratedError, UnsupportedOperationError


def admin(monkeypatch: pytest.MonkeyPatch, version: tuple[int, int] | None) -> KafkaPythonTransactionAdmin:
    """Of brokers of a version, or of brokers that are away."""

    def connect(**_: Any) -> Any:
        if version is None:
            raise KafkaTimeoutError
        return SimpleNamespace(_manager=SimpleNamespace(broker_version_data=BrokerVersionData(version)))

    monkeypatch.setattr(direct_requests, "KafkaAdminClient", connect)
    return KafkaPythonTransactionAdmin({"bootstrap_servers": ["b:1"]}, timeout_ms=10)


@pytest.mark.parametrize("version", [(2, 5), (3, 9), (4, 3)])
def test_brokers_that_fence_transactions_by_generation_are_taken(
    monkeypatch: pytest.MonkeyPatch, version: tuple[int, int]
) -> None:
    admin(monkeypatch, version).check_brokers()


@pytest.mark.parametrize("version", [(0, 11), (1, 0), (2, 4)])
def test_older_brokers_are_refused_with_their_version_and_the_one_that_is_needed(
    monkeypatch: pytest.MonkeyPatch, version: tuple[int, int]
) -> None:
    with pytest.raises(UnsupportedOperationError, match=r"version 2\.5 or newer.*Upgrade.*at_least_once") as refused:
        admin(monkeypatch, version).check_brokers()
    assert f"b:1 has version {version[0]}.{version[1]}" in str(refused.value)


def test_brokers_that_are_away_are_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BrokerUnavailableError, match="b:1"):
        admin(monkeypatch, None).check_brokers()


@pytest.mark.parametrize("refusal", [ProducerFencedError, InvalidProducerEpochError])
def test_who_was_overtaken_by_another_member_is_told_that(
    monkeypatch: pytest.MonkeyPatch, refusal: type[KafkaError]
) -> None:
    overtaken = admin(monkeypatch, (4, 3))

    def refuse(*_: Any) -> None:
        raise refusal

    monkeypatch.setattr(overtaken._requests, "ask_coordinator", refuse)  # a coordinator that moves
    with pytest.raises(TaskMigratedError, match=r"app-1 cannot be ended.*another client"):
        overtaken.end("app-1", (7, 3), [TopicPartition("out", 0)], group=None, commit=True)
