"""Cancels Spark jobs of a command that stops early. Otherwise they continue and create files after its clean-up."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WAIT_S: Final = 10.0
_LOOK_S: Final = 0.1


def end_jobs(spark: SparkSession) -> None:
    """Cancel all jobs of a session, as PySpark's own handler of Ctrl-C does, and wait up to 10 s until they stop."""
    context = spark.sparkContext
    context.cancelAllJobs()
    tracker, last_s = context.statusTracker(), time.monotonic() + _WAIT_S
    while tracker.getActiveStageIds() and time.monotonic() < last_s:
        time.sleep(_LOOK_S)
