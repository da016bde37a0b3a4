"""A topology as a query of Structured Streaming, stopped and started again."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from streams_py import StreamsBuilder, Topology, serdes
from streams_py.errors import ConfigError, StreamsError
from streams_py.history.refuse import RefusedTopologyError
from streams_py.spark import preview
from tests.support.history.previews import PROGRAMS, SESSIONS, TUMBLING, shown, some_records
from tests.support.history.runs import Given, driven, numbered
from tests.support.spark.cluster import Cluster
from tests.support.spark.locked import Locked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.broker, pytest.mark.timeout(1_500)]


def program(topic: str) -> Callable[[], Topology]:
    def make() -> Topology:
        builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
        stream = builder.stream(topic).filter(lambda _, value: value[-1] != "7")
        windows = stream.group_by_key().windowed_by(TUMBLING)
        shown(windows.reduce(lambda old, new: (old + new)[-30:], store="w")).to("windows")
        sessions = stream.group_by_key().windowed_by(SESSIONS)
        shown(sessions.reduce(lambda old, new: (old + new)[-30:], store="s")).to("sessions")
        stream.group_by_key().count(store="c").to_stream().to("counts", value=serdes.INT64)
        return builder.build()

    return make


@pytest.mark.weekly
def test_query_that_is_restarted_ten_times_writes_what_the_live_application_does(
    cluster: Cluster, spark: SparkSession, options: Any, tmp_path: Path
) -> None:
    topic = cluster.topic(2)
    records = [one._replace(topic=topic) for one in some_records(2)]
    live = driven(program(topic)(), records, 2, {"statestore.cache.max.bytes": 0})
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    out, chance = str(tmp_path / "out"), random.Random(1)
    for run in range(11):
        size = len(records) if run == 10 else chance.randrange(20, 50)
        for one in records[:size]:
            producer.produce(topic, one.value, one.key, one.partition, timestamp=one.timestamp_ms)
        assert producer.flush(60) == 0
        records = records[size:]
        rows = preview(program(topic), options(**{"rows.per.trigger": 30}), spark=spark)
        writing = rows.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "check"))
        query = writing.trigger(availableNow=True).start(out)
        assert query.awaitTermination(600)
    found = spark.read.parquet(out).collect()
    for name in ("windows", "sessions", "counts"):
        written = [row for row in found if row.topic == name]
        values = [None if row.value is None else bytes(row.value) for row in written]
        assert sorted(
            repr((name, row.partition, row.timestamp_ms, bytes(row.key), value, None))
            for row, value in zip(written, values, strict=True)
        ) == sorted(map(repr, live[name]))
        for task in (0, 1):
            numbers = sorted(row.seq for row in written if row.task == task)
            assert numbers == list(range(len(numbers)))


@pytest.mark.weekly
def test_a_preview_writes_what_comes_and_says_what_it_cannot(
    cluster: Cluster, spark: SparkSession, options: Any, tmp_path: Path
) -> None:
    topic = cluster.topic(1)
    records: list[Given] = numbered([(topic, 5, b"k", b"a"), (topic, 6, None, b"b"), (topic, 7, b"k", b"c")])
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for one in records:
        producer.produce(topic, one.value, one.key, 0, timestamp=one.timestamp_ms)
    assert producer.flush(60) == 0
    rows = preview(program(topic), options(), spark=spark)
    writing = rows.writeStream.format("memory").queryName("shown").option("checkpointLocation", str(tmp_path / "c"))
    assert writing.trigger(availableNow=True).start().awaitTermination(300)
    counts = spark.table("shown").where("topic = 'counts'").orderBy("seq").collect()
    assert [bytes(row.value)[-1] for row in counts] == [1, 2]

    def two_steps() -> Topology:
        builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
        builder.stream(topic).group_by(lambda _, value: value).count(store="c")
        PROGRAMS["reduce"](builder.stream("more")).to("out")
        return builder.build()

    with pytest.raises(RefusedTopologyError, match="c-repartition: records would pass through another topic"):
        preview(two_steps, options(), spark=spark)
    with pytest.raises(ConfigError, match=f"topics cannot be given: the topology reads {topic}"):
        preview(program(topic), options(topics="x"), spark=spark)
    with pytest.raises(ConfigError, match="topic nowhere not found"):
        preview(program("nowhere"), options(), spark=spark)


def test_preview_of_what_cannot_travel_names_it(cluster: Cluster, spark: SparkSession, options: Any) -> None:
    topic = cluster.topic(1)
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    builder.stream(topic).to("out", value=Locked(), name="loud")
    wanted = r"preview of history: the value serde of node loud \(Locked\) cannot be sent .*lock.*module:name"
    with pytest.raises(StreamsError, match=wanted):
        preview(builder.build(), options(), spark=spark)
