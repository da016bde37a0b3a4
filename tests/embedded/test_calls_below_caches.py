"""Results of a cached count that wait for a coroutine: the task forwards them, commits, and continues."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from streams_protocol.types import TopicPartition
from streams_py import KafkaStreams, StreamsBuilder, StreamsConfig, serdes
from streams_py.adapters.confluent import ConfluentClients
from streams_py.ports import BEGINNING
from streams_py.testing.broker import EmbeddedBroker
from tests.support.waiting import until

RECORDS = 600


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    made = EmbeddedBroker()
    for topic in ("in", "out"):
        made.create_topic(topic, 1)
    yield made
    made.close()


async def looked_up(count: int) -> int:
    await asyncio.sleep(0.05)
    return count


def test_counting_continues_when_flushed_results_wait_for_coroutines(broker: EmbeddedBroker, tmp_path: Path) -> None:
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    counts = builder.stream("in").group_by_key().count(store="counts").to_stream()
    counts.map_values_async(looked_up).to("out", value=serdes.INT64)
    config = StreamsConfig.of(application_id="app", bootstrap_servers=broker.url, state_dir=str(tmp_path))
    clients = ConfluentClients(config)
    producer, consumer = clients.producer("in"), clients.main_consumer("out")
    consumer.assign({TopicPartition("out", 0): BEGINNING})
    last: dict[bytes | None, int] = {}

    def counted() -> int:
        for record in consumer.poll(500, 10):
            last[record.key()] = int.from_bytes(record.value() or b"", "big")
        return sum(last.values())

    with KafkaStreams(builder.build(), config):
        for number in range(RECORDS):  # over several commits, so that records wait at each of them
            producer.produce("in", b"v", b"%d" % (number % 3), 0, None, -1, None)
            producer.poll(0)
            time.sleep(0.003)
        assert producer.flush(60_000) == 0
        until(lambda: counted() == RECORDS, "all records to be counted")
    for client in (producer, consumer):
        client.close()
    clients.close()
