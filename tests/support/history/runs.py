"""Runs over a history without Spark: the same kernel, with Python's sort instead of Spark's shuffle and sort.

Also runs the same records through the tasks of the test driver, for comparison.

"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa

from streams_protocol.types import TaskId, TopicPartition
from streams_py.history.loading import GivenTopology, TopologySource
from streams_py.history.plan import HistoryPlan, external_topics, plan_history
from streams_py.history.records import HistoryRecord
from streams_py.history.task import StageOrders
from streams_py.runtime.offline.executor import TaskEnvironment, TaskExecutor
from streams_py.spark.columns import HEADERS
from streams_py.spark.history.blocks import RECORD, STATE, unpacked
from streams_py.spark.history.kernel import stage_kernel
from streams_py.spark.history.order import ORDER
from streams_py.spark.history.portions import OfBlocks, blocks_of_rows, timed_blocks
from streams_py.state.directory.state_directory import StateDirectory
from streams_py.testing import TopologyTestDriver
from streams_py.testing.memory_clients import ManualClock, MemoryProducer, MemoryRecord
from streams_py.topology.partitioning import partition_for
from streams_py.topology.topology import Topology

_INPUT = pa.schema(
    [
        ("task", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp_ms", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
    ]
)
Headers = Sequence[tuple[str, bytes | None]] | None
Written = tuple[str, int, int, bytes | None, bytes | None, Headers]
"""(topic, partition, timestamp, key, value, headers)."""


class Given(NamedTuple):
    """An input record."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = None


def numbered(records: Iterable[tuple[str, int, bytes | None, bytes | None]], partitions: int = 1) -> list[Given]:
    """Return records given as (topic, timestamp, key, value) with partitions and offsets."""
    ends: dict[tuple[str, int], int] = {}
    made = []
    for topic, timestamp_ms, key, value in records:
        partition = 0 if key is None else partition_for(key, partitions)
        offset = ends.get((topic, partition), 0)
        ends[topic, partition] = offset + 1
        made.append(Given(topic, partition, offset, timestamp_ms, key, value))
    return made


@dataclass
class LocalRun:
    """The output: records by topic in the order of (source, seq), and compacted changelogs."""

    plan: HistoryPlan
    blocks: list[dict[str, Any]] = field(default_factory=list)
    largest_batch_bytes: int = 0

    def records(self, topic: str) -> list[Written]:
        found = [row for row in self._rows(RECORD) if row["topic"] == topic]
        return [_written(row) for row in sorted(found, key=lambda row: (row["source"], row["seq"]))]

    def folded(self, changelog: str) -> list[Written]:
        """Return the compacted changelog, in the format in which it is written."""
        return [_written(row) for row in self._rows(STATE) if row["topic"] == changelog]

    @property
    def state(self) -> dict[str, dict[tuple[int, bytes], tuple[int, bytes | None, Headers]]]:
        """Changelog topic -> (partition, key) -> (timestamp, value, headers)."""
        made: dict[str, Any] = {}
        for row in self._rows(STATE):
            topic, partition, timestamp_ms, key, value, headers = _written(row)
            made.setdefault(topic, {})[partition, key] = timestamp_ms, value, headers
        return made

    def _rows(self, channel: int) -> list[dict[str, Any]]:
        blocks = [block for block in self.blocks if block["channel"] == channel]
        return [row for batch in unpacked(_batches(blocks)) for row in batch.to_pylist()]


def _written(row: dict[str, Any]) -> Written:
    headers = tuple((header["key"], header["value"]) for header in row["headers"] or ()) or None
    return row["topic"], row["partition"], row["timestamp_ms"], row["key"], row["value"], headers


def run_locally(
    topology: GivenTopology,
    records: Sequence[Given],
    partitions: Mapping[str, int] | int = 1,
    config: Mapping[str, Any] | None = None,
    *,
    outputs: Mapping[str, int] | None = None,
    batch_rows: int = 7,
) -> LocalRun:
    """Run all stages. ``partitions``: of every external topic, or of each. ``outputs``: topics to write."""
    settings = {"application.id": "test", **(config or {})}
    name = str(settings["application.id"])
    source = TopologySource(topology, settings)
    described = source.build()
    inputs = external_topics(described.metadata(name, settings))
    counts = dict.fromkeys(inputs, partitions) if isinstance(partitions, int) else dict(partitions)
    run = LocalRun(plan_history(described, name, settings, counts, outputs))
    tables = {topic: partial(_of_table, records, topic) for topic in described.global_topics}
    for stage in run.plan.stages:
        orders = StageOrders(source, settings, stage, tables=tables)
        given = {topic: _rows(records, topic, batch_rows) for topic in stage.inputs if topic not in stage.upstream}
        by_offset = len(given) == len(stage.inputs) == 1
        blocks = [block for block in run.blocks if block["channel"] == RECORD and block["topic"] in stage.upstream]
        for topic, rows in given.items():
            found = _sorted(block for batch in blocks_of_rows(topic, rows) for block in batch.to_pylist())
            if not by_offset:
                found = [block for batch in timed_blocks(topic, orders, _batches(found)) for block in batch.to_pylist()]
            blocks += found
        batches, reader = _batches(_sorted(blocks)), OfBlocks(by_offset)
        kernel = stage_kernel(orders, reader)
        for batch in kernel(batches):
            run.blocks += batch.to_pylist()
            run.largest_batch_bytes = max(run.largest_batch_bytes, batch.nbytes)
    return run


def _of_table(records: Iterable[Given], topic: str) -> list[list[HistoryRecord]]:
    """Return the records that fill a global table, unchanged."""
    return [
        [HistoryRecord((*given[:3], given.key, given.value, (1, given.timestamp_ms), None))]
        for given in records
        if given.topic == topic
    ]


def _sorted(blocks: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(blocks, key=lambda block: [block[name] for name in ORDER])


def _batches(blocks: list[dict[str, Any]]) -> Iterator[Any]:
    return (pa.RecordBatch.from_pylist(blocks[at : at + 3]) for at in range(0, len(blocks), 3))


def _rows(records: Iterable[Given], topic: str, size: int) -> Iterable[Any]:
    """Return batches of one topic's records as Spark passes them to a worker."""
    rows = [
        {
            "task": given.partition,
            "offset": given.offset,
            "timestamp_ms": given.timestamp_ms,
            "key": given.key,
            "value": given.value,
            "headers": [{"key": key, "value": value} for key, value in given.headers or ()] or None,
        }
        for given in records
        if given.topic == topic
    ]
    random.Random(len(rows)).shuffle(rows)
    return (pa.RecordBatch.from_pylist(rows[at : at + size], schema=_INPUT) for at in range(0, len(rows), size))


def driven(
    topology: Topology, records: Iterable[Given], partitions: int = 1, config: Mapping[str, Any] | None = None
) -> dict[str, list[Written]]:
    """Return topic -> records that the test driver's tasks write for these records, given one after the other."""
    made: dict[str, list[Written]] = {}
    with TopologyTestDriver(topology, config, partitions=partitions) as driver:
        for given in records:
            driver.write(
                given.topic,
                given.key,
                given.value,
                timestamp_ms=given.timestamp_ms,
                headers=given.headers or (),
                partition=given.partition,
            )
        for topic in driver.produced_topics:
            made[topic] = [
                (
                    topic,
                    record.partition(),
                    record.timestamp()[1],
                    record.key(),
                    record.value(),
                    tuple(record.headers() or ()) or None,
                )
                for record in driver._written[topic]
            ]
    return made


def folded(records: Iterable[Written]) -> dict[tuple[int, bytes | None], tuple[int, bytes | None, Headers]]:
    """Return the last record of every key, without tombstones."""
    last = {
        (partition, key): (timestamp_ms, value, headers) for _, partition, timestamp_ms, key, value, headers in records
    }
    return {key: found for key, found in last.items() if found[1] is not None}


def buffered(
    topology: GivenTopology, records: Sequence[Given], partitions: int = 1, config: Mapping[str, Any] | None = None
) -> dict[str, list[Written]]:
    """Return topic -> records that live tasks write if all input records are buffered before they start.

    The same holds for the tasks upstream. Each task chooses the next record by the oldest records of its queues, as
    live tasks do. Records that several upstream tasks write to a partition are merged the same way; with equal
    timestamps, the first task comes first.
    """
    settings = {"application.id": "test", **(config or {})}
    name = str(settings["application.id"])
    source = TopologySource(topology, settings)
    described = source.build()
    inputs = external_topics(described.metadata(name, settings))
    plan = plan_history(described, name, settings, dict.fromkeys(inputs, partitions))
    logs: dict[TopicPartition, list[MemoryRecord]] = {}
    for given in records:
        at = TopicPartition(given.topic, given.partition)
        logs.setdefault(at, []).append(
            MemoryRecord(
                *at, given.offset, given.key, given.value, timestamp_ms=given.timestamp_ms, headers=given.headers
            )
        )
    producer = _Upstream({topic: count for stage in plan.stages for topic, count in stage.outputs.items()})
    for stage in plan.stages:
        nodes = StageOrders(source, settings, stage).load()
        for number in range(stage.tasks):
            producer.task = stage.rank, number
            given_to = [TopicPartition(topic, number) for topic, count in stage.inputs.items() if number < count]
            environment = TaskEnvironment(
                settings=nodes.settings,
                producer=producer,
                clock=ManualClock(),
                directory=StateDirectory("unused", name, persistent=False),
            )
            executor = TaskExecutor(TaskId(stage.id, number), nodes.nodes, given_to, environment)
            executor.start()
            for at in given_to:
                upstream = producer.merged(at) if at.topic in stage.upstream else logs.get(at, [])
                if upstream:
                    executor.add(at, upstream)
            while executor.task.buffered_records:
                executor.step()
            executor.commit()
            executor.close()
    made: dict[str, list[Written]] = {}
    for at, log in producer.records.items():
        made.setdefault(at.topic, []).extend(
            (
                at.topic,
                at.partition,
                -1 if record.producers_clock else record.timestamp()[1],
                record.key(),
                record.value(),
                tuple(record.headers() or ()) or None,
            )
            for record in log
        )
    return made


class _Upstream(MemoryProducer):
    """Records that tasks have written, separately for each task. Records without a key stay with their task."""

    def __init__(self, partitions: Mapping[str, int]) -> None:
        super().__init__(partitions, on_record=self._add)
        self.task = 0, 0
        self._queues: dict[TopicPartition, dict[tuple[int, int], list[MemoryRecord]]] = {}

    def _any_partition(self, count: int) -> int:
        return self.task[1] % count

    def _add(self, record: MemoryRecord) -> None:
        queues = self._queues.setdefault(TopicPartition(record.topic(), record.partition()), {})
        queues.setdefault(self.task, []).append(record)

    def merged(self, at: TopicPartition) -> list[MemoryRecord]:
        """Merge the records of a partition: repeatedly take the queue with the oldest first record."""
        queues = {task: list(records) for task, records in self._queues.get(at, {}).items()}
        made: list[MemoryRecord] = []
        while queues:
            task = min(queues, key=lambda task: (queues[task][0].timestamp()[1], task))
            head = queues[task].pop(0)
            made.append(
                MemoryRecord(
                    *at, len(made), head.key(), head.value(), timestamp_ms=head.timestamp()[1], headers=head.headers()
                )
            )
            if not queues[task]:
                del queues[task]
        return made
