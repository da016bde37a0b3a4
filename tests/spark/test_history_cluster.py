"""What a warm start and a backfill ask of a real broker, without Spark."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from streams_protocol.types import TopicPartition
from streams_py.config import StreamsConfig
from streams_py.errors import ConfigError
from streams_py.history.cluster import HistoryCluster
from streams_py.history.retention import check_retention
from streams_py.ports import OffsetAndMetadata
from streams_py.spark.history.fixed_ranges import newest_ms
from tests.spark.conftest import Cluster

pytestmark = pytest.mark.broker

_numbers = itertools.count()


@pytest.fixture
def asked(cluster: Cluster) -> Iterator[HistoryCluster]:
    name = f"history-{os.getpid()}-{next(_numbers)}"
    made = HistoryCluster(StreamsConfig.of({"application.id": name, "bootstrap.servers": cluster.bootstrap}))
    yield made
    made.close()


def test_group_is_forgotten_with_what_it_has_committed(cluster: Cluster, asked: HistoryCluster) -> None:
    at, group = TopicPartition(cluster.topic(1), 0), f"forgotten-{os.getpid()}"
    asked.forget(group)  # there is none
    asked.commit(group, {at: OffsetAndMetadata(7, "text")})
    assert asked.committed(group, [at]) == {at: 7}
    asked.forget(group)
    assert asked.committed(group, [at]) == {}


def test_newest_timestamp_is_asked_of_the_cluster(cluster: Cluster) -> None:
    topic = cluster.topic(2)
    options = {"kafka.bootstrap.servers": cluster.bootstrap}
    assert newest_ms(topic, options) is None
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for partition, timestamp_ms in ((0, 5_000), (1, 9_000), (1, 7_000)):
        producer.produce(topic, b"x", partition=partition, timestamp=timestamp_ms)
    assert producer.flush(30) == 0
    assert newest_ms(topic, options) == 9_000
    assert newest_ms(topic, {**options, "ending": f'{{"{topic}":{{"0":1,"1":0}}}}'}) is None, "it ends somewhere else"


def test_topics_that_would_delete_old_outputs_are_refused(cluster: Cluster, asked: HistoryCluster) -> None:
    day_ms, now_ms = 86_400_000, int(time.time() * 1000)
    lines = cluster.topic(1)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for age_ms in (3 * day_ms, 0):
        producer.produce(lines, b"x", timestamp=now_ms - age_ms)
    assert producer.flush(30) == 0
    kept, compacted = cluster.topic(1), cluster.topic(1, retention_ms="1000", cleanup_policy="compact")
    days = [cluster.topic(1, retention_ms=str(days * day_ms)) for days in (2, 4)]
    assert asked.retention_ms([kept, compacted, *days]) == {days[0]: 2 * day_ms, days[1]: 4 * day_ms}
    ranges = [(lines, 0, 0, 2)]
    check_retention(asked, [kept, compacted, days[1]], ranges, now_ms)
    check_retention(asked, [days[0]], [(lines, 0, 1, 2)], now_ms)
    with pytest.raises(ConfigError, match=f"{days[0]} keeps records for 2 days.*{lines}-0 has older ones"):
        check_retention(asked, [kept, compacted, *days], ranges, now_ms)
