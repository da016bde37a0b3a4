"""The order in which tasks of a stage start, on Spark."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from streams_py.spark.history.largest_first import spark_partition
from streams_py.spark.history.run import run
from streams_py.topology.partitioning import partition_for
from tests.support.history.runs import Given
from tests.support.spark.frames import frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.timeout(900)]


def test_largest_tasks_of_a_stage_begin_first(spark: SparkSession) -> None:
    def placed() -> object:
        from pyspark import TaskContext

        from streams_py import StreamsBuilder, serdes

        def place(_: object) -> str:
            context = TaskContext.get()
            assert context is not None
            return str(context.partitionId())

        builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
        lines = builder.stream("lines")
        lines.map_values(place).to("first")
        lines.select_key(lambda _, word: word).repartition().map_values(place).to("second")
        return builder.build()

    words = [b"w%d" % at for at in range(40)]
    times = {word: 30 if partition_for(word, 4) == 2 else 10 if partition_for(word, 4) == 3 else 1 for word in words}
    lines = [word for word in words for _ in range(times[word])]
    of_partition = [1, 1, 1, 1, 3, 3, 2]  # none of 0, most of 1
    offsets = Counter[int]()
    records = []
    for at, word in enumerate(lines):
        partition = of_partition[at % len(of_partition)]
        records.append(Given("lines", partition, offsets[partition], at, None, word))
        offsets[partition] += 1
    with run(placed, {"lines": frame(spark, records)}, spark=spark) as results:
        for topic, taken in (("first", offsets), ("second", Counter(partition_for(word, 4) for word in lines))):
            rows = results.sinks[topic].collect()
            found = {row.source & 0xFFFF: int(row.value) for row in rows}
            wanted = sorted(taken, key=lambda task: (-taken[task], task))
            assert len({*taken.values()}) > 1, "some are larger"
            assert sorted(found, key=lambda task: found[task]) == wanted
            assert len({(row.source, row.value) for row in rows}) == len(wanted), "each task has one place"


def test_rows_of_a_task_that_there_is_not_are_not_lost_on_their_way(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(at,) for at in (0, 1, 2, 3, 9)], "partition int")
    placed = rows.repartitionById(4, spark_partition(4, {2: 50, 1: 7})).selectExpr(
        "partition", "spark_partition_id() at"
    )
    assert sorted((row.partition, row.at) for row in placed.collect()) == [(0, 2), (1, 1), (2, 0), (3, 3), (9, 1)]
