"""Blocks that Spark has sorted give records in order."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import accumulate
from typing import Any

import pytest

pytest.importorskip("pyarrow")

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from streams_py.spark.history import order
from streams_py.spark.history.blocks import INPUT, RECORD, Blocks, records_batch
from streams_py.spark.history.order import ORDER, in_order

Sources = dict[tuple[str, int], list[tuple[int, int]]]
"""(topic, source) -> (partition, timestamp) of each record."""


def records_of(seqs: Iterable[int], timestamps: list[int]) -> Any:
    count = len(timestamps)
    seq = np.array(list(seqs))
    values = pa.array([b"%d" % at for at in seq.tolist()], pa.binary())
    return records_batch(seq, np.array(timestamps, np.int64), pa.nulls(count, pa.binary()), values, None)


def as_spark_sorts(blocks: Iterable[Any]) -> list[Any]:
    rows = sorted((row for batch in blocks for row in batch.to_pylist()), key=lambda row: [row[name] for name in ORDER])
    return [pa.RecordBatch.from_pylist(rows[at : at + 2]) for at in range(0, len(rows), 2)]


def blocks_of(sources: Sources, size: int) -> list[Any]:
    """Blocks of each source's records, ``size`` records at a time."""
    made = []
    for (topic, source), records in sources.items():
        blocks = Blocks(RECORD, topic, source)
        for first in range(0, len(records), size):
            partitions, timestamps = zip(*records[first : first + size], strict=True)
            content = records_of(range(first, first + len(timestamps)), list(timestamps))
            made.append(blocks.by_time(np.array(partitions, np.int32), content))
    return as_spark_sorts(made)


def merged(sources: Sources) -> list[tuple[int, str, int, int]]:
    """(partition, topic, source, seq) by the definition of the order."""
    keys = []
    for (topic, source), records in sources.items():
        for partition in {partition for partition, _ in records}:
            of = [(seq, at_ms) for seq, (where, at_ms) in enumerate(records) if where == partition]
            places = accumulate((at_ms for _, at_ms in of), max)
            keys += [(partition, place, topic, source, seq) for (seq, _), place in zip(of, places, strict=True)]
    return [(partition, topic, source, seq) for partition, _, topic, source, seq in sorted(keys)]


_SOURCES = st.dictionaries(
    st.tuples(st.sampled_from(["a", "b"]), st.integers(-1, 2)),
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 6)), max_size=12),
    max_size=5,
)


@given(_SOURCES, st.integers(1, 5), st.sampled_from([1, 200, 1 << 20]))
def test_by_time_is_what_a_consumer_of_all_sources_takes(sources: Sources, size: int, at_once_bytes: int) -> None:
    found = []
    for task, names, codes, records in in_order(blocks_of(sources, size), at_once_bytes=at_once_bytes):
        content = zip(codes.tolist(), records["seq"].to_pylist(), records["value"].to_pylist(), strict=True)
        for code, seq, value in content:
            assert value == b"%d" % seq
            found.append((task, *names[code], seq))
    assert found == merged(sources)


def test_what_waits_is_about_one_block_of_each_source_however_long_they_are() -> None:
    """Also if all records have the same timestamp, or a record with a far later one comes first."""
    for timestamps in ([5] * 2_000, [9_000, *range(1_999)], list(range(2_000))):
        sources: Sources = {("t", source): [(0, at_ms) for at_ms in timestamps] for source in range(3)}
        largest = max(ordered.records.num_rows for ordered in in_order(blocks_of(sources, 100), at_once_bytes=1))
        assert largest <= 900


@pytest.mark.parametrize("held_bytes_max", [0, 8_000, 1 << 30])
def test_by_offset_is_any_order_of_the_rows_in_bounded_memory(
    monkeypatch: pytest.MonkeyPatch, held_bytes_max: int
) -> None:
    monkeypatch.setattr(order, "_ON_DISK_BYTES", 500)
    offsets = [(task, at * 3) for task in (0, 4) for at in range(1_000)]
    random.Random(3).shuffle(offsets)
    blocks = Blocks(RECORD, "t", INPUT)
    made = []
    for first in range(0, len(offsets), 50):
        tasks, seqs = zip(*sorted(offsets[first : first + 50], key=lambda at: at[1]), strict=True)
        made.append(blocks.by_offset(np.array(tasks, np.int32), records_of(seqs, [7] * len(seqs))))
    found, largest = [], 0
    for task, names, _, records in in_order(
        as_spark_sorts(made), by_offset=True, at_once_bytes=5_000, held_bytes_max=held_bytes_max
    ):
        assert names == [("t", INPUT)]
        largest = max(largest, records.nbytes)
        found += [(task, seq) for seq in records["seq"].to_pylist()]
    assert found == sorted(offsets)
    assert (largest > 30_000) == (held_bytes_max > 8_000)
