"""Counts the records that clients have delivered again to the readers of a Spark application. This is not an error.

A client delivers records again after a change of leaders, for example. The readers return each record once and count
the repetitions. They run in workers of Spark, so an accumulator of Spark sends their counts to the driver when a task
has finished. A Python data source cannot add to the metrics that Spark shows.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from streams_py.spark.session import is_classic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_counters: Final[WeakKeyDictionary[Any, Any]] = WeakKeyDictionary()
"""SparkContext -> accumulator."""
_lock: Final = threading.Lock()


def redelivered_counter(spark: SparkSession) -> Any:
    """Return the accumulator of the session's application, to which readers add; None with Spark Connect."""
    if not is_classic(spark):
        return None
    context = spark.sparkContext
    with _lock:
        if context not in _counters:
            _counters[context] = context.accumulator(0)
        return _counters[context]


def redelivered_records(spark: SparkSession) -> int:
    """Return the number of records that clients have delivered again to the readers of an application so far.

    It covers ``streams-kafka`` in batches and streams, histories, warm starts and telemetry, in all sessions of the
    application. It includes attempts of tasks that Spark has repeated. With Spark Connect the number is always 0.
    """
    counter = redelivered_counter(spark)
    return 0 if counter is None else int(counter.value)
