"""Runs the topology of an application over old records on Spark. Each task is one Spark partition."""
