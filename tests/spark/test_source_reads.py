"""Reading from a real broker with `streams-kafka`. The tests call the readers as Spark does, without Spark."""

from __future__ import annotations

import gc

import pytest
from confluent_kafka import Producer
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from streams_py.errors import BrokerUnavailableError, ConfigError, OffsetOutOfRangeError, StreamsError
from streams_py.spark.kafka.source import StreamsKafkaSource
from tests.support.spark.cluster import Cluster
from tests.support.spark.source import Options, ends, micro_batch, numbered, offsets, produce, read, stream

pytestmark = pytest.mark.broker


@pytest.mark.smoke
def test_records_come_back_as_they_are(cluster: Cluster, options: Options) -> None:
    topic = cluster.topic()
    produce(cluster, topic, (0, None, b""), (0, b"", None), timestamp=5, headers=[("a", None), ("a", b""), ("b", b"x")])
    produce(cluster, topic, (1, b"k", b"v"), timestamp=1_700_000_000_123)
    rows = read(options(topics=topic))
    many = [{"key": "a", "value": None}, {"key": "a", "value": b""}, {"key": "b", "value": b"x"}]
    assert rows == [
        {"topic": topic, "partition": 0, "offset": 0, "timestamp_ms": 5, "timestamp_type": 0, "key": None,
         "value": b"", "headers": many},
        {"topic": topic, "partition": 0, "offset": 1, "timestamp_ms": 5, "timestamp_type": 0, "key": b"",
         "value": None, "headers": many},
        {"topic": topic, "partition": 1, "offset": 0, "timestamp_ms": 1_700_000_000_123, "timestamp_type": 0,
         "key": b"k", "value": b"v", "headers": None},
    ]  # fmt: skip


def test_append_time_is_told_from_create_time(cluster: Cluster, options: Options) -> None:
    topic = cluster.topic(1, message_timestamp_type="LogAppendTime")
    produce(cluster, topic, *numbered(1), timestamp=5)
    (row,) = read(options(topics=topic))
    assert row["timestamp_type"] == 1
    assert row["timestamp_ms"] > 1_700_000_000_000


def test_aborted_records_are_absent_and_markers_end_the_read(cluster: Cluster, options: Options) -> None:
    topic = cluster.topic(1)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    for value, commit in ((b"kept", True), (b"gone", False), (b"kept too", True), (b"gone too", False)):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush(30)
        producer.commit_transaction(30) if commit else producer.abort_transaction(30)
    rows = read(options(topics=topic))  # ends, although the last four offsets hold nothing to be seen
    assert [(row["offset"], row["value"]) for row in rows] == [(0, b"kept"), (4, b"kept too")]
    everything = read(options(topics=topic, isolation="read_uncommitted"))
    assert [row["value"] for row in everything] == [b"kept", b"gone", b"kept too", b"gone too"]


def test_open_transaction_ends_a_committed_read(cluster: Cluster, options: Options) -> None:
    topic = cluster.topic(1)
    produce(cluster, topic, *numbered(2))
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"undecided", partition=0)
    producer.flush(30)
    produce(cluster, topic, *numbered(1))
    assert offsets(read(options(topics=topic))) == [(0, 0), (0, 1)]
    assert len(read(options(topics=topic, isolation="read_uncommitted"))) == 4
    producer.abort_transaction(30)


def test_compacted_topic_is_read_over_its_gaps(cluster: Cluster, options: Options) -> None:
    topic = cluster.topic(
        1, cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.01", max_compaction_lag_ms="100",
        delete_retention_ms="60000",
    )  # fmt: skip
    for value in (b"1", b"2", b"3"):
        produce(cluster, topic, (0, b"same", value), (0, b"other", None))
    for _ in range(600):  # the cleaner comes when it comes; a record closes the segment before
        produce(cluster, topic, (0, b"last", b"x"))
        found = offsets(read(options(topics=topic)))
        if found[0] != (0, 0):
            break
    assert found[0][1] > 0
    keys = [row["key"] for row in read(options(topics=topic)) if row["offset"] < 6]
    assert keys.count(b"same") <= 1


def test_range_is_read_in_pieces_that_fit(cluster: Cluster, options: Options) -> None:
    topic = cluster.topic(1)
    produce(cluster, topic, *[(0, None, b"x" * 1000) for _ in range(3_000)])
    given = options(topics=topic, batch_records=700, batch_bytes=300_000)
    reader = StreamsKafkaSource(CaseInsensitiveDict(given)).reader(schema=None)
    (partition,) = reader.partitions()
    thresholds = gc.get_threshold()
    sizes = [batch.num_rows for batch in reader.read(partition)]
    assert sum(sizes) == 3_000
    assert max(sizes) <= 700
    assert gc.get_threshold() == thresholds  # changed only while reading
    split = StreamsKafkaSource(CaseInsensitiveDict(options(topics=topic, split_records=1000))).reader(schema=None)
    assert len(split.partitions()) == 3
    assert offsets(read(options(topics=topic, split_records=1000))) == [(0, n) for n in range(3_000)]


def test_positions_of_every_form(cluster: Cluster, options: Options) -> None:
    topic = cluster.topic(2)
    for n in range(6):
        produce(cluster, topic, (0, None, b"v"), timestamp=1_000 + n)
    given = options(topics=topic, starting="timestamp:1004")
    assert offsets(read(given)) == [(0, 4), (0, 5)]
    given = options(topics=topic, starting=f'{{"{topic}":{{"0":2,"1":0}}}}', ending="timestamp:1004")
    assert offsets(read(given)) == [(0, 2), (0, 3)]
    assert offsets(read(options(assign=f'{{"{topic}":[1]}}'))) == []
    with pytest.raises(ConfigError, match=r"offset 7 of .* is after the end of the log, 6"):
        read(options(topics=topic, starting=f'{{"{topic}":{{"0":7,"1":0}}}}'))


def test_committed_offsets_of_a_group_are_a_position(cluster: Cluster, options: Options) -> None:
    from confluent_kafka import Consumer, TopicPartition

    topic = cluster.topic(2)
    produce(cluster, topic, *numbered(5), *numbered(2, 1))
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": f"group-{topic}"})
    consumer.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
    consumer.close()
    assert offsets(read(options(topics=topic, starting=f"group:group-{topic}"))) == [(0, 3), (0, 4), (1, 0), (1, 1)]
    assert offsets(read(options(topics=topic, ending=f"group:group-{topic}"))) == [(0, 0), (0, 1), (0, 2)]


def test_offset_that_retention_deleted_is_an_error_with_both_numbers(cluster: Cluster, options: Options) -> None:
    topic = cluster.topic(1)
    produce(cluster, topic, *numbered(10))
    reader = StreamsKafkaSource(CaseInsensitiveDict(options(topics=topic))).reader(schema=None)
    (partition,) = reader.partitions()
    cluster.delete_before(topic, 0, 4)  # between planning and reading
    with pytest.raises(
        OffsetOutOfRangeError, match=r"OFFSET_GONE: offset 0 of .* was deleted, the first one left is 4"
    ):
        list(reader.read(partition))
    given = options(topics=topic, starting=f'{{"{topic}":{{"0":1}}}}', on_gone="skip")
    assert offsets(read(given)) == [(0, n) for n in range(4, 10)]


def test_topic_recreated_between_planning_and_reading_is_an_error(cluster: Cluster, options: Options) -> None:
    topic = cluster.topic(1)
    produce(cluster, topic, *numbered(10))
    given = options(topics=topic, starting=f'{{"{topic}":{{"0":5}}}}', poll_timeout_ms=3_000)
    reader = StreamsKafkaSource(CaseInsensitiveDict(given)).reader(schema=None)
    (partition,) = reader.partitions()
    cluster.delete(topic)
    cluster.topic(1, name=topic)
    produce(cluster, topic, *numbered(2))
    with pytest.raises(StreamsError, match="created again"):
        list(reader.read(partition))


def test_broker_that_is_not_there_is_named(options: Options) -> None:
    given = options(topics="t", poll_timeout_ms=500) | {"kafka.bootstrap.servers": "127.0.0.1:1"}
    with pytest.raises(BrokerUnavailableError, match=r"127\.0\.0\.1:1"):
        read(given)


def test_missing_topic_is_not_created(cluster: Cluster, options: Options) -> None:
    for _ in range(2):
        with pytest.raises(ConfigError, match="topic nothing-here not found on"):
            read(options(topics="nothing-here"))


# -- streams -----------------------------------------------------------------------------------------------------------


def test_stream_reads_everything_once_also_new_partitions(cluster: Cluster, options: Options) -> None:
    topic = cluster.topic(1)
    produce(cluster, topic, *numbered(5))
    reader = stream(options(topics=topic))
    start = reader.initialOffset()
    assert start == {f"{topic}/0": 0, topic: start[topic]}
    middle = reader.latestOffset(start, ReadAllAvailable())
    assert middle == {f"{topic}/0": 5, topic: start[topic]}
    cluster.add_partitions(topic, 2)
    produce(cluster, topic, *numbered(3, 1), (0, b"k", b"v"))
    reader.stop()
    reader = stream(options(topics=topic))  # a restart: only the offsets survive
    end = reader.latestOffset(middle, ReadAllAvailable())
    assert end == {f"{topic}/0": 6, f"{topic}/1": 3, topic: start[topic]}
    rows = micro_batch(reader, start, middle) + micro_batch(reader, middle, end)
    assert sorted(offsets(rows)) == [*((0, n) for n in range(6)), *((1, n) for n in range(3))]
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    assert micro_batch(reader, end, end) == []
    reader.stop()


def test_stream_keeps_its_limit_and_the_target_of_available_now(cluster: Cluster, options: Options) -> None:
    topic = cluster.topic(2)
    produce(cluster, topic, *numbered(30), *numbered(10, 1))
    reader = stream(options(topics=topic, rows_per_trigger=20))
    assert reader.getDefaultReadLimit() == ReadMaxRows(20)
    start = reader.initialOffset()
    assert ends(reader.latestOffset(start, ReadMaxRows(20))) == {f"{topic}/0": 15, f"{topic}/1": 5}
    reader.prepareForTriggerAvailableNow()
    produce(cluster, topic, *numbered(5))
    assert ends(reader.latestOffset(start, ReadAllAvailable())) == {f"{topic}/0": 30, f"{topic}/1": 10}
    reader.stop()


@pytest.mark.parametrize("count", [2, 20], ids=["shorter", "longer"])
def test_stream_stops_when_its_topic_was_recreated(count: int, cluster: Cluster, options: Options) -> None:
    topic = cluster.topic(1)
    produce(cluster, topic, *numbered(10))
    reader = stream(options(topics=topic))
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    cluster.delete(topic)
    with pytest.raises(StreamsError, match="does not exist"):
        reader.latestOffset(end, ReadAllAvailable())
    cluster.topic(1, name=topic)
    produce(cluster, topic, *numbered(count))
    with pytest.raises(StreamsError, match="deleted and created again"):
        reader.latestOffset(end, ReadAllAvailable())
    reader.stop()


def test_topic_recreated_longer_while_the_query_was_stopped_is_noticed(cluster: Cluster, options: Options) -> None:
    topic = cluster.topic(1)
    produce(cluster, topic, *numbered(5))
    reader = stream(options(topics=topic))
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    reader.stop()
    cluster.delete(topic)
    cluster.topic(1, name=topic)
    produce(cluster, topic, *numbered(20))
    for ask in (
        lambda again: again.latestOffset(end, ReadAllAvailable()),
        lambda again: again.partitions(start, end),  # a micro-batch that was planned, but not done
    ):
        reader = stream(options(topics=topic))  # all that is left of the first one are its offsets
        with pytest.raises(StreamsError, match=f"topic {topic} is another one .* deleted and created again"):
            ask(reader)
        reader.stop()
    reader = stream(options(topics=topic))
    reader.latestOffset(ends(end), ReadAllAvailable())  # of an older release: nothing is known of its topic
    reader.stop()


def test_stream_with_a_pattern_reads_topics_that_come_later(cluster: Cluster, options: Options) -> None:
    first = cluster.topic(1)
    produce(cluster, first, *numbered(3))
    reader = stream(options(topics_pattern=f"{first}(-more)?", starting="latest"))
    start = reader.initialOffset()
    assert ends(start) == {f"{first}/0": 3}
    second = cluster.topic(1, name=f"{first}-more")
    produce(cluster, second, *numbered(2))
    end = reader.latestOffset(start, ReadAllAvailable())
    assert ends(end) == {f"{first}/0": 3, f"{second}/0": 2}
    assert [row["topic"] for row in micro_batch(reader, start, end)] == [second] * 2
    cluster.delete(second)
    with pytest.raises(StreamsError, match="does not exist"):
        reader.latestOffset(end, ReadAllAvailable())
    reader.stop()


def test_timestamps_by_partition_and_pieces_on_a_broker(cluster: Cluster, options: Options) -> None:
    topic = cluster.topic(2)
    for n in range(6):
        produce(cluster, topic, (0, None, b"v"), (1, None, b"v"), timestamp=1_000 + n)
    given = options(topics=topic, starting=f'timestamp:{{"{topic}":{{"0":1004,"1":1005}}}}', min_partitions=3)
    assert offsets(read(given)) == [(0, 4), (0, 5), (1, 5)]
    assert len(StreamsKafkaSource(CaseInsensitiveDict(given)).reader(schema=None).partitions()) == 3
