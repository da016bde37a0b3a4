"""Membership of groups with kafka-python. Whatever is imported from here finds the library loaded, by one thread."""

from streams_py.adapters.connection import kafka_answers as kafka_answers
