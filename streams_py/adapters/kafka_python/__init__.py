"""Group membership with kafka-python. Importing this package first loads the library, on the importing thread."""

from streams_py.adapters.connection import kafka_answers as kafka_answers
