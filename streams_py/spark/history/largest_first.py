"""Which task of a stage begins first: the one with the most records.

Spark begins the tasks of a stage in the order of its partitions, each as soon as a core is free. Were a large one the
last to begin, all other cores would wait for it alone. How a task stands in Spark's order changes nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["largest_first", "spark_partition"]


def largest_first(tasks: Iterable[int], sizes: Mapping[int, int]) -> list[int]:
    """Numbers of tasks, those with the most records first, of equally large ones the smaller number. ``sizes``: task ->
    records; one that is not named has none."""
    return sorted(tasks, key=lambda task: (-sizes.get(task, 0), task))


def spark_partition(tasks: int, sizes: Mapping[int, int]) -> Column:
    """Where a row goes whose column ``partition`` says its task: the number of a Spark partition. Rows of tasks that a
    stage does not have keep theirs, and are refused where they are read."""
    from pyspark.sql import functions as f

    order = largest_first(range(tasks), sizes)
    if order == list(range(tasks)):
        return f.col("partition")
    places = {task: place for place, task in enumerate(order)}
    place = f.get(f.lit([places[task] for task in range(tasks)]), f.col("partition"))
    return f.coalesce(place, f.col("partition"))
