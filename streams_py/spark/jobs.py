"""Spark jobs of a command: cancel them when the command stops early, and silence Spark's logs about failed jobs.

Jobs of a command that stops would otherwise continue, and create files after its clean-up.

When user code raises in a worker, Spark logs the error five times with the stack traces of two languages. The error
that the caller gets, in one sentence, comes after them. The log level of the session stays as the user has set it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

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


_ABOUT_FAILED_JOBS: Final = (
    "org.apache.spark.util.Utils",
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
    "org.apache.spark.sql.execution.datasources.FileFormatWriter",
)
"""Spark's loggers that report a failed task, and the job that fails with it."""


@contextlib.contextmanager
def quiet_jobs(session: SparkSession) -> Iterator[None]:
    """Silence Spark's loggers about failed jobs inside the block, except loggers that the user has configured.

    Applies to the driver's JVM.

    Without the driver's JVM, or with another logging backend than Log4j 2, this does nothing.
    """
    silenced: list[str] = []
    context: Any = None
    with contextlib.suppress(Exception):
        jvm: Any = session.sparkContext._jvm
        log4j = jvm.org.apache.logging.log4j
        context = log4j.LogManager.getContext(False)
        configured = context.getConfiguration().getLoggers()
        for name in _ABOUT_FAILED_JOBS:
            if not configured.containsKey(name):
                log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)
                silenced.append(name)
    try:
        yield
    finally:
        with contextlib.suppress(Exception):  # the JVM may be gone
            for name in silenced:
                context.getConfiguration().removeLogger(name)
            if silenced:
                context.updateLoggers()
