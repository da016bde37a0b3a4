"""Complete commands over each kind of topic process exactly the records that a plain consumer reads."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import typer
from confluent_kafka import Producer
from kafka import KafkaProducer
from typer.testing import CliRunner, Result

from streams_py.cli.commands import app as commands
from streams_py.cli.spark.bootstrap import bootstrap_app
from streams_py.cli.spark.telemetry import app as telemetry
from streams_py.telemetry.schemas import TABLES
from tests.support.spark.cluster import Cluster
from tests.support.spark.plain import await_decided, plain_messages, plain_records, transactional
from tests.support.spark.telemetry import GROUP, check_tables, expected
from tests.support.telemetry.golden import stored
from tests.support.telemetry.history import Stored

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.broker, pytest.mark.timeout(1800)]

PARTITIONS = 2
NOW_MS = 1_700_000_000_000
PROGRAM = """
from streams_py import StreamsBuilder, serdes


def copied():
    builder = StreamsBuilder(key=serdes.BYTES, value=serdes.BYTES)
    builder.stream({topic!r}).to({out!r})
    return builder.build()


def dropped():
    builder = StreamsBuilder(key=serdes.BYTES, value=serdes.BYTES)
    builder.stream({topic!r}).filter(lambda key, value: False).to({out!r})
    return builder.build()


def counted():
    builder = StreamsBuilder(key=serdes.BYTES, value=serdes.BYTES)
    builder.stream({topic!r}).group_by_key().count(store="counts")
    return builder.build()
"""


class Given(NamedTuple):
    """A record to be written."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int = NOW_MS
    headers: tuple[tuple[str, bytes | None], ...] = ()


def some(count: int) -> list[Given]:
    return [Given(b"k%d" % (n % 9), b"v%d" % n, NOW_MS + n) for n in range(count)]


def write(cluster: Cluster, topic: str, records: list[Given], **settings: Any) -> None:
    producer = settings.pop("producer", None) or Producer({"bootstrap.servers": cluster.bootstrap, **settings})
    for number, given in enumerate(records):
        producer.produce(topic, given.value, given.key, number % PARTITIONS, None, None, given.timestamp_ms,
                         list(given.headers))  # fmt: skip
    assert producer.flush(60) == 0


@contextmanager
def compacted(cluster: Cluster) -> Iterator[str]:
    """Compaction has deleted most records of a key, with their offsets."""
    topic = cluster.topic(
        PARTITIONS,
        cleanup_policy="compact",
        segment_ms="100",
        min_cleanable_dirty_ratio="0.01",
        delete_retention_ms="0",
    )
    for turn in range(5):
        records = [Given(b"k%d" % n, None if n == 4 else b"v%d" % turn, NOW_MS + 10_000 * turn) for n in range(12)]
        write(cluster, topic, records)
    while len(plain_records(cluster.bootstrap, topic, PARTITIONS)) >= 48:
        pass
    cluster.set_config(topic, min_compaction_lag_ms="3600000000000")  # what is left stays
    before = None
    while before != (before := plain_records(cluster.bootstrap, topic, PARTITIONS)):
        pass
    yield topic


@contextmanager
def emptied(cluster: Cluster) -> Iterator[str]:
    topic = cluster.topic(PARTITIONS)
    write(cluster, topic, some(40))
    for partition in range(PARTITIONS):
        cluster.delete_before(topic, partition, 20)
    yield topic


@contextmanager
def log_start_above_0(cluster: Cluster) -> Iterator[str]:
    topic = cluster.topic(PARTITIONS)
    write(cluster, topic, some(60))
    cluster.delete_before(topic, 0, 11)
    cluster.delete_before(topic, 1, 30)
    yield topic


def decided(cluster: Cluster, topic: str, outcomes: str) -> None:
    """A transaction for each letter: c is committed, a aborted."""
    producer = transactional(cluster.bootstrap, topic)
    for outcome in outcomes:
        producer.begin_transaction()
        write(cluster, topic, some(20), producer=producer)
        producer.commit_transaction(60) if outcome == "c" else producer.abort_transaction(60)
    await_decided(cluster.bootstrap, topic, PARTITIONS)


@contextmanager
def aborted_at_the_end(cluster: Cluster) -> Iterator[str]:
    topic = cluster.topic(PARTITIONS)
    decided(cluster, topic, "caccaa")
    yield topic


@contextmanager
def markers_only(cluster: Cluster) -> Iterator[str]:
    """All records are deleted, and only markers remain."""
    topic = cluster.topic(PARTITIONS)
    decided(cluster, topic, "cc")
    for partition in range(PARTITIONS):
        cluster.delete_before(topic, partition, 21)
    yield topic


@contextmanager
def open_transaction(cluster: Cluster) -> Iterator[str]:
    topic = cluster.topic(PARTITIONS)
    decided(cluster, topic, "cc")
    producer = transactional(cluster.bootstrap, f"{topic}-open")
    producer.begin_transaction()
    write(cluster, topic, some(10), producer=producer)
    write(cluster, topic, some(10))
    yield topic
    producer.abort_transaction(60)


@contextmanager
def odd_times(cluster: Cluster) -> Iterator[str]:
    topic = cluster.topic(PARTITIONS)
    write(cluster, topic, [Given(b"k%d" % n, b"v", at) for n, at in enumerate([1, 5, NOW_MS, 2, 86_400_000, 1_000])])
    # librdkafka takes 0 for the time of writing.
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap, acks="all")
    for number in range(6):
        producer.send(topic, b"v", b"k%d" % number, partition=number % PARTITIONS, timestamp_ms=0).get(60)
    producer.close()
    write(cluster, topic, some(4))
    assert {record.timestamp_ms for record in plain_records(cluster.bootstrap, topic, PARTITIONS)} >= {0, 1, NOW_MS}
    yield topic


@contextmanager
def compressed(cluster: Cluster) -> Iterator[str]:
    topic = cluster.topic(PARTITIONS)
    for codec in ("gzip", "snappy", "lz4", "zstd", "none"):
        write(cluster, topic, [Given(b"%d" % n, codec.encode() * 99) for n in range(30)], **{"compression.type": codec})
    yield topic


@contextmanager
def nulls_and_headers(cluster: Cluster) -> Iterator[str]:
    topic = cluster.topic(PARTITIONS)
    headers = ((), (("a", None),), (("a", b""), ("a", b"1"), ("a", b"1")), (("", b"x"),), (("n\u00e4me", b"x"),))
    both = (None, b"", b"b")
    write(cluster, topic, [Given(key, value, NOW_MS, of) for key in both for value in both for of in headers])
    yield topic


Kind = Callable[[Cluster], AbstractContextManager[str]]
KINDS: list[Kind] = [
    compacted, emptied, log_start_above_0, aborted_at_the_end, markers_only, open_transaction, odd_times, compressed,
    nulls_and_headers,
]  # fmt: skip


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def topic(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[str]:
    with request.param(cluster) as name:
        yield name


class Record(NamedTuple):
    """A record in the output of a command, or of a plain consumer."""

    place: tuple[int, int]
    timestamp_ms: int
    key: Any
    value: Any
    headers: tuple[tuple[str, Any], ...]


def there(cluster: Cluster, topic: str, shown: Callable[[bytes | None], Any]) -> list[Record]:
    """The records of a plain consumer, with keys, values and headers in the form of a command's output."""
    return [
        Record(
            (message.partition() or 0, message.offset() or 0),
            message.timestamp()[1],
            shown(message.key()),
            shown(message.value()),
            tuple((name, None if data is None else data.decode()) for name, data in message.headers() or ()),
        )
        for message in plain_messages(cluster.bootstrap, topic, PARTITIONS)
    ]


def test_consume_prints_what_a_plain_consumer_reads(cluster: Cluster, topic: str, tmp_path: Path) -> None:
    config = tmp_path / "streams.properties"
    config.write_text("isolation.level=read_committed\nmain.consumer.isolation.level=read_committed\n")
    given = ["consume", topic, "--json", "--key", "bytes", "--value", "bytes", "--bootstrap", cluster.bootstrap]
    result = CliRunner().invoke(commands, [*given, "--config", str(config)])
    assert result.exit_code == 0, result.output
    printed = [json.loads(line) for line in result.stdout.splitlines()]
    found = [
        Record(
            (one["partition"], one["offset"]),
            one["timestamp"],
            one["key"],
            one["value"],
            tuple(map(tuple, one["headers"])),
        )
        for one in printed
    ]

    def shown(data: bytes | None) -> Any:
        return None if data is None else {"base64": base64.b64encode(data).decode()}

    assert sorted(found, key=lambda record: record.place) == there(cluster, topic, shown)


def test_diff_compares_what_a_plain_consumer_reads(
    spark: SparkSession, cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    """Compare with a version that writes nothing, so only the old version writes each record."""
    program, report = tmp_path / "app.py", tmp_path / "report.json"
    program.write_text(PROGRAM.format(topic=topic, out="out"))
    given = ["diff", f"{program}:copied", f"{program}:dropped", "--sample", "1000", "--report", str(report)]
    result = CliRunner().invoke(commands, [*given, "--bootstrap", cluster.bootstrap])
    wanted = there(cluster, topic, lambda data: None if data is None else data.decode())
    assert result.exit_code == (1 if wanted else 0), result.output
    found = json.loads(report.read_text())["out"]
    assert (found["same"], found["only_old"], found["only_new"]) == (0, len(wanted), 0)
    rows = [row for which, row in found["sample"] if which == "old"]
    shown = {(row["timestamp_ms"], row["key"], row["value"], tuple(map(tuple, row.get("headers", ())))) for row in rows}
    assert shown == {record[1:] for record in wanted}


def do(app: typer.Typer, *arguments: str, status: int = 0) -> str:
    result: Result = CliRunner().invoke(app, arguments)
    assert result.exit_code == status, result.output
    return " ".join(result.output.split())


def test_warm_start_counts_what_a_plain_consumer_reads(
    spark: SparkSession, cluster: Cluster, topic: str, tmp_path: Path
) -> None:
    program, group = tmp_path / "app.py", f"{topic}-group"
    program.write_text(PROGRAM.format(topic=topic, out="out"))
    place = ["--plan", str(tmp_path / "plan.json"), "--bootstrap", cluster.bootstrap]
    allowed = ["--accept-partial-history", "--application-id", group]
    do(bootstrap_app, "plan", f"{program}:counted", *allowed, *place)
    do(bootstrap_app, "run", *place)
    records = plain_records(cluster.bootstrap, topic, PARTITIONS)
    assert f"a second client counted {len(records):,} records" in do(bootstrap_app, "verify", *place)
    do(bootstrap_app, "commit", *place)
    last: dict[tuple[int, bytes | None], bytes | None] = {}
    for record in plain_records(cluster.bootstrap, f"{group}-counts-changelog", PARTITIONS):
        last[record.partition, record.key] = record.value
    found = {at: int.from_bytes((value or b"")[-8:]) for at, value in last.items()}
    counted = [record for record in records if record.key is not None and record.value is not None]
    assert found == Counter((record.partition, record.key) for record in counted)


# -- telemetry ---------------------------------------------------------------------------------------------------------


def events(cluster: Cluster, topic: str, records: list[Stored], **settings: Any) -> None:
    producer = settings.pop("producer", None) or Producer({"bootstrap.servers": cluster.bootstrap, **settings})
    for record in records:
        producer.produce(topic, record.value, partition=0, timestamp=record.append_ms)
    assert producer.flush(60) == 0


@contextmanager
def events_behind_deleted_ones(cluster: Cluster, topic: str) -> Iterator[None]:
    events(cluster, topic, stored())
    cluster.delete_before(topic, 0, 7)
    yield


@contextmanager
def events_in_an_emptied_topic(cluster: Cluster, topic: str) -> Iterator[None]:
    events(cluster, topic, stored()[:9])
    cluster.delete_before(topic, 0, 9)
    events(cluster, topic, stored())
    yield


@contextmanager
def events_before_aborted_and_open_ones(cluster: Cluster, topic: str) -> Iterator[None]:
    producer, records = transactional(cluster.bootstrap, topic), stored()
    for some_of, is_aborted in ((records[:14], False), (records[3:9], True), (records[14:], False), (records, True)):
        producer.begin_transaction()
        events(cluster, topic, some_of, producer=producer)
        producer.abort_transaction(60) if is_aborted else producer.commit_transaction(60)
    await_decided(cluster.bootstrap, topic, 1)
    producer.begin_transaction()
    events(cluster, topic, records, producer=producer)
    yield
    producer.abort_transaction(60)


@contextmanager
def compressed_events(cluster: Cluster, topic: str) -> Iterator[None]:
    for number, codec in enumerate(("gzip", "snappy", "lz4", "zstd")):
        events(
            cluster,
            topic,
            stored()[number * 9 : None if number == 3 else number * 9 + 9],
            **{"compression.type": codec},
        )
    yield


@pytest.mark.parametrize(
    "kind",
    [
        events_behind_deleted_ones, events_in_an_emptied_topic, events_before_aborted_and_open_ones, compressed_events,
    ],
)  # fmt: skip
def test_telemetry_has_the_events_that_a_plain_consumer_reads(
    kind: Callable[[Cluster, str], AbstractContextManager[None]], spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    topic, tables = cluster.topic(1), tmp_path / "tables"
    given = ["run", "--group", GROUP, "--once", "--tables", str(tables), "--bootstrap", cluster.bootstrap]
    with kind(cluster, topic):
        do(telemetry, *given, "--option", f"topics={topic}")
        records = [
            Stored(at.timestamp_ms, at.offset, at.value or b"") for at in plain_records(cluster.bootstrap, topic, 1)
        ]
    wanted = expected(records)
    check_tables(spark, tables, wanted, *(table for table in TABLES if wanted[table]))


def test_telemetry_of_a_topic_that_was_created_again_is_refused_and_its_tables_stay(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    topic, tables = cluster.topic(1), tmp_path / "tables"
    given = ["run", "--group", GROUP, "--once", "--tables", str(tables), "--bootstrap", cluster.bootstrap]
    events(cluster, topic, stored()[:20])
    do(telemetry, *given, "--option", f"topics={topic}")
    cluster.delete(topic)
    cluster.topic(1, name=topic)
    events(cluster, topic, stored())
    assert "is another one than this query has read" in do(telemetry, *given, "--option", f"topics={topic}", status=1)
    wanted = expected(stored()[:20])
    check_tables(spark, tables, wanted, *(table for table in TABLES if wanted[table]))
