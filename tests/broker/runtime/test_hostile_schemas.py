"""JSON Schemas whose checks take as long as allowed: the member stays in its group, the records go to the handler."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path

import pytest
from confluent_kafka import Producer

from streams_py import KafkaStreams, StreamsBuilder, serdes
from streams_py.testing.broker import Broker
from tests.support.registry.schemas import doubling
from tests.support.registry.stub import RegistryStub, running
from tests.support.waiting import until

pytestmark = pytest.mark.broker
_numbers = itertools.count()
_SESSION_MS = 6_000
_SLOW_RECORDS = 6
"""Their checks take longer together than a session."""


def test_slow_checks_cost_a_member_neither_its_session_nor_the_next_record(
    kafka_broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    name = f"slow-checks-{os.getpid()}-{next(_numbers)}"
    kafka_broker.create_topic(f"{name}-in", 1)
    seen: list[object] = []
    with running(RegistryStub()) as stub:
        slow = good = json.dumps(doubling(40))
        serde = stub.registry().json_schema(slow)
        builder = StreamsBuilder()
        builder.stream(f"{name}-in", key=serdes.BYTES, value=serde).foreach(lambda _, value: seen.append(value))
        settings = {
            "application.id": name,
            "bootstrap.servers": kafka_broker.bootstrap,
            "state.dir": str(tmp_path),
            "session.timeout.ms": _SESSION_MS,
            "heartbeat.interval.ms": 500,
            "deserialization.exception.handler": "log_and_continue",
        }
        producer = Producer({"bootstrap.servers": kafka_broker.bootstrap})

        def write(schema: str, value: object) -> None:
            number = stub.add({"schemaType": "JSON", "schema": schema}, f"{name}-in-value")
            producer.produce(f"{name}-in", b"\x00" + number.to_bytes(4, "big") + json.dumps(value).encode())
            assert producer.flush(60) == 0

        with KafkaStreams(builder.build(), settings):
            write(good, 1)
            until(lambda: seen == [1], "the first record")
            for _ in range(_SLOW_RECORDS):
                write(slow, "x")
            write(good, 3)
            until(lambda: seen == [1, 3], "the record after the slow ones", timeout_s=300)
    skipped = [text for text in caplog.messages if "dropping a record" in text and f"{name}-in" in text]
    assert len(skipped) == _SLOW_RECORDS, caplog.messages
    assert "removed this member" not in caplog.text
    assert "no longer a member" not in caplog.text
