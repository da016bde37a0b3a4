"""Records of a source connector that a broker rejects."""

from __future__ import annotations

import uuid

import pytest

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent.connect_clients import ConfluentConnectClients
from streams_py.errors import ProductionError
from streams_py.testing.broker import Broker

pytestmark = pytest.mark.broker


def test_report_of_a_refused_record_names_the_partition_that_the_client_chose(kafka_broker: Broker) -> None:
    topic = f"refused-{uuid.uuid4().hex}"
    kafka_broker.create_topic(topic, 1, config={"cleanup.policy": "compact"})
    kafka = {"bootstrap.servers": kafka_broker.bootstrap}
    clients = ConfluentConnectClients(producer=kafka, consumer=kafka, admin=kafka, client_id="c", group_id="g")
    producer = clients.producer("c", {})
    reports: list[tuple[Exception | None, TopicPartition]] = []
    producer.send(topic, None, b"value", lambda error, where: reports.append((error, where)))
    assert producer.flush(60_000) == 0
    producer.close()
    [(error, where)] = reports
    assert where == TopicPartition(topic, 0)
    assert isinstance(error, ProductionError)
    assert error.partition == 0
    assert f"a record for {topic}-0 was not written: Broker: Broker failed to validate record" in str(error)
