"""Kafka Streams groups and topics on Apache Spark: a Kafka data source without a jar, and jobs over assignment events.

Nothing in the rest of the library imports this package, and importing :mod:`streams_py` does not import PySpark.
Install the extra ``kafka-streams-py[spark]`` to use it.
"""
