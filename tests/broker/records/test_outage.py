"""A broker that is unavailable for some time: no data is lost, no loop spins, and the log names the address."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable

import pytest

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent import ConfluentClients
from streams_py.errors import TaskCorruptedError
from streams_py.ports import GroupMetadata
from streams_py.testing.broker import Broker
from tests.support.confluent.consuming import from_beginning, take

pytestmark = pytest.mark.broker

RECORDS = 3_000


def test_records_flow_on_without_loss_or_swap_when_the_broker_was_stopped(
    kafka_broker: Broker, topic: str, clients: Callable[..., ConfluentClients], caplog: pytest.LogCaptureFixture
) -> None:
    if not kafka_broker.capabilities.node_control:
        pytest.fail("this test needs a broker whose nodes it may stop: unset STREAMS_PY_BOOTSTRAP")
    made = clients({"producer.linger.ms": 5, "admin.default.api.timeout.ms": 30_000})
    producer, consumer, admin = made.producer("t"), made.main_consumer("t"), made.admin()
    partition = TopicPartition(topic, 1)
    producer.track([topic])
    consumer.assign(from_beginning(topic, 0, 1, 2, 3))
    assert admin.committed_offsets("records", [partition]) == {partition: None}
    send = producer.produce
    for number in range(RECORDS):
        send(topic, b"%d" % number, b"k", 1, None, number + 1, None)
    early = take(consumer, RECORDS)
    with caplog.at_level(logging.WARNING):
        kafka_broker.stop_node(1)
        cpu_before_s = time.process_time()
        for number in range(RECORDS, 2 * RECORDS):
            send(topic, b"%d" % number, b"k", 1, None, number + 1, None)
        for _ in range(20):
            assert consumer.poll(1_000, 50) == []
            producer.poll(0)
        cpu_s = time.process_time() - cpu_before_s
        kafka_broker.start_node(1)
    assert producer.flush(60_000) == 0
    producer.check()
    late = take(consumer, RECORDS)
    assert [record.value() for record in early + late] == [b"%d" % number for number in range(2 * RECORDS)]
    assert producer.acked_offsets() == {partition: 2 * RECORDS - 1}
    # The client that was in use before the restart may stay unresponsive, so the second attempt uses a new one.
    assert admin.list_offsets([partition]) == {partition: 2 * RECORDS}
    assert admin.committed_offsets("records", [partition]) == {partition: None}
    about_connections = re.compile(r"adapters\.confluent|\.outages$")
    logged = [record.getMessage() for record in caplog.records if about_connections.search(record.name)]
    assert all(line.startswith(f"cluster {kafka_broker.bootstrap} unreachable for ") for line in logged), logged
    assert len(logged) <= 1
    assert cpu_s < 0.7, f"{cpu_s:.2f} s of CPU in one second of waiting"
    producer.close()
    consumer.close()
    admin.close()


def test_nothing_is_written_behind_a_commit_whose_coordinator_died(
    kafka_broker: Broker, topic: str, clients: Callable[..., ConfluentClients]
) -> None:
    """It may come back without having ended that transaction everywhere: what follows would be aborted together with
    it."""
    made = clients({"processing.guarantee": "exactly_once_v2"})
    member = GroupMetadata("records", -1, "", None)

    def write(value: bytes) -> None:
        producer.produce(topic, value, b"k", 0, None, 1, None)

    producer = made.transactional_producer("t", f"{topic}-id")
    producer.initialize(30_000)
    write(b"committed")
    producer.commit_transaction({}, member, 30_000)
    write(b"afterwards")
    kafka_broker.kill_node(1)
    try:
        producer.flush(30_000)
        with pytest.raises(TaskCorruptedError, match="lost after a commit"):
            producer.check()
    finally:
        kafka_broker.start_node(1)
    producer.reset()
    producer.initialize(60_000)
    write(b"again")
    producer.commit_transaction({}, member, 30_000)
    producer.close()
    consumer = made.main_consumer("t")
    consumer.assign(from_beginning(topic, 0, 1, 2, 3))
    assert [record.value() for record in take(consumer, 2)] == [b"committed", b"again"]
    consumer.close()
