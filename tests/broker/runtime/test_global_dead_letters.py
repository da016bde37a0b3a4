"""Dead letters of global tables: written before their records count as read, and each refusal is asked about."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from streams_py import KafkaStreams, State, StreamsBuilder, serdes
from streams_py.errors import ProductionError
from streams_py.runtime.tasks.settings.handlers import Answer, DeadLetterQueue, OutgoingRecord
from streams_py.testing.broker import Broker
from tests.support.waiting import PATIENCE_S, until

pytestmark = pytest.mark.broker

_numbers = itertools.count()
RECORDS = 60
BAD = (20, 21, 40)
"""Letters that the dead letter topic refuses."""
Start = Callable[..., AbstractContextManager[KafkaStreams]]


class Asked:
    """A production handler that lets records pass, and remembers them."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.records: list[OutgoingRecord] = []

    def handle(self, context: Any, record: OutgoingRecord, error: Exception) -> Answer:
        assert isinstance(error, ProductionError)
        self.records.append(record)
        return self.answer


class Site:
    """A global table whose input cannot be decoded, and a dead letter topic that takes no null keys."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        number = f"{os.getpid()}-{next(_numbers)}"
        self.table, self.dead, self.app = (f"letters-{name}-{number}" for name in ("table", "dead", "app"))
        self._broker, self._folder = broker, folder
        broker.create_topic(self.table, 1)
        broker.create_topic(self.dead, 1, config={"cleanup.policy": "compact"})

    def write(self) -> None:
        """Records that no serde takes, some of them without a key, and a good one behind them."""
        producer = Producer({"bootstrap.servers": self._broker.bootstrap, "linger.ms": 50})
        for number in range(RECORDS):
            producer.produce(self.table, b"\xff", None if number in BAD else b"%d" % number)
        producer.produce(self.table, b"good", b"last")
        assert producer.flush(PATIENCE_S) == 0

    @contextmanager
    def client(self, handler: object, errors: list[Exception] | None = None) -> Iterator[KafkaStreams]:
        builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
        builder.global_table(self.table, store="table")
        settings = {
            "application.id": self.app,
            "bootstrap.servers": self._broker.bootstrap,
            "state.dir": str(self._folder / self.app),
            "deserialization.exception.handler": DeadLetterQueue(self.dead),
            "production.exception.handler": handler,
        }
        streams = KafkaStreams(builder.build(settings), settings)
        try:
            yield streams
        finally:
            assert streams.close(PATIENCE_S)

    def letters(self) -> list[bytes | None]:
        consumer = Consumer(
            {"bootstrap.servers": self._broker.bootstrap, "group.id": "judge", "enable.partition.eof": True}
        )
        consumer.assign([TopicPartition(self.dead, 0, 0)])
        keys: list[bytes | None] = []
        while True:
            for message in consumer.consume(100, 1):
                if message.error() is not None:
                    consumer.close()
                    return keys
                keys.append(message.key())


@pytest.fixture
def site(kafka_broker: Broker, tmp_path: Path) -> Site:
    return Site(kafka_broker, tmp_path)


@pytest.mark.parametrize("is_filling", [True, False])
def test_only_the_refused_letters_are_missing_and_the_handler_is_asked_about_each(site: Site, is_filling: bool) -> None:
    asked = Asked(Answer.CONTINUE)
    if is_filling:
        site.write()
    with site.client(asked) as streams:
        streams.start()
        if not is_filling:
            site.write()
        until(lambda: streams.store("table").get("last") == "good", "the record behind the bad ones")
        until(lambda: len(asked.records) == len(BAD), "the handler to be asked")
        until(lambda: len(site.letters()) == RECORDS - len(BAD), "the other letters")
        assert streams.state is State.RUNNING
    assert site.letters() == [b"%d" % number for number in range(RECORDS) if number not in BAD]
    assert [(record.topic, record.key) for record in asked.records] == [(site.dead, None)] * len(BAD)


def test_refused_letter_ends_the_client_with_its_reason_when_the_handler_fails(site: Site) -> None:
    asked = Asked(Answer.FAIL)
    with site.client(asked) as streams:
        streams.start()
        site.write()
        until(lambda: streams.state is State.ERROR, "ERROR")
        with pytest.raises(ProductionError, match=rf"a record for {site.dead}-0 was not written: .*failed to validate"):
            streams.wait(PATIENCE_S)
    assert len(asked.records) == 1


def test_start_fails_with_the_reason_when_a_letter_is_refused_while_filling(site: Site) -> None:
    site.write()
    with (
        site.client(Asked(Answer.FAIL)) as streams,
        pytest.raises(ProductionError, match=rf"a record for {site.dead}-0 was not written"),
    ):
        streams.start()
