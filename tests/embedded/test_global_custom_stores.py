"""A custom global store in a running client: tasks and queries may read it, but only its processor may change it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streams_py import KafkaStreams, State, StreamsConfig
from streams_py.adapters.confluent import ConfluentClients
from streams_py.testing.broker import EmbeddedBroker
from tests.support.runtime.global_custom_stores import topology
from tests.support.waiting import until


class Cluster:
    """Two scores, and a question for each :meth:`ask`."""

    def __init__(self, folder: Path) -> None:
        self.broker = EmbeddedBroker()
        for topic, partitions in (("scores", 2), ("in", 1), ("out", 1)):
            self.broker.create_topic(topic, partitions)
        self.config = StreamsConfig.of(application_id="app", bootstrap_servers=self.broker.url, state_dir=str(folder))
        self._clients = ConfluentClients(self.config)
        self._producer = self._clients.producer("in")
        self.send("scores", b"ann", b"4", 0)
        self.send("scores", b"bob", b"7", 1)

    def send(self, topic: str, key: bytes, value: bytes, partition: int = 0) -> None:
        self._producer.produce(topic, value, key, partition, None, -1, None)
        assert self._producer.flush(60_000) == 0

    def close(self) -> None:
        self._producer.close()
        self._clients.close()
        self.broker.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    yield made
    made.close()


def test_tasks_and_queries_reach_a_global_custom_store(cluster: Cluster) -> None:
    seen: list[object] = []

    def ask(top: Any, _: object) -> None:
        seen.append(top.leaders(1))

    with KafkaStreams(topology(ask), cluster.config) as streams:
        assert streams.wait_until(State.RUNNING, 120)
        cluster.send("in", b"ann", b"?")
        until(lambda: seen, "the task's answer")
        assert seen == [[("bob", 7)]]
        query: Any = 2  # of the store's own
        answer = streams.query("top", query).global_result
        assert answer is not None
        assert answer.value == [("bob", 7), ("ann", 4)]


def test_a_task_that_changes_a_global_custom_store_fails_and_says_which(cluster: Cluster) -> None:
    def change(top: Any, _: object) -> None:
        top.add("eve", 9)

    streams = KafkaStreams(topology(change), cluster.config)
    streams.start()
    try:
        cluster.send("in", b"ann", b"?")
        until(lambda: streams.state is State.ERROR, "the client to fail")
    finally:
        streams.close()
    assert "global store 'top' is read-only here" in str(streams.error)
