"""`streams-kafka` inside Spark, on two cores and a real broker: that the pieces fit together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streams_py.spark.failures import sentence_of
from tests.support.spark.cluster import Cluster
from tests.support.spark.source import Options, numbered, produce

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]

COLUMNS = ["partition", "timestamp_ms", "key", "value", "headers"]


@pytest.fixture
def load(spark: SparkSession, options: Options) -> Callable[..., DataFrame]:
    def of(**given: Any) -> DataFrame:
        return spark.read.format("streams-kafka").options(**options(**given)).load()

    return of


def test_topic_is_copied_exactly(
    spark: SparkSession, cluster: Cluster, options: Options, load: Callable[..., DataFrame]
) -> None:
    from pyspark.sql import functions

    source, target = cluster.topic(3), cluster.topic(3)
    produce(cluster, source, *numbered(500), *numbered(300, 2), headers=[("a", None), ("b", b"")])
    produce(cluster, source, (2, b"gone", None), (0, None, b""), timestamp=0)
    frame = load(topics=source)
    assert frame.count() == 802
    per_partition = {row["partition"]: row["count"] for row in frame.groupBy("partition").count().collect()}
    assert per_partition == {0: 501, 2: 301}
    renamed = frame.withColumn("topic", functions.lit(target))
    renamed.write.format("streams-kafka").options(**options()).mode("append").save()
    rows = [Counter(map(repr, load(topics=topic).select(*COLUMNS).collect())) for topic in (source, target)]
    assert rows[0] == rows[1]


def test_stream_goes_on_from_its_checkpoint_without_loss_or_repetition(
    spark: SparkSession, cluster: Cluster, options: Options, tmp_path: Path
) -> None:
    topic = cluster.topic(2)
    seen: list[tuple[int, int, int]] = []

    def note(frame: DataFrame, batch: int) -> None:
        seen.extend((batch, row["partition"], row["offset"]) for row in frame.collect())

    def run() -> None:
        frame = spark.readStream.format("streams-kafka").options(**options(topics=topic, rows_per_trigger=40)).load()
        writer = frame.writeStream.foreachBatch(note).option("checkpointLocation", str(tmp_path))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(300)

    produce(cluster, topic, *numbered(50), *numbered(30, 1))
    run()
    first = len(seen)
    cluster.add_partitions(topic, 3)
    produce(cluster, topic, *numbered(10), *numbered(7, 2))
    run()
    assert first == 80
    assert max(Counter(batch for batch, _, _ in seen).values()) <= 40
    places = [(partition, offset) for _, partition, offset in seen]
    assert len(places) == len(set(places)) == 97
    assert Counter(partition for partition, _ in places) == {0: 60, 1: 30, 2: 7}
    cluster.delete(topic)
    cluster.topic(3, name=topic)
    with pytest.raises(Exception, match="created again") as stopped:
        run()
    assert "deleted and created again? Start over with a new checkpoint folder" in sentence_of(stopped.value)
    assert len(seen) == 97


def test_stream_writes_what_it_reads(spark: SparkSession, cluster: Cluster, options: Options, tmp_path: Path) -> None:
    from pyspark.sql import functions

    source, target = cluster.topic(2), cluster.topic(2)
    produce(cluster, source, *numbered(20), *numbered(10, 1))
    frame = spark.readStream.format("streams-kafka").options(**options(topics=source)).load()
    frame = frame.withColumn("topic", functions.lit(target))
    writer = frame.writeStream.format("streams-kafka").options(**options()).outputMode("append")
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    assert query.awaitTermination(300)
    assert spark.read.format("streams-kafka").options(**options(topics=target)).load().count() == 30


def test_filter_decides_what_is_read_at_all(cluster: Cluster, load: Callable[..., DataFrame]) -> None:
    topic = cluster.topic(3)
    for n in range(6):
        produce(cluster, topic, (0, None, b"v"), (2, None, b"v"), timestamp=1_000 + n)
    for condition, partitions, found in (
        ("partition = 2", 1, [(2, n) for n in range(6)]),
        ("offset between 2 and 3", 2, [(0, 2), (0, 3), (2, 2), (2, 3)]),
        ("timestamp_ms >= 1005", 2, [(0, 5), (2, 5)]),
        ("partition in (0, 1) and timestamp_ms > 1003 and offset != 4", 1, [(0, 5)]),
        ("timestamp_ms < 1001", 2, [(0, 0), (2, 0)]),
        ("partition = 1", 1, []),  # one that Spark makes up
        ("topic = 'another'", 1, []),
        ("offset > 9223372036854775806 and timestamp_ms > 9223372036854775807", 1, []),
    ):
        kept = load(topics=topic, push_filters="true").where(condition)
        assert sorted((row["partition"], row["offset"]) for row in kept.collect()) == found, condition
        assert kept.rdd.getNumPartitions() == partitions, condition


def test_filter_of_one_query_is_not_that_of_another(cluster: Cluster, load: Callable[..., DataFrame]) -> None:
    """Spark 4.3 uses the ranges of one scan of a DataFrame for all of its other scans."""
    topic = cluster.topic(2)
    produce(cluster, topic, *numbered(6), *numbered(6, 1))
    frame = load(topics=topic)
    assert frame.where("partition = 1 and offset >= 4").count() == 2
    assert frame.count() == 12
    assert frame.where("offset < 2").union(frame.where("offset >= 3")).count() == 10
    assert frame.where("offset = 5").union(frame).count() == 14
    assert frame.where("partition = 0").crossJoin(frame.where("partition = 1")).count() == 36


def test_lag_is_in_the_progress_of_a_query(
    spark: SparkSession, cluster: Cluster, options: Options, tmp_path: Path
) -> None:
    from streams_protocol.types import TopicPartition
    from streams_py.spark.kafka.progress import records_behind

    topic = cluster.topic(2)
    produce(cluster, topic, *numbered(50), *numbered(10, 1))
    frame = spark.readStream.format("streams-kafka").options(**options(topics=topic, rows_per_trigger=30)).load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(300)
    behind = [records_behind(progress) for progress in query.recentProgress if progress["numInputRows"]]
    assert behind == [
        {TopicPartition(topic, 0): 25, TopicPartition(topic, 1): 5},
        {TopicPartition(topic, 0): 0, TopicPartition(topic, 1): 0},
    ]


def test_mistake_is_explained_in_the_exception(load: Callable[..., DataFrame]) -> None:
    with pytest.raises(Exception, match=r"topic nothing-here not found on .* create it") as missing:
        load(topics="nothing-here").count()
    assert sentence_of(missing.value).startswith("topic nothing-here not found on")
    with pytest.raises(Exception, match="unknown option topic: did you mean topics") as mistaken:
        load(topic="x").count()
    assert sentence_of(mistaken.value).startswith("unknown option topic: did you mean topics")


def test_session_of_the_user_is_adopted_and_not_stopped(spark: SparkSession) -> None:
    from streams_py.spark.session import spark_session

    assert spark_session("other", master="local[1]") is spark
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.driver.bindAddress") == "127.0.0.1"
