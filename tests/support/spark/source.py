"""Reads of the data source ``streams-kafka`` without a Spark session."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

from confluent_kafka import Producer
from pyspark.sql.datasource import CaseInsensitiveDict

from streams_py.spark.kafka.source import StreamsKafkaSource
from tests.support.spark.cluster import Cluster

Options = Callable[..., dict[str, str]]

Row = dict[str, Any]


def read(given: dict[str, str]) -> list[Row]:
    """A batch: planned on the "driver", each partition read on a "worker" that gets a pickled reader."""
    reader = StreamsKafkaSource(CaseInsensitiveDict(given)).reader(schema=None)
    rows: list[Row] = []
    for partition in reader.partitions():
        on_worker = pickle.loads(pickle.dumps(reader))
        for batch in on_worker.read(pickle.loads(pickle.dumps(partition))):
            rows += batch.to_pylist()
    return rows


def produce(cluster: Cluster, topic: str, *records: tuple[int, bytes | None, bytes | None], **extra: Any) -> None:
    """(partition, key, value)"""
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for partition, key, value in records:
        producer.produce(topic, value, key, partition, **extra)
    assert producer.flush(30) == 0


def numbered(count: int, partition: int = 0) -> list[tuple[int, bytes, bytes]]:
    return [(partition, b"k%d" % n, b"v%d" % n) for n in range(count)]


def offsets(rows: list[Row]) -> list[tuple[int, int]]:
    return [(row["partition"], row["offset"]) for row in rows]


def stream(given: dict[str, str]) -> Any:
    return StreamsKafkaSource(CaseInsensitiveDict(given)).streamReader(schema=None)


def ends(offsets: dict[str, Any]) -> dict[str, int]:
    """Offsets without the ids of the topics."""
    return {key: offset for key, offset in offsets.items() if "/" in key}


def micro_batch(reader: Any, start: dict[str, Any], end: dict[str, Any]) -> list[Row]:
    return [row for part in reader.partitions(start, end) for batch in reader.read(part) for row in batch.to_pylist()]
