"""A mock cluster in this process, and a producer of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from streams_py.adapters.confluent.producer import ConfluentProducer
from streams_py.clients.factory import KafkaClients
from streams_py.config.streams_config import StreamsConfig
from tests.support.confluent.mock_cluster import cluster, configure, topic

__all__ = ["cluster", "configure", "topic"]  # fixtures


@pytest.fixture
def producer(configure: Callable[..., StreamsConfig]) -> Iterator[ConfluentProducer]:
    clients = KafkaClients(configure())
    producer = clients.producer("thread-1")
    yield producer
    producer.close()
    clients.close()
