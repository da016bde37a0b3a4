"""Portions of records for tasks: from rows, blocks and ranges of Kafka."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import numpy as np
import pyarrow as pa

from streams_py.history.records import HistoryRecord
from streams_py.ports import RawRecord
from streams_py.runtime.tasks.settings.handlers import log_and_fail
from streams_py.spark.columns import HEADERS, headers_column
from streams_py.spark.history import portions
from streams_py.spark.history.blocks import INPUT, RECORD, Blocks, records_batch
from streams_py.spark.history.order import ORDER
from streams_py.spark.history.portions import OfBlocks, OfRanges, Portion, blocks_of_rows, blocks_read_by, timed_blocks
from streams_py.spark.kafka.options import reader_options

ORDERS: Any = SimpleNamespace(settings=lambda: SimpleNamespace(deserialization_handler=log_and_fail))
"""Every record counts."""


def shown(found: Iterator[Portion]) -> list[tuple[int, str, list[tuple[Any, ...]]]]:
    return [
        (task, topic, [(r.offset(), r.timestamp()[1], r.key(), r.value(), r.headers()) for r in records])
        for task, topic, records in found
    ]


def rows(*given: tuple[int, int, int, bytes | None]) -> Any:
    tasks, offsets, timestamps, values = zip(*given, strict=True)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(tasks, pa.int32()),
            pa.array(offsets, pa.int64()),
            pa.array(timestamps, pa.int64()),
            pa.nulls(len(given), pa.binary()),
            pa.array(values, pa.binary()),
            pa.nulls(len(given), HEADERS),
        ],
        names=["task", "offset", "timestamp_ms", "key", "value", "headers"],
    )


def sorted_blocks(batches: Iterable[Any]) -> list[Any]:
    table = pa.Table.from_batches(list(batches)).sort_by([(name, "ascending") for name in ORDER])
    return list(table.to_batches(max_chunksize=2))


def test_rows_in_any_order_go_to_their_tasks_by_offset() -> None:
    batches = [rows((2, 1, 8, b"c"), (0, 5, 11, None)), rows((0, 3, 10, b"a"), (2, 0, 9, b"b"))]
    assert shown(OfBlocks(by_offset=True)(sorted_blocks(blocks_of_rows("lines", batches)))) == [
        (0, "lines", [(3, 10, None, b"a", None), (5, 11, None, None, None)]),
        (2, "lines", [(0, 9, None, b"b", None), (1, 8, None, b"c", None)]),
    ]


def test_records_between_stages_are_counted_and_those_of_inputs_keep_their_offsets() -> None:
    headers = headers_column([[("a", b"1")], None])
    written = records_batch(
        np.array([40, 70]), np.array([1, 9]), pa.array([b"k", b"l"]), pa.array([b"x", b"y"]), headers
    )
    given = sorted_blocks(blocks_of_rows("prices", [rows((0, 7, 1, b"p"), (0, 8, 5, b"q"))]))
    blocks = [
        *timed_blocks("prices", ORDERS, given),
        *(Blocks(RECORD, "between", source).by_time(np.zeros(2, np.int32), written) for source in (1, 2)),
    ]
    assert shown(OfBlocks()(sorted_blocks(blocks))) == [
        (0, "between", [(0, 1, b"k", b"x", [("a", b"1")]), (1, 1, b"k", b"x", [("a", b"1")])]),
        (0, "prices", [(7, 1, None, b"p", None), (8, 5, None, b"q", None)]),
        (0, "between", [(2, 9, b"l", b"y", None), (3, 9, b"l", b"y", None)]),
    ]


@pytest.mark.parametrize(
    ("since_ms", "until_ms", "offsets"), [(None, None, [[3, 4], [9]]), (20, None, [[4], [9]]), (20, 30, [[4]])]
)
def test_ranges_of_kafka_are_read_where_they_are_processed(
    monkeypatch: pytest.MonkeyPatch, since_ms: int | None, until_ms: int | None, offsets: list[list[int]]
) -> None:
    asked = []

    def messages(
        settings: Any, topic: str, partition: int, start: int, end: int, limits: Any, **_: Any
    ) -> Iterator[Any]:
        asked.append((topic, partition, start, end, settings["isolation.level"]))
        for some in ([(3, 10), (4, 20)], [(9, 30)]):
            yield [HistoryRecord((topic, partition, at, None, b"v", (1, ms), None)) for at, ms in some]

    monkeypatch.setattr(portions, "read_messages", messages)
    options = reader_options({"kafka.bootstrap.servers": "nowhere:1", "topics": "lines"}, streaming=False)
    reader = OfRanges("lines", (0, 2), {0: (1, 7), 2: (3, 10)}, options, since_ms, until_ms)
    batches = [pa.RecordBatch.from_arrays([pa.array([1], pa.int64())], names=["id"])]
    found = list(reader(batches))
    assert asked == [("lines", 2, 3, 10, "read_committed")]
    assert [[record.offset() for record in records] for _, _, records in found] == offsets
    assert {(task, topic) for task, topic, _ in found} == {(2, "lines")}
    (*made,) = blocks_read_by(reader, ORDERS, batches)
    assert {(block["source"], block["partition"]) for batch in made for block in batch.to_pylist()} == {(INPUT, 2)}
    again: Sequence[RawRecord] = [record for _, _, some in OfBlocks()(made) for record in some]
    assert [record.offset() for record in again] == [offset for some in offsets for offset in some]
