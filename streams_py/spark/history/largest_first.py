"""The order in which tasks of a stage start: tasks with the most records first.

Spark starts the tasks of a stage in the order of its partitions, each when a core is free. If a large task started
last, all other cores would be idle while it runs. The order affects nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column


def largest_first(tasks: Iterable[int], sizes: Mapping[int, int]) -> list[int]:
    """Return the numbers of tasks by size, largest first, then by number.

    ``sizes`` is task -> number of records; 0 for a missing task.
    """
    return sorted(tasks, key=lambda task: (-sizes.get(task, 0), task))


def spark_partition(tasks: int, sizes: Mapping[int, int]) -> Column:
    """Return the number of the Spark partition for a row whose column ``partition`` is its task.

    Rows of tasks that the stage does not have keep their number. The worker that reads them refuses them.
    """
    from pyspark.sql import functions as f

    order = largest_first(range(tasks), sizes)
    if order == list(range(tasks)):
        return f.col("partition")
    places = {task: place for place, task in enumerate(order)}
    place = f.get(f.lit([places[task] for task in range(tasks)]), f.col("partition"))
    return f.coalesce(place, f.col("partition"))
