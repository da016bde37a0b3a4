"""Requests of warm starts and backfills to a real broker without Spark, and runs on a Spark cluster."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from streams_protocol.types import TopicPartition
from streams_py.config.streams_config import StreamsConfig
from streams_py.errors import ConfigError, StreamsError
from streams_py.history.cluster import HistoryCluster
from streams_py.history.retention import check_retention
from streams_py.ports import OffsetAndMetadata
from streams_py.spark.history.fixed_ranges import newest_ms
from tests.support.spark.cluster import Cluster
from tests.support.spark.standalone import Standalone, wait_until

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
    asked.forget(group)  # it does not exist
    asked.commit(group, {at: OffsetAndMetadata(7, "text")})
    assert asked.committed(group, [at]) == {at: 7}
    asked.forget(group)
    assert asked.committed(group, [at]) == {}


def test_members_of_a_newer_protocol_are_not_taken_for_nobody(cluster: Cluster, asked: HistoryCluster) -> None:
    topic, group = cluster.topic(1), f"newer-{os.getpid()}"
    assert asked.members(group) == ()
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": group, "group.protocol": "consumer"}
    with contextlib.closing(Consumer(settings)) as consumer:
        consumer.subscribe([topic])
        wait_until("the consumer joins", lambda: consumer.poll(0.2) is None and bool(consumer.assignment()), 30)
        with pytest.raises(StreamsError, match=f"group {group} is of type consumer, whose members cannot be listed; "):
            asked.members(group)
    asked.forget(group)
    assert asked.members(group) == ()


def test_size_of_a_topic_is_asked_of_the_cluster(cluster: Cluster, asked: HistoryCluster) -> None:
    topic = cluster.topic(2)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    producer.produce(topic, b"x" * 10_000, partition=1)
    assert producer.flush(30) == 0
    first, second, third = (TopicPartition(topic, number) for number in range(3))
    assert asked.bytes_of([first]) == 0
    size = asked.bytes_of([first, second])
    assert size is not None
    assert 10_000 < size < 11_000
    assert asked.bytes_of([second, third]) is None, "the third has no known size"


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
    small, enough = (cluster.topic(1, retention_ms="-1", retention_bytes=str(most)) for most in (10, 10_000))
    assert asked.retentions([kept, compacted, *days, small, enough]) == {
        days[0]: (2 * day_ms, -1),
        days[1]: (4 * day_ms, -1),
        small: (-1, 10),
        enough: (-1, 10_000),
    }
    ranges = [(lines, 0, 0, 2)]
    check_retention(asked, dict.fromkeys([kept, compacted, days[1], enough], 1), ranges, now_ms)
    check_retention(asked, {days[0]: 1}, [(lines, 0, 1, 2)], now_ms)
    with pytest.raises(ConfigError, match=f"{days[0]} keeps records for 2 days.*{lines}-0 has older records"):
        check_retention(asked, dict.fromkeys([kept, compacted, *days], 1), ranges, now_ms)
    with pytest.raises(ConfigError, match=f"{small} keeps 10 bytes .*the input partitions take [0-9]+ bytes"):
        check_retention(asked, {small: 1, enough: 1}, ranges, now_ms)


_SHOP = """
from streams_py import StreamsBuilder, serdes


def topology():
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    builder.stream("lines").map_values(str.upper).to("out")
    return builder.build()
"""


@pytest.mark.weekly
@pytest.mark.timeout(900)
def test_module_that_workers_lack_goes_along_with_py_files(
    standalone: Standalone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    module = tmp_path / "driver" / "shop_of_the_driver.py"
    archive = tmp_path / "archive"
    for folder in (module.parent, archive):
        folder.mkdir()
    module.write_text(_SHOP)
    rows = [{"partition": at % 2, "offset": at, "timestamp_ms": at, "key": b"k", "value": b"v%d" % at} for at in (0, 1)]
    pq.write_table(pa.Table.from_pylist(rows), archive / "lines.parquet")
    monkeypatch.setenv("PYTHONPATH", str(module.parent))  # of drivers; the workers run already
    command = ["-m", "streams_py", "backfill", "shop_of_the_driver:topology", "--input", f"lines={archive}"]
    command += ["--master", standalone.master, "--conf", "spark.executor.memory=512m"]

    def made(name: str, *more: str) -> tuple[str, Path]:
        out = tmp_path / name
        driver = standalone.run(*command, "--out", str(out), "--work", str(tmp_path / f"{name}-work"), *more)
        wait_until("the backfill has ended", lambda: not driver.is_running, 400)
        return driver.output, out

    said, out = made("without")
    assert "on a Spark worker: module shop_of_the_driver cannot be imported" in said
    assert "ship it with --py-files" in said
    assert not out.exists()
    said, out = made("with", "--py-files", str(module))
    assert "out: 2 records" in said
    assert sorted(pq.read_table(out / "out")["value"].to_pylist()) == [b"V0", b"V1"]
