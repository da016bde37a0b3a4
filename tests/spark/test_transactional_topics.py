"""All readers get the records of a plain consumer from topics that were written in transactions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import rocksdict
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from typer.testing import CliRunner

from streams_protocol.types import TopicPartition
from streams_py import StreamsConfig
from streams_py.adapters.confluent.bulk.bulk_settings import bulk_consumer_settings
from streams_py.adapters.confluent.bulk.range_reader import ReadLimits, first_record, read_messages
from streams_py.cli.commands import app as commands
from streams_py.clients.factory import KafkaClients
from streams_py.ports import ChangelogPart, SortedPart
from tests.support.spark.cluster import Cluster
from tests.support.spark.plain_records import KINDS, Plain, plain_records, written
from tests.support.spark.source import Options, micro_batch, read, stream
from tests.support.waiting import until

pytestmark = [pytest.mark.broker, pytest.mark.timeout(900)]

SIZE = 19_800
"""Number of records: more than one batch of the readers."""
_numbers = count()


@pytest.fixture(params=[*KINDS])
def topic(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[str]:
    name = cluster.topic(2)
    with written(cluster.bootstrap, name, request.param, SIZE, lambda at: b"w%d same" % (at % 7)):
        yield name


@pytest.fixture(params=["read_committed", "read_uncommitted"])
def isolation(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def of_rows(rows: list[dict[str, Any]]) -> list[Plain]:
    names = ("partition", "offset", "timestamp_ms", "key", "value")
    return [Plain(*(row[name] for name in names)) for row in rows]


def expected(cluster: Cluster, topic: str, isolation: str) -> list[Plain]:
    return plain_records(cluster.bootstrap, topic, read_committed=isolation == "read_committed")


def test_batch_reads_what_a_plain_consumer_reads(
    cluster: Cluster, topic: str, isolation: str, options: Options
) -> None:
    assert of_rows(read(options(topics=topic, isolation=isolation))) == expected(cluster, topic, isolation)
    cut = options(topics=topic, isolation=isolation, split_records=1_000, batch_records=300)
    assert of_rows(read(cut)) == expected(cluster, topic, isolation)


@pytest.mark.parametrize("rows", [None, 7_000])
def test_stream_reads_what_a_plain_consumer_reads_with_a_restart_in_the_middle(
    cluster: Cluster, topic: str, isolation: str, rows: int | None, options: Options
) -> None:
    given = options(topics=topic, isolation=isolation)
    limit = ReadAllAvailable() if rows is None else ReadMaxRows(rows)
    reader = stream(given)
    start, found = reader.initialOffset(), []
    for number in count():
        end = reader.latestOffset(start, limit)
        if end == start:
            break
        found += of_rows(micro_batch(reader, start, end))
        if number == 1:
            reader.stop()
            reader = stream(given)  # its offsets are all that is left
        start = end
    reader.stop()
    assert sorted(found) == expected(cluster, topic, isolation)


def test_ranges_of_a_history_have_what_a_plain_consumer_reads(cluster: Cluster, topic: str, isolation: str) -> None:
    settings = bulk_consumer_settings(
        {"bootstrap.servers": cluster.bootstrap}, client_id="test", read_committed=isolation == "read_committed"
    )
    found = []
    for partition, end in ends(cluster, topic, isolation).items():
        for some in read_messages(settings, topic, partition, 0, end, ReadLimits(2_000, 4 << 20)):
            found += [Plain(r.partition(), r.offset(), r.timestamp()[1], r.key(), r.value()) for r in some]
    assert found == expected(cluster, topic, isolation)


def ends(cluster: Cluster, topic: str, isolation: str) -> dict[int, int]:
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as Native

    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "ends", "isolation.level": isolation})
    try:
        found = {number: consumer.get_watermark_offsets(Native(topic, number), timeout=60) for number in range(2)}
    finally:
        consumer.close()
    return {number: high for number, (_, high) in found.items()}


def test_command_consume_prints_what_a_plain_consumer_reads(
    cluster: Cluster, topic: str, isolation: str, tmp_path: Path
) -> None:
    config = tmp_path / "streams.properties"
    config.write_text(f"isolation.level={isolation}\nmain.consumer.isolation.level={isolation}\n")
    place = ["--bootstrap", cluster.bootstrap, "--config", str(config)]
    result = CliRunner().invoke(commands, ["consume", topic, "--json", *place])
    assert result.exit_code == 0, result.output
    printed = [json.loads(line) for line in result.stdout.splitlines()]
    found = [
        Plain(one["partition"], one["offset"], one["timestamp"], one["key"].encode(), one["value"].encode())
        for one in printed
    ]
    assert sorted(found) == expected(cluster, topic, isolation)


def test_changelog_sorter_writes_what_a_plain_consumer_reads(
    cluster: Cluster, topic: str, isolation: str, tmp_path: Path
) -> None:
    guarantee = "exactly_once_v2" if isolation == "read_committed" else "at_least_once"
    given = {"application.id": "sorts", "bootstrap.servers": cluster.bootstrap, "processing.guarantee": guarantee}
    sorter = KafkaClients(StreamsConfig.of(given)).changelog_sorter("sorts-StreamThread-1")
    assert sorter is not None
    try:
        for partition, end in ends(cluster, topic, isolation).items():
            folder = tmp_path / str(partition)
            sorter.begin(ChangelogPart(TopicPartition(topic, partition), 0, end, str(folder), "1", stamped=False))
            found: list[SortedPart] = []
            until(
                lambda found=found: bool(found.append(part) or True) if (part := sorter.outcome()) else False, "a part"
            )
            of = [record for record in expected(cluster, topic, isolation) if record.partition == partition]
            assert found[0].records == len(of)
            assert found[0].last == (of[-1].offset if of else None)
            database: Any = rocksdict.Rdict(str(folder / "database"), rocksdict.Options(raw_mode=True))
            if found[0].files:
                database.ingest_external_file(list(found[0].files))
            assert dict(database.items()) == {record.key: record.value for record in of}
            database.close()
    finally:
        sorter.close()


def test_offsets_without_records_are_skipped_at_once(cluster: Cluster, options: Options) -> None:
    """With three offsets per micro-batch, 1000 aborted records would need more than 300 micro-batches."""
    name = cluster.topic(2)
    with written(cluster.bootstrap, name, "nothing but aborted", 1_000, lambda at: b"v"):
        pass
    reader = stream(options(topics=name, rows_per_trigger=3))
    start, steps = reader.initialOffset(), 0
    while (end := reader.latestOffset(start, ReadMaxRows(3))) != start:
        assert micro_batch(reader, start, end) == []
        start, steps = end, steps + 1
    reader.stop()
    assert steps == 1
    settings = bulk_consumer_settings({"bootstrap.servers": cluster.bootstrap}, client_id="test", read_committed=True)
    name = cluster.topic(2)
    with written(cluster.bootstrap, name, "aborted at the end", 40, lambda at: b"v"):
        pass
    plain = [record for record in plain_records(cluster.bootstrap, name) if record.partition == 0]
    assert first_record(settings, name, 0, 0, plain[-1].offset + 1, ReadLimits()) == plain[0].offset
    assert first_record(settings, name, 0, 0, plain[0].offset, ReadLimits()) == plain[0].offset
