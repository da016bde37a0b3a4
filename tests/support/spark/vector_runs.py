"""A recorded program on Spark: its required results, even if workers are killed."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from streams_py.spark.history.run import Results, run
from tests.support.history.recorded_programs import CONFIG, alive, given_of, topology_of
from tests.support.history.runs import Given, Written, buffered, run_locally

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COLUMNS = (
    "topic string, partition int, offset bigint, timestamp_ms bigint, key binary, value binary, "
    "headers array<struct<key: string, value: binary>>"
)


def check_program(spark: SparkSession, id: str, partitions: int, *, work: str | None = None) -> None:
    """Assert that outputs and changelogs equal, byte for byte, the results of the same tasks with full buffers."""
    records = given_of(id, partitions)
    source = partial(topology_of, id)
    here = run_locally(source, records, partitions, CONFIG)
    live = buffered(source, records, partitions, CONFIG)
    topics = here.plan.inputs
    frames = {topic: _frame(spark, [given for given in records if given.topic == topic]) for topic in topics}
    with run(
        source, frames, config=CONFIG, partitions=topics, work=work, allow_side_effects=True, spark=spark
    ) as results:
        for topic in results.plan.changelogs:
            assert _state(results, topic) == alive(id, topic, live.get(topic, [])), f"{id}: {topic}"
        for topic in results.plan.sinks:
            written = _outputs(results, topic)
            assert written == here.records(topic), f"{id}: {topic}"
            assert Counter(written) == Counter(live.get(topic, [])), f"{id}: {topic}"


def _frame(spark: SparkSession, records: list[Given]) -> DataFrame:
    return spark.createDataFrame([tuple(record) for record in records], _COLUMNS)


def _outputs(results: Results, topic: str) -> list[Written]:
    return [_written(row) for row in results.sinks[topic].orderBy("source", "seq").collect()]


def _state(results: Results, topic: str) -> dict[Any, Any]:
    rows = [_written(row) for row in results.changelogs[topic].collect()]
    found = {(partition, key): (time_ms, value, headers) for _, partition, time_ms, key, value, headers in rows}
    assert len(found) == len(rows), f"{topic} has a key twice"
    return found


def _written(row: Any) -> Written:
    headers = tuple((one.key, _bytes(one.value)) for one in row.headers or ()) or None
    return row.topic, row.partition, row.timestamp_ms, _bytes(row.key), _bytes(row.value), headers


def _bytes(found: Any) -> bytes | None:
    return None if found is None else bytes(found)
