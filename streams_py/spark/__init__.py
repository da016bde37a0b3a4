"""Kafka Streams topologies, groups and topics on Apache Spark.

* :func:`run`: the topology of an application over its history; see ``docs/spark-history.md``;
* :func:`preview`: a topology as a query of Structured Streaming;
* :func:`register`: makes the Kafka data source ``streams-kafka``, which needs no jar, known to a session;
* jobs over assignment events.

Nothing in the rest of the library imports this package, and importing it, or :mod:`streams_py`, does not import
PySpark. Install the extra ``kafka-streams-py[spark]`` to use it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streams_py.spark.history.run import Results, run

if TYPE_CHECKING:
    from streams_py.spark.history.preview import preview
    from streams_py.spark.kafka.source import register

__all__ = ["Results", "preview", "register", "run"]


def __getattr__(name: str) -> object:
    if name == "preview":  # it is made of classes of PySpark
        from streams_py.spark.history.preview import preview

        return preview
    if name == "register":  # its module defines classes of PySpark, too
        from streams_py.spark.kafka.source import register

        return register
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
