"""How many records clients have delivered again to the readers of a Spark application: a metric, never an error.

A client delivers records again after a change of leaders, for example. The readers give out each record once and count
the others. They run in workers of Spark, so an accumulator of Spark carries their counts to the driver, each when its
Spark task has ended. A source in Python cannot add metrics of its own to those that Spark shows.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from streams_py.spark.session import is_classic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["redelivered_counter", "redelivered_records"]

_counters: Final[WeakKeyDictionary[Any, Any]] = WeakKeyDictionary()
"""SparkContext -> accumulator."""
_lock: Final = threading.Lock()


def redelivered_counter(spark: SparkSession) -> Any:
    """Return the accumulator of the session's application, which readers add to; None with Spark Connect."""
    if not is_classic(spark):
        return None
    context = spark.sparkContext
    with _lock:
        if context not in _counters:
            _counters[context] = context.accumulator(0)
        return _counters[context]


def redelivered_records(spark: SparkSession) -> int:
    """Return the number of records that clients have delivered again to the readers of an application so far.

    ``streams-kafka`` in batches and streams, histories, warm starts and telemetry count, of all sessions of the
    application, also attempts of tasks that Spark has repeated. With Spark Connect the number is always 0.
    """
    counter = redelivered_counter(spark)
    return 0 if counter is None else int(counter.value)
