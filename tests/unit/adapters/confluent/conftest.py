"""A mock cluster in this process, and clients of it. No JVM, no server process."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from streams_py.adapters.confluent import ConfluentClients, silence
from streams_py.adapters.confluent import consumer as consumer_module
from streams_py.adapters.confluent.consumer import ConfluentConsumer
from streams_py.adapters.confluent.producer import ConfluentProducer
from streams_py.config.streams_config import StreamsConfig
from tests.support.clocks import FakeTime
from tests.support.confluent.mock_cluster import cluster, configure, topic

__all__ = ["cluster", "configure", "topic"]  # fixtures


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    made = FakeTime()
    monkeypatch.setattr(consumer_module, "time", made)
    monkeypatch.setattr(silence, "time", made)
    return made


@pytest.fixture(autouse=True)
def _limits_of_topics_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mock cluster never answers a request for a topic's configuration: each producer would wait 3 s for it."""
    monkeypatch.setattr(ConfluentClients, "_batch_bytes_max", lambda self, topic: None)  # see above


@pytest.fixture
def clients(configure: Callable[..., StreamsConfig]) -> ConfluentClients:
    return ConfluentClients(configure())


@pytest.fixture
def producer(clients: ConfluentClients) -> Iterator[ConfluentProducer]:
    made = clients.producer("thread-1")
    yield made
    made.close()


@pytest.fixture
def consumer(clients: ConfluentClients) -> Iterator[ConfluentConsumer]:
    made = clients.main_consumer("thread-1")
    yield made
    made.close()


@pytest.fixture
def producer_with(configure: Callable[..., StreamsConfig]) -> Iterator[Callable[..., ConfluentProducer]]:
    """Makes producers with extra configuration."""
    made = []

    def make(**keys: object) -> ConfluentProducer:
        extra = {f"producer.{key.replace('_', '.')}": value for key, value in keys.items()}
        made.append(ConfluentClients(configure(extra)).producer("thread-1"))
        return made[-1]

    yield make
    for producer in made:
        producer.close()
