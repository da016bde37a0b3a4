"""Reading a topic to its end while its cluster is not ready (specification 5.5)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from streams_protocol.types import TopicPartition
from streams_py.connect.stores.log import TopicLog, create_topic
from streams_py.errors import BrokerUnavailableError, ConfigError
from streams_py.ports import AdminError, AdminErrorKind, RawRecord
from streams_py.testing.memory_clients import MemoryRecord

_P = TopicPartition("log", 0)


class Cluster:
    """One topic with one record. It has no leader for the first ``leaderless`` requests."""

    def __init__(self, leaderless: float) -> None:
        self._leaderless = leaderless
        self._unread = [MemoryRecord("log", 0, 0, b"k", b"v")]
        self.closed: list[str] = []

    def list_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int | AdminError]:
        self._leaderless -= 1
        if self._leaderless >= 0:
            return {_P: AdminError(AdminErrorKind.LEADER_NOT_AVAILABLE, "not leader")}
        return {_P: 1}

    def log_consumer(self, client_id: str) -> Any:
        def poll(max_records: int, timeout_ms: int) -> list[MemoryRecord]:
            records, self._unread = self._unread, []
            return records

        return SimpleNamespace(
            assign=lambda positions: None,
            poll=poll,
            position=lambda partition: 1 - len(self._unread),
            close=lambda: self.closed.append("consumer"),
        )

    def producer(self, client_id: str, overrides: Mapping[str, str]) -> Any:
        return SimpleNamespace(
            poll=lambda timeout_ms: None, flush=lambda timeout_ms: 0, close=lambda: self.closed.append("producer")
        )


def test_a_topic_without_a_leader_for_a_moment_is_asked_about_again() -> None:
    cluster, read = Cluster(leaderless=2), list[RawRecord]()
    log = TopicLog(cluster, cluster, "log", "c", read.append)  # type: ignore[arg-type]  # what a log uses of them
    log.start(1)
    assert [record.key() for record in read] == [b"k"]
    log.stop()


def test_a_log_that_could_not_start_closes_its_clients() -> None:
    cluster = Cluster(leaderless=float("inf"))
    log = TopicLog(cluster, cluster, "log", "c", lambda record: None)  # type: ignore[arg-type]  # as above
    with pytest.raises(BrokerUnavailableError, match="not leader"):
        log.start(1, timeout_s=0.0)
    log.stop()
    assert cluster.closed == ["consumer", "producer"]


def _create(*, exists: bool, policy: str = "compact") -> int:
    """Create a topic as a user without the right to do so."""
    refused = AdminError(AdminErrorKind.NOT_ALLOWED, "not authorized")
    missing = AdminError(AdminErrorKind.UNKNOWN_TOPIC, "unknown")
    admin: Any = SimpleNamespace(
        create_topics=lambda specs: {"log": refused},
        describe_topics=lambda names: {"log": ("partition",) * 3 if exists else missing},
    )
    clients: Any = SimpleNamespace(topic_cleanup_policy=lambda topic: policy)
    return create_topic(clients, admin, "log", partitions=1, replication=1, setting="config.storage.topic")


def test_a_topic_that_is_there_need_not_be_created_by_somebody_who_may_not() -> None:
    assert _create(exists=True) == 3
    with pytest.raises(ConfigError, match=r"cleanup\.policy=delete"):
        _create(exists=True, policy="delete")
    with pytest.raises(BrokerUnavailableError, match="cannot be created: not authorized"):
        _create(exists=False)
