"""Jobs that nobody waits for any more: they go on, and make files behind the back of whoever puts theirs away."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["end_jobs"]

_WAIT_S: Final = 10.0
_LOOK_S: Final = 0.1


def end_jobs(spark: SparkSession) -> None:
    """End all jobs of a session, as PySpark does on Ctrl-C where nobody else handles it, and wait a little for that."""
    context = spark.sparkContext
    context.cancelAllJobs()
    tracker, last_s = context.statusTracker(), time.monotonic() + _WAIT_S
    while tracker.getActiveStageIds() and time.monotonic() < last_s:
        time.sleep(_LOOK_S)
