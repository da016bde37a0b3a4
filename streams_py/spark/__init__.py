"""Kafka Streams topologies, groups and topics on Apache Spark.

* :func:`run` runs the topology of an application over old records; see ``docs/spark-history.md``.
* :func:`preview` runs a topology as a query of Structured Streaming.
* :func:`register` registers the Kafka data source ``streams-kafka``, which needs no jar, with a session.
* Jobs process assignment events: telemetry and backtests.

Only commands import this package. Importing it, or :mod:`streams_py`, does not import PySpark. Install the extra
``kafka-streams-py[spark]`` to use it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streams_py.spark.history.run import Results, run

if TYPE_CHECKING:
    from streams_py.spark.history.preview import preview
    from streams_py.spark.kafka.source import register

__all__ = ["Results", "preview", "register", "run"]


def __getattr__(name: str) -> object:
    if name == "preview":  # its module subclasses classes of PySpark
        from streams_py.spark.history.preview import preview

        return preview
    if name == "register":  # its module subclasses classes of PySpark, too
        from streams_py.spark.kafka.source import register

        return register
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
