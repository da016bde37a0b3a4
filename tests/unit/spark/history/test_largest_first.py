"""The order in which tasks of a stage start."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from streams_py.spark.history.largest_first import largest_first


@pytest.mark.parametrize(
    ("sizes", "order"),
    [
        ({}, [0, 1, 2, 3]),
        ({0: 5, 1: 5, 2: 5, 3: 5}, [0, 1, 2, 3]),
        ({3: 9, 1: 2}, [3, 1, 0, 2]),
        ({0: 1, 1: 7, 2: 1, 3: 7}, [1, 3, 0, 2]),
    ],
)
def test_tasks_with_the_most_records_come_first_and_equal_ones_by_number(
    sizes: dict[int, int], order: list[int]
) -> None:
    assert largest_first(range(4), sizes) == order
