"""Topologies over a history, on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from streams_py.errors import StreamsError
from streams_py.spark.history.run import Results, run
from tests.history_runs import Given, driven, folded
from tests.unit.history.test_runs import some_lines, word_count

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.timeout(900)]

COLUMNS = "topic string, partition int, offset bigint, timestamp_ms bigint, key binary, value binary"


def frame(spark: SparkSession, records: list[Given]) -> DataFrame:
    return spark.createDataFrame([record[:6] for record in records], COLUMNS)


def state_of(results: Results, changelog: str) -> dict[tuple[int, bytes], tuple[int, bytes, None]]:
    rows = results.changelogs[changelog].collect()
    return {(row.partition, bytes(row.key)): (row.timestamp_ms, bytes(row.value), None) for row in rows}


def test_word_count_over_parquet_leaves_the_changelog_of_a_live_run(spark: SparkSession, tmp_path: Path) -> None:
    records = some_lines(400, 3)
    archive = str(tmp_path / "archive")
    frame(spark, records).repartition(5).write.parquet(archive)
    live = driven(word_count(), records, 3, {"application.id": "history"})
    with run(word_count, {"lines": archive}, spark=spark) as results:
        assert state_of(results, "history-counts-changelog") == folded(live["history-counts-changelog"])
        assert results.sinks["totals"].count() == len(live["totals"])
        (first,) = [done for done in results.summaries()[0] if done.task == 0]
        assert first.positions["lines"][0] == max(record.offset for record in records if record.partition == 0) + 1


def test_what_user_code_raises_names_task_topic_partition_and_offset(spark: SparkSession) -> None:
    def broken() -> object:
        from streams_py import StreamsBuilder, serdes

        builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
        builder.stream("lines").map_values(lambda line: 1 // (len(line) - 4)).to("out", value=serdes.INT64)
        return builder.build()

    records = [Given("lines", 1, 5, 10, None, b"ok!"), Given("lines", 1, 9, 10, None, b"four")]
    with pytest.raises(StreamsError, match=r"MAPVALUES.*task 0_1.*lines-1 at offset 9.*division"):
        run(broken, {"lines": frame(spark, records)}, spark=spark)
