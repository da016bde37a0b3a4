"""The bytes that members of a Kafka Streams group exchange: encode, decode, refuse.

Standard library only; importable without ``streams_py``.
"""
