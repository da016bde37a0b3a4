"""Record clients on a real broker."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator

import pytest

from streams_py.adapters.confluent import ConfluentClients
from streams_py.adapters.confluent.consumer import ConfluentConsumer
from streams_py.adapters.confluent.producer import ConfluentProducer
from streams_py.config.streams_config import StreamsConfig
from streams_py.testing.broker import Broker

_numbers = itertools.count()


@pytest.fixture
def topic(kafka_broker: Broker) -> str:
    """A new topic with four partitions."""
    name = f"records-{os.getpid()}-{next(_numbers)}"
    kafka_broker.create_topic(name, 4)
    return name


@pytest.fixture
def clients(kafka_broker: Broker) -> Callable[..., ConfluentClients]:
    """Makes client factories; dotted keys on top."""

    def make(extra: dict[str, object] | None = None) -> ConfluentClients:
        keys = {"application.id": "records", "bootstrap.servers": kafka_broker.bootstrap, **(extra or {})}
        return ConfluentClients(StreamsConfig.of(keys))

    return make


@pytest.fixture
def producer(clients: Callable[..., ConfluentClients]) -> Iterator[ConfluentProducer]:
    made = clients().producer("thread-1")
    yield made
    made.close()


@pytest.fixture
def consumer(clients: Callable[..., ConfluentClients]) -> Iterator[ConfluentConsumer]:
    made = clients().main_consumer("thread-1")
    yield made
    made.close()
