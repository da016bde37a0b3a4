"""The tables of telemetry as Spark's jobs write them, and the expected ones."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer

from streams_py.telemetry.schemas import TABLES
from tests.support.spark.cluster import Cluster
from tests.support.telemetry.history import Stored, fold

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GROUP = "app"


def append(cluster: Cluster, topic: str, records: list[Stored], *others: bytes) -> None:
    """Records with their append times, as the broker would have set them."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for record in records:
        producer.produce(topic, record.value, partition=0, timestamp=record.append_ms)
    for value in others:
        producer.produce(topic, value, partition=0, timestamp=records[-1].append_ms)
    assert producer.flush(30) == 0


def comparable(value: Any) -> Any:
    if isinstance(value, datetime):
        return int(value.replace(tzinfo=UTC).timestamp() * 1000)
    if isinstance(value, float):
        return round(value, 9)
    if isinstance(value, dict):
        return tuple(sorted(value.items()))
    return tuple(value) if isinstance(value, list) else value


def rows_of(frame: DataFrame) -> Counter[tuple[Any, ...]]:
    names = sorted(set(frame.columns) - {"group", "day"})
    return Counter(tuple(comparable(row[name]) for name in names) for row in frame.select(*names).collect())


def expected(records: list[Stored]) -> dict[str, Counter[tuple[Any, ...]]]:
    found: dict[str, Counter[tuple[Any, ...]]] = {name: Counter() for name in TABLES}
    for output in fold(records):
        if output.table in found:
            found[output.table][tuple(comparable(output.row[name]) for name in sorted(output.row))] += 1
    return found


def check_tables(spark: SparkSession, folder: Path, wanted: dict[str, Counter[tuple[Any, ...]]], *tables: str) -> None:
    for table in tables:
        assert rows_of(spark.read.parquet(str(folder / table))) == wanted[table], table
