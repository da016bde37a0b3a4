"""Topics with a ``max.message.bytes`` below a batch, on a real broker."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable

import pytest

from streams_py.adapters.confluent import ConfluentClients
from streams_py.errors import BatchRefusedError, ProductionError
from streams_py.testing.broker import Broker
from tests.support.confluent.consuming import from_beginning, take

pytestmark = pytest.mark.broker

LIMIT = 10_000
RECORD = b"x" * 3_000
_numbers = itertools.count()


@pytest.fixture
def narrow(kafka_broker: Broker) -> str:
    """A new topic with one partition that takes requests of 10 kB."""
    name = f"narrow-{os.getpid()}-{next(_numbers)}"
    kafka_broker.create_topic(name, 1, config={"max.message.bytes": str(LIMIT)})
    return name


def values(count: int) -> list[bytes]:
    return [b"%03d" % number + RECORD for number in range(count)]


@pytest.mark.parametrize("tracked", [True, False])
def test_ordinary_records_arrive_in_order_when_the_topic_takes_only_small_batches(
    narrow: str, clients: Callable[..., ConfluentClients], tracked: bool
) -> None:
    made = clients({"producer.linger.ms": 50})
    producer, consumer = made.producer("t"), made.main_consumer("t")
    producer.track([narrow] if tracked else [])
    send, report, obstacles = producer.direct(narrow, 0)
    for number, value in enumerate(values(60)):
        send(narrow, value, b"k", 0, report, None, number + 1, None)
    assert producer.flush(30_000) == 0
    producer.check()
    assert obstacles == []
    consumer.assign(from_beginning(narrow, 0))
    assert [record.value() for record in take(consumer, 60)] == values(60)
    producer.produce(narrow, b"x" * (2 * LIMIT), b"k", 0, None, 1, None)
    assert producer.flush(30_000) == 0
    with pytest.raises(ProductionError) as raised:
        producer.check()
    assert not isinstance(raised.value, BatchRefusedError), "this record is too large by itself"
    producer.close()
    consumer.close()


def test_topic_is_written_record_by_record_when_nobody_could_know_its_limit(
    narrow: str, clients: Callable[..., ConfluentClients]
) -> None:
    made = clients({"producer.linger.ms": 50})
    made._batch_bytes_max = lambda topic: None  # type: ignore[method-assign]  # a limit that is not known
    producer, consumer = made.producer("t"), made.main_consumer("t")
    producer.partitions_for(narrow)

    def send_all() -> None:
        for number, value in enumerate(values(60)):
            producer.produce(narrow, value, b"k", 0, None, number + 1, None)
        assert producer.flush(30_000) == 0

    send_all()
    with pytest.raises(BatchRefusedError):
        producer.check()
    producer.check()
    consumer.assign(from_beginning(narrow, 0))
    while consumer.poll(100, 500):
        pass
    send_all()
    producer.check()
    assert [record.value() for record in take(consumer, 60)] == values(60)
    producer.close()
    consumer.close()
