"""Blocks of records: how they are created, and read as rows."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")

import numpy as np
import pyarrow as pa

from streams_py.spark.columns import HEADERS, headers_column
from streams_py.spark.history import blocks as blocks_module
from streams_py.spark.history.blocks import RECORD, Blocks, records_batch, unpacked


def test_large_records_are_blocks_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks_module, "_BLOCK_BYTES", 1_000)
    large = pa.array([b"x" * 600] * 10, pa.binary())
    records = records_batch(np.arange(10), np.full(10, 7), large, large, None)
    made = Blocks(RECORD, "t", 3).by_time(np.zeros(10, np.int32), records)
    assert made.num_rows == 10
    assert made["seq"].to_pylist() == list(range(10))


def test_blocks_are_compressed() -> None:
    same = pa.array([b"x" * 100] * 1_000, pa.binary())
    records = records_batch(np.arange(1_000), np.full(1_000, 7), same, same, None)
    made = Blocks(RECORD, "t", 3).by_offset(np.zeros(1_000, np.int32), records)
    assert made.nbytes < records.nbytes / 10


def test_place_is_the_largest_timestamp_of_the_partition_so_far() -> None:
    blocks = Blocks(RECORD, "t", 3)
    nothing = pa.nulls(4, pa.binary())
    places = []
    for timestamps in ([5, 2, 9, 1], [3, 3, 3, 3]):
        records = records_batch(np.arange(4), np.array(timestamps), nothing, nothing, None)
        made = blocks.by_time(np.array([0, 1, 0, 1], np.int32), records)
        places.append(dict(zip(made["partition"].to_pylist(), made["place"].to_pylist(), strict=True)))
    assert places == [{0: 5, 1: 2}, {0: 9, 1: 3}]


def test_blocks_can_be_read_as_rows_with_headers_and_nulls() -> None:
    headers = headers_column([None, [("trace", b"1"), ("none", None)], None])
    records = records_batch(
        np.array([4, 5, 6]),
        np.array([-1, 8, 9]),
        pa.array([None, b"", b"k"], pa.binary()),
        pa.array([b"v", None, b""], pa.binary()),
        headers,
    )
    made = Blocks(RECORD, "t", 3).by_time(np.array([1, 0, 1], np.int32), records)
    rows = sorted((row for batch in unpacked([made]) for row in batch.to_pylist()), key=lambda row: row["seq"])
    assert [row["partition"] for row in rows] == [1, 0, 1]
    assert [(row["timestamp_ms"], row["key"], row["value"]) for row in rows] == [
        (-1, None, b"v"), (8, b"", None), (9, b"k", b""),
    ]  # fmt: skip
    assert [row["headers"] for row in rows] == headers.to_pylist()
    assert {(row["topic"], row["source"]) for row in rows} == {("t", 3)}
    assert next(unpacked([made])).schema.field("headers").type == HEADERS
