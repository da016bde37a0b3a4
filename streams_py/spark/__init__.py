"""Kafka Streams topologies, groups and topics on Apache Spark.

* :func:`run`: the topology of an application over its history; see ``docs/spark-history.md``;
* a Kafka data source without a jar (:mod:`streams_py.spark.source`), and jobs over assignment events.

Nothing in the rest of the library imports this package, and importing it, or :mod:`streams_py`, does not import
PySpark. Install the extra ``kafka-streams-py[spark]`` to use it.
"""

from streams_py.spark.history.run import Results, run

__all__ = ["Results", "run"]
