"""A mock cluster in this process, and clients of it. No JVM, no server process."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent import ConfluentClients, silence
from streams_py.adapters.confluent import consumer as consumer_module
from streams_py.adapters.confluent.consumer import ConfluentConsumer
from streams_py.adapters.confluent.embedded.mock_library import MockCluster
from streams_py.adapters.confluent.producer import ConfluentProducer
from streams_py.config.streams_config import StreamsConfig
from streams_py.ports import BEGINNING, RawRecord
from tests.support.waiting import until

_numbers = itertools.count()


class Clock:
    """A clock that stands still, for consumers alone."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(consumer_module, "time", made)
    monkeypatch.setattr(silence, "time", made)
    return made


@pytest.fixture(autouse=True)
def _limits_of_topics_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mock cluster never answers a request for a topic's configuration: each producer would wait 3 s for it."""
    monkeypatch.setattr(ConfluentClients, "_batch_bytes_max", lambda self, topic: None)


@pytest.fixture(scope="session")
def cluster() -> Iterator[MockCluster]:
    mock = MockCluster(brokers=1)
    yield mock
    mock.close()


@pytest.fixture
def topic(cluster: MockCluster) -> str:
    """A new topic with three partitions."""
    name = f"topic-{next(_numbers)}"
    assert cluster.create_topic(name, 3) == 0
    return name


@pytest.fixture
def configure(cluster: MockCluster) -> Callable[..., StreamsConfig]:
    """A configuration for the cluster; dotted keys on top."""

    def configured(extra: dict[str, object] | None = None) -> StreamsConfig:
        return StreamsConfig.of({"application.id": "app", "bootstrap.servers": cluster.bootstrap, **(extra or {})})

    return configured


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


def take(consumer: ConfluentConsumer, count: int) -> list[RawRecord]:
    """The next ``count`` records; fails when they do not come."""
    records: list[RawRecord] = []

    def have_come() -> bool:
        records.extend(consumer.poll(1000, 50))
        return len(records) >= count

    until(have_come, f"{count} records")
    assert len(records) == count, [record.value() for record in records]
    return records


def poll_until(consumer: ConfluentConsumer, condition: Callable[[], bool], what: str) -> None:
    """Poll, expecting no records, until something is known."""

    def is_known() -> bool:
        assert consumer.poll(1000, 20) == []
        return condition()

    until(is_known, what)


def from_beginning(topic: str, *partitions: int) -> dict[TopicPartition, int | None]:
    return {TopicPartition(topic, number): BEGINNING for number in partitions}


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
