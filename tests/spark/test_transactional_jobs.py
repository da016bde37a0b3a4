"""Spark jobs over topics that were written in transactions, compared with the records of a plain consumer."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from streams_py import StreamsBuilder, serdes
from streams_py.spark.history.run import run as run_history
from streams_py.telemetry.schemas import TABLES
from tests.support.spark.cluster import Cluster
from tests.support.spark.plain_records import plain_records, written
from tests.support.spark.source import Options
from tests.support.spark.telemetry import GROUP, check_tables, expected
from tests.support.spark.warm_start import App
from tests.support.telemetry.golden import stored

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.broker, pytest.mark.timeout(1800)]

SIZE = 19_800


def words_of(cluster: Cluster, topic: str, *, read_committed: bool = True) -> Counter[str]:
    values = (record.value or b"" for record in plain_records(cluster.bootstrap, topic, read_committed=read_committed))
    return Counter(word for value in values for word in value.decode().split())


@pytest.mark.parametrize("kind", ["markers at the end", "interleaved producers", "open at the end"])
def test_history_counts_what_a_plain_consumer_reads(
    kind: str, spark: SparkSession, cluster: Cluster, options: Options
) -> None:
    topic = cluster.topic(2)

    def word_count() -> StreamsBuilder:
        builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
        builder.stream(topic).flat_map_values(str.split).group_by(lambda _, word: word).count(store="counts")
        return builder

    with written(cluster.bootstrap, topic, kind, SIZE, lambda at: b"w%d same" % (at % 7)):
        for isolation in ("read_committed", "read_uncommitted"):
            given = {topic: options(isolation=isolation)}
            with run_history(word_count, given, spark=spark) as results:
                (counts,) = results.changelogs.values()
                found = {row.key.decode(): int.from_bytes(row.value) for row in counts.collect()}
            assert found == words_of(cluster, topic, read_committed=isolation == "read_committed")


@pytest.mark.parametrize("kind", ["markers at the end", "aborted at the end"])
def test_warm_start_commits_what_a_plain_consumer_reads(
    kind: str, spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    app = App(cluster, tmp_path)
    with written(cluster.bootstrap, app.lines, kind, SIZE, lambda at: b"w%d same" % (at % 7)):
        assert app.plan().exit_code == 0
        app.ok("run")
        app.ok("verify")
        app.ok("commit")
        last: dict[bytes | None, bytes | None] = {}
        for record in plain_records(cluster.bootstrap, f"{app.id}-counts-changelog"):
            last[record.key] = record.value
        found = {(key or b"").decode(): int.from_bytes((value or b"")[-8:]) for key, value in last.items()}
        assert found == words_of(cluster, app.lines)


def test_telemetry_of_a_topic_in_transactions_has_the_committed_events(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    from streams_py.spark.telemetry import start_telemetry

    topic = cluster.topic(1)
    records = stored()
    for number, first in enumerate(range(0, len(records), 20)):
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": f"{topic}-{number % 3}"})
        producer.init_transactions(60)
        for aborted in (True, False):
            producer.begin_transaction()
            for record in records[first : first + 20]:
                producer.produce(topic, record.value, partition=0, timestamp=record.append_ms)
            assert producer.flush(60) == 0
            producer.abort_transaction(60) if aborted else producer.commit_transaction(60)
    given = {"kafka.bootstrap.servers": cluster.bootstrap, "topics": topic}
    query = start_telemetry(spark, GROUP, str(tmp_path / "tables"), given, once=True)
    assert query.awaitTermination(900)
    check_tables(spark, tmp_path / "tables", expected(records), *TABLES)
