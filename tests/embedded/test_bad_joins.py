"""Joins of topics with different numbers of partitions end the application before it reads a record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from streams_py import ConfigError, KafkaStreams, StreamsBuilder, StreamsConfig, StreamsError
from streams_py.adapters.confluent import ConfluentClients
from streams_py.testing.broker import EmbeddedBroker
from tests.support.uneven_joins import UNEVEN, check_error, uneven
from tests.support.waiting import PATIENCE_S


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """With a record in the first of two topics."""
    made = EmbeddedBroker()
    made.create_topic("first", 2)
    made.create_topic("second", 3)
    clients = ConfluentClients(StreamsConfig.of(application_id="writer", bootstrap_servers=made.url))
    producer = clients.producer("records")
    producer.produce("first", b"value", b"key", 0, None, -1, None)
    assert producer.flush(60_000) == 0
    producer.close()
    clients.close()
    yield made
    made.close()


@pytest.mark.parametrize("case", UNEVEN)
def test_join_of_uneven_topics_is_named_with_its_line_before_a_record_is_read(
    broker: EmbeddedBroker, tmp_path: Path, case: str
) -> None:
    seen: list[str] = []
    config = StreamsConfig.of(
        application_id=f"app-{list(UNEVEN).index(case)}", bootstrap_servers=broker.url, state_dir=str(tmp_path)
    )
    with pytest.raises(StreamsError) as caught, KafkaStreams(uneven(case, "first", "second", seen), config) as streams:
        assert streams.wait(PATIENCE_S), "it keeps running"
    check_error(case, caught.value, "second")
    assert seen == []


def test_missing_serde_is_named_with_its_line_before_anything_is_opened(broker: EmbeddedBroker, tmp_path: Path) -> None:
    builder = StreamsBuilder()
    builder.stream("first", name="reads")
    config = StreamsConfig.of(application_id="no-serde", bootstrap_servers=broker.url, state_dir=str(tmp_path / "none"))
    with pytest.raises(ConfigError, match=r"reads, which reads first, has no key serde \(.*test_bad_joins.py:\d+\)"):
        KafkaStreams(builder.build(), config)
    assert not (tmp_path / "none").exists()
