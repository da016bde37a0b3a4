"""Kafka Streams for Python, byte-compatible with Apache Kafka Streams, with the assignor in your hands.

from streams_py import KafkaStreams, StreamsBuilder, serdes
"""

from streams_py import serdes
from streams_py.config import StreamsConfig
from streams_py.errors import StreamsError
from streams_py.runtime.kafka_streams import KafkaStreams, UncaughtAnswer
from streams_py.runtime.states import State
from streams_py.topology.builder import StreamsBuilder
from streams_py.topology.topology import Topology

__all__ = [
    "KafkaStreams",
    "State",
    "StreamsBuilder",
    "StreamsConfig",
    "StreamsError",
    "Topology",
    "UncaughtAnswer",
    "serdes",
]
