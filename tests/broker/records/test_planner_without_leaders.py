"""The planner of ranges while leaders die: it asks the brokers that are left until its timeout."""

from __future__ import annotations

import uuid

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable

from streams_py.spark.kafka.source import StreamsKafkaSource
from streams_py.testing.broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(900)]


def test_stream_and_batch_are_planned_and_read_after_the_leader_was_killed(kafka_cluster: Broker) -> None:
    boot = kafka_cluster.bootstrap
    topic = f"leaderless-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": boot})
    admin.create_topics([NewTopic(topic, 1, 3)])[topic].result(60)
    producer = Producer({"bootstrap.servers": boot, "acks": "all"})
    producer.produce(topic, b"x", partition=0)
    assert producer.flush(120) == 0
    options = {"kafka.bootstrap.servers": boot, "topics": topic, "poll.timeout.ms": "300000"}
    reader = StreamsKafkaSource(options).streamReader(schema=None)  # type: ignore[arg-type]
    begun = reader.initialOffset()
    end = reader.latestOffset(begun, ReadAllAvailable())  # its connections are to the current brokers
    leader = admin.list_topics(topic, timeout=60).topics[topic].partitions[0].leader
    kafka_cluster.kill_node(leader)
    try:
        assert reader.latestOffset(begun, ReadAllAvailable()) == end
        batch = StreamsKafkaSource(options).reader(schema=None)  # type: ignore[arg-type]
        for read_by, parts in ((batch, batch.partitions()), (reader, reader.partitions(begun, end))):
            assert [row["value"] for part in parts for rows in read_by.read(part) for row in rows.to_pylist()] == [b"x"]
    finally:
        kafka_cluster.start_node(leader)
        reader.stop()
