"""Layouts of requests that kafka-python lacks, in its own format: fields, types and versions."""
