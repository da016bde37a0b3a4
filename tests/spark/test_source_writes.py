"""Writing to a real broker with `streams-kafka`. The tests call the writer as Spark does, without Spark."""

from __future__ import annotations

import os
import pickle
import time
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.pandas.types import from_arrow_schema

from streams_py.errors import ConfigError, StreamsError
from streams_py.spark.columns import HEADERS
from streams_py.spark.kafka.source import StreamsKafkaSource
from streams_py.spark.kafka.writer import RangeCommit
from streams_py.topology.partitioning import murmur2
from tests.support.spark.cluster import Cluster
from tests.support.spark.source import Options, read

pytestmark = pytest.mark.broker

SCHEMA: Any = pa.schema(
    [("value", pa.binary()), ("topic", pa.string()), ("partition", pa.int32()), ("timestamp_ms", pa.int64()),
     ("key", pa.binary()), ("headers", HEADERS)]
)  # fmt: skip


def default_partition(key: bytes, count: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % count


def rows(*given: dict[str, Any]) -> Any:
    missing = {"timestamp_ms": None, "key": None, "value": None, "headers": None}
    return pa.RecordBatch.from_pylist([missing | row for row in given], schema=SCHEMA)


def write(given: dict[str, str], *batches: Any) -> RangeCommit:
    source = StreamsKafkaSource(CaseInsensitiveDict(given))
    writer = source.writer(schema=from_arrow_schema(batches[0].schema), overwrite=False)
    message = pickle.loads(pickle.dumps(writer)).write(iter(batches))
    assert isinstance(message, RangeCommit)
    writer.commit([message, None])
    return message


def test_rows_are_read_back_exactly(cluster: Cluster, options: Options) -> None:
    topic, other = cluster.topic(3), cluster.topic(1)
    headers = [{"key": "a", "value": None}, {"key": "a", "value": b""}]
    given = [
        {"topic": topic, "partition": 2, "timestamp_ms": 1_000, "key": b"k", "value": b"v", "headers": headers},
        {"topic": topic, "partition": 2, "timestamp_ms": 0, "key": b"", "value": None, "headers": None},
        {"topic": topic, "partition": 0, "timestamp_ms": 7, "key": None, "value": b"", "headers": None},
        {"topic": other, "partition": 0, "timestamp_ms": 0, "key": None, "value": b"first", "headers": None},
        {"topic": topic, "partition": 2, "timestamp_ms": 3, "key": b"k", "value": b"last", "headers": None},
    ]
    message = write(options(), rows(*given[:2]), rows(*given[2:]))
    assert message.records == 5
    assert message.offsets == {(topic, 0): (0, 0), (topic, 2): (0, 2), (other, 0): (0, 0)}
    found = read(options(topics=f"{topic},{other}"))
    keep = SCHEMA.names
    assert sorted(({k: row[k] for k in keep} for row in found), key=repr) == sorted(
        ({k: row[k] for k in keep} for row in given), key=repr
    )
    assert [row["value"] for row in found if row["partition"] == 2] == [b"v", None, b"last"]


def test_null_timestamp_is_the_time_of_writing_and_columns_may_be_missing(cluster: Cluster, options: Options) -> None:
    topic = cluster.topic(1)
    batch = pa.RecordBatch.from_pydict({"topic": [topic], "partition": pa.array([0], pa.int32()), "value": ["text"]})
    write(options(), batch)
    (row,) = read(options(topics=topic))
    assert row["value"] == b"text"
    assert row["timestamp_ms"] > 1_700_000_000_000


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"partition": 2}, "-2 does not exist: .* has 2 partitions; check the column"),
        ({"partition": -1}, "--1 does not exist"),
        ({"partition": None}, "a row has no partition"),
        ({"topic": None}, "a row has no topic"),
        ({"topic": "nothing-there"}, "topic nothing-there does not exist; create it"),
        ({"timestamp_ms": -1}, "has the timestamp -1"),
        ({"headers": [{"key": "a", "value": b"x"}, {"key": None, "value": b"x"}]}, "has a header without a key"),
        ({"headers": [None]}, "has a header without a key"),
        ({"headers": [{"key": "a\0b", "value": b"x"}]}, r"whose name contains the character NUL, 'a\\x00b'"),
    ],
)
def test_row_that_cannot_be_written_fails_the_task(
    row: dict[str, Any], message: str, cluster: Cluster, options: Options
) -> None:
    topic = cluster.topic(2)
    with pytest.raises(StreamsError, match=message):
        write(options(), rows({"topic": topic, "partition": 0, "value": b"v"} | row))
    assert read(options(topics=topic)) == []


def test_record_that_the_broker_refuses_fails_the_task_with_the_remedy(cluster: Cluster, options: Options) -> None:
    topic = cluster.topic(1, max_message_bytes="1000")
    with pytest.raises(StreamsError, match=f"{topic}-0 was not written: .*too large .*raise max.message.bytes of the"):
        write(options(), rows({"topic": topic, "partition": 0, "value": b"x" * 5_000}))
    second = rows(*({"topic": topic, "partition": 0, "value": value} for value in (b"x", b"x" * 5_000)))
    with pytest.raises(StreamsError, match=r"too large .*raise max.message.bytes"):
        write(options(), second)
    with pytest.raises(StreamsError, match=r"too large .*max.request.size \(message.max.bytes\) of the producer"):
        write(options(**{"kafka.message.max.bytes": 2_000}), second)


REFUSALS = {
    "no key": ({"cleanup_policy": "compact"}, {"key": None}, "no key"),
    "too far ahead": ({}, {"timestamp_ms": 9_000_000_000_000}, "key of 3 bytes"),
    "too large": ({"max_message_bytes": "3000"}, {"value": os.urandom(5_000)}, "key of 3 bytes"),
    "headers too large": (
        {"max_message_bytes": "3000"},
        {"headers": [{"key": "h", "value": os.urandom(5_000)}]},
        "key of 3 bytes",
    ),
    "key is text": ({}, {"timestamp_ms": 9_000_000_000_000}, "key of 3 bytes"),
}


@pytest.mark.parametrize("kind", REFUSALS)
@pytest.mark.parametrize("at", [0, 1_234])
def test_refused_record_is_named_by_its_number_and_place(
    cluster: Cluster, options: Options, kind: str, at: int, caplog: pytest.LogCaptureFixture
) -> None:
    config, change, shown = REFUSALS[kind]
    topic = cluster.topic(2, **config)
    now_ms = int(time.time() * 1000)
    given: list[dict[str, Any]] = [
        {"topic": topic, "partition": n % 2, "key": b"k%d" % (n % 10 + 10), "value": b"v", "timestamp_ms": now_ms}
        for n in range(2_000)
    ]
    given[at] |= change
    batch = rows(*given)
    if kind == "key is text":
        batch = batch.set_column(batch.schema.get_field_index("key"), "key", batch["key"].cast(pa.string()))
    with pytest.raises(StreamsError) as refused:
        write(options(), batch.slice(0, 700), batch.slice(700))
    text = str(refused.value)
    start = f"record {at + 1:,} of partition 0 of the DataFrame"
    assert text.startswith(f"{start} ({shown}): a record for {topic}-{at % 2} was not written: Broker: ")
    assert "process again" not in caplog.text
    for secret in ("k10", "k14"):
        assert secret not in text


def test_refused_record_with_timestamp_0_is_named(cluster: Cluster, options: Options) -> None:
    topic = cluster.topic(1, message_timestamp_before_max_ms="1000")
    given = [{"topic": topic, "partition": 0, "value": b"v", "timestamp_ms": ms} for ms in (None, 0, None)]
    with pytest.raises(StreamsError, match=rf"^record 2 of partition 0 of the DataFrame: .*{topic}-0"):
        write(options(), rows(*given))
    with pytest.raises(StreamsError, match=rf"^record 1 of partition 0 of the DataFrame: .*{topic}-0"):
        write(options(), rows(*given[1:]))


def test_small_records_are_written_although_together_they_are_too_large(cluster: Cluster, options: Options) -> None:
    topic = cluster.topic(1, max_message_bytes="2000")
    message = write(options(), rows(*({"topic": topic, "partition": 0, "value": b"%d" % n * 100} for n in range(200))))
    assert message.records == len(read(options(topics=topic))) == 200


def test_option_names_the_topic_and_keys_decide_the_partition(cluster: Cluster, options: Options) -> None:
    topic = cluster.topic(5)
    keys = [b"%d" % n for n in range(40)] + [b"", b"0", None, None, None, None, None]
    batch = pa.RecordBatch.from_pydict({"topic": ["elsewhere"] * len(keys), "key": keys, "value": keys})
    write(options(topic=topic), batch.slice(0, 20), batch.slice(20))
    found = read(options(topics=topic))
    keyed = {(row["key"], row["partition"]) for row in found if row["key"] is not None}
    assert keyed == {(key, default_partition(key, 5)) for key in keys if key is not None}
    assert sorted(row["partition"] for row in found if row["key"] is None) == [0, 1, 2, 3, 4]


def test_text_keys_go_where_their_bytes_go(cluster: Cluster, options: Options) -> None:
    topic = cluster.topic(5)
    write(options(topic=topic), pa.RecordBatch.from_pydict({"key": ["straße", "b"], "value": ["1", "2"]}))
    found = {row["key"]: row["partition"] for row in read(options(topics=topic))}
    assert found == {key: default_partition(key, 5) for key in ("straße".encode(), b"b")}


def test_topics_are_only_appended_to(options: Options) -> None:
    source = StreamsKafkaSource(CaseInsensitiveDict(options()))
    with pytest.raises(ConfigError, match="append"):
        source.writer(schema=from_arrow_schema(SCHEMA), overwrite=True)
    with pytest.raises(ConfigError, match="append"):
        source.streamWriter(schema=from_arrow_schema(SCHEMA), overwrite=True)
