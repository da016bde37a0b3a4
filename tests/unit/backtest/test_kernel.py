"""The work of a Spark task, without Spark, and how a run is divided into waves."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from streams_py.backtest.candidates import Candidate, parse_candidate
from streams_py.backtest.folder import PREFIXES
from streams_py.backtest.kernel import COLUMNS, Orders, Row
from streams_py.errors import ConfigError
from streams_py.spark import backtest as on_spark
from streams_py.spark.backtest import kernel_for
from tests.support.backtest import assignors
from tests.support.backtest.kit import A, B, client, replay, sub

ORDERS = Orders([parse_candidate("sticky"), Candidate("bad", assignors.Raises)], rounds=False)


def batches(*texts: str) -> Iterator[Any]:
    for start in range(0, len(texts), 2):
        part = list(texts[start : start + 2])
        hashes = [f"{hash(text):x}" for text in part]
        columns = {"input": part, "input_hash": hashes, "seen": [1] * len(part), "chunk": [None] * len(part)}
        yield pa.RecordBatch.from_pydict(columns, schema=pa.schema(
            [("input", pa.string()), ("input_hash", pa.string()), ("seen", pa.int32()), ("chunk", pa.int32())]
        ))  # fmt: skip


def texts(count: int) -> list[str]:
    return [replay(client(A, "0:0-3"), client(B), subs=[sub(ends=(n + 1,) * 4)]).canonical() for n in range(count)]


def rows_of(*given: str) -> list[Row]:
    return [row for batch in kernel_for(ORDERS)(batches(*given)) for row in batch.to_pylist()]


def test_kernel_yields_a_row_for_each_candidate_and_situation() -> None:
    found = rows_of(*texts(5))
    assert len(found) == 10
    assert {row["valid"] for row in found} == {"ok", "raised"}
    assert list(found[0]) == list(COLUMNS)


def test_kernel_decides_a_situation_once_when_it_comes_again() -> None:
    three = texts(3)
    assert len(rows_of(*three, *three)) == 6


def test_kernel_yields_while_it_reads_when_there_are_many_batches() -> None:
    asked = []

    def watched() -> Iterator[Any]:
        for number, batch in enumerate(batches(*texts(6))):
            asked.append(number)
            yield batch

    made = kernel_for(ORDERS)(watched())
    next(made)
    assert asked == [0]


def test_kernel_is_refused_when_the_worker_has_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_spark, "library_version", lambda: "0.0.1")
    kernel = kernel_for(ORDERS)
    with pytest.raises(ConfigError, match=r"driver has 0\.0\.1"):
        list(kernel(batches(*texts(1))))


@pytest.mark.parametrize("rows", [0, 10, 9_000, 10_000_000])
def test_waves_cover_what_is_not_done_once_when_cut(rows: int) -> None:
    done = frozenset({"00", "7f", "80", "ff"})
    ranges = on_spark._ranges(rows, done)  # a job would have to run on Spark for each
    covered = [prefix for first, last in ranges for prefix in PREFIXES if first <= prefix <= last]
    assert covered == [prefix for prefix in PREFIXES if prefix not in done]
    assert all(last < first for (_, last), (first, _) in pairwise(ranges))
    assert len(ranges) <= 16 + len(done)
