"""How many rows of a micro-batch telemetry reads before it decides which process folds them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from streams_py.spark import telemetry


def batches(*sizes: list[int | None]) -> Iterator[Any]:
    for values in sizes:
        yield pa.RecordBatch.from_pydict(
            {"value": pa.array([None if size is None else b"x" * size for size in values], pa.binary())}
        )


def taken(*sizes: list[int | None]) -> list[int]:
    given = batches(*sizes)
    return [batch.num_rows for batch in telemetry._first_rows(given)] + [len(list(given))]  # Spark calls what uses it


@pytest.mark.parametrize(
    ("sizes", "found"),
    [
        ([[1, 1], [1, 1]], [2, 2, 0]),
        ([[], [None, None, 10]], [0, 3, 0]),
        ([[1] * 3, [1] * 3, [1]], [3, 3, 0]),  # the sixth row is one too many
        ([[100, 1], [1]], [2, 0]),  # the second row is too much; the last batch is drained
        ([[101, 1], [1]], [1, 0]),
        ([[60, 30], [20, 1], [1]], [2, 1, 0]),
    ],
)
def test_rows_are_taken_up_to_the_first_that_is_too_much(
    sizes: list[list[int | None]], found: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry, "_LOOK_RECORDS_MAX", 5)
    monkeypatch.setattr(telemetry, "_LOOK_BYTES_MAX", 100)
    assert taken(*sizes) == found
