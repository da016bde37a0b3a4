"""Layouts of requests that kafka-python does not bring, in the form that it reads: fields, types and versions."""
