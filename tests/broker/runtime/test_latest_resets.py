"""A partition that is added to an input topic while the group runs with ``auto.offset.reset=latest``."""

from __future__ import annotations

import logging
import os
import re
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]  # exports unmarked

from streams_py import KafkaStreams, StreamsBuilder, serdes
from streams_py.testing.broker import Broker
from tests.support.waiting import PATIENCE_S, until

pytestmark = pytest.mark.broker

TEXT = "the group has committed no offset of"


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_log_says_from_which_offset_an_added_partition_is_read(
    kafka_broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture, guarantee: str
) -> None:
    app = f"latest-{guarantee}-{os.getpid()}"
    source, sink = f"{app}-in", f"{app}-out"
    kafka_broker.create_topic(source, 1)
    kafka_broker.create_topic(sink, 1)
    seen: list[bytes] = []
    builder = StreamsBuilder(key=serdes.BYTES, value=serdes.BYTES)
    builder.stream(source).peek(lambda key, value: seen.append(value)).to(sink)
    settings = {
        "application.id": app,
        "bootstrap.servers": kafka_broker.bootstrap,
        "state.dir": str(tmp_path),
        "auto.offset.reset": "latest",
        "metadata.max.age.ms": 3_000,
        "commit.interval.ms": 100,
        "processing.guarantee": guarantee,
    }
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap})

    def write(partition: int, *values: bytes) -> None:
        producer = Producer({"bootstrap.servers": kafka_broker.bootstrap})  # one that knows all partitions
        for value in values:
            producer.produce(source, value, b"k", partition)
        assert producer.flush(PATIENCE_S) == 0

    def has_committed() -> bool:
        consumer = Consumer({"bootstrap.servers": kafka_broker.bootstrap, "group.id": app})
        [found] = consumer.committed([TopicPartition(source, 0)], timeout=10)
        consumer.close()
        return found.offset == 1

    def has_partition_1() -> bool:
        return 1 in admin.list_topics(source, timeout=10).topics[source].partitions

    streams = KafkaStreams(builder.build(settings), settings)
    with caplog.at_level(logging.INFO, "streams_py"):
        try:
            streams.start()
            until(lambda: f"{TEXT} {source}-0" in caplog.text, "the line about the first partition")
            write(0, b"first")
            until(lambda: seen == [b"first"], "the first record")
            until(has_committed, "the commit")
            admin.create_partitions([NewPartitions(source, 2)])[source].result(30)
            until(has_partition_1, "the new partition")
            write(1, *(b"%d" % number for number in range(5)))
            until(lambda: f"{TEXT} {source}-1" in caplog.text, "the line about the new partition")
            write(1, b"last")
            until(lambda: b"last" in seen, "the last record")
        finally:
            assert streams.close(PATIENCE_S, leave_group=True)
    [line] = [record for record in caplog.records if f"{TEXT} {source}-1" in record.getMessage()]
    assert line.levelno == logging.WARNING
    found = re.search(r"reading starts at offset (\d+)\.", line.getMessage())
    assert found
    every = [*(b"%d" % number for number in range(5)), b"last"]
    assert seen[1:] == every[int(found[1]) :]
