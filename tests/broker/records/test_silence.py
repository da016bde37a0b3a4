"""A log from which nothing more can be delivered does not make a client suspect, however many times it is checked."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent import ConfluentClients, silence
from streams_py.ports import BEGINNING
from streams_py.testing.broker import Broker
from tests.support.waiting import until

pytestmark = pytest.mark.broker


def transactional(broker: Broker, name: str) -> Producer:
    made = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"silence-{os.getpid()}-{name}"})
    made.init_transactions(30)
    return made


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_reader_that_waits_behind_what_nobody_sees_is_not_in_doubt(
    kafka_broker: Broker,
    topic: str,
    clients: Callable[..., ConfluentClients],
    isolation: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    committed, aborted, left_open, deleted = (TopicPartition(topic, number) for number in range(4))
    writer, other = transactional(kafka_broker, f"{isolation}-1"), transactional(kafka_broker, f"{isolation}-2")
    for partitions, end in (((committed, left_open, deleted), "commit"), ((aborted, committed, deleted), "abort")):
        writer.begin_transaction()
        for partition in partitions:
            for _ in range(3):
                writer.produce(*partition[:1], b"value", b"key", partition.partition)
        writer.flush()
        if end == "commit":
            writer.commit_transaction()
        else:
            writer.abort_transaction()
    other.begin_transaction()
    other.produce(topic, b"open", b"key", left_open.partition)
    other.flush()
    admin = clients().admin()
    ends = admin.list_offsets([deleted])
    admin.delete_records({deleted: ends[deleted]})  # type: ignore[dict-item]  # an offset
    until_s = time.monotonic() + 30
    while admin.list_offsets([deleted], earliest=True) != ends:
        assert time.monotonic() < until_s
    monkeypatch.setattr(silence, "_SILENCE_S", 0.3)
    monkeypatch.setattr(silence, "_CONFIRM_S", 0.3)
    reader = clients({"consumer.isolation.level": isolation}).main_consumer("thread-1")
    first, looks = reader._consumer, 0  # it is replaced behind the public methods
    look = reader._check_silence  # to count the looks

    def counted() -> None:
        nonlocal looks
        looks += 1
        look()

    monkeypatch.setattr(reader, "_check_silence", counted)  # see above
    reader.assign(dict.fromkeys((committed, aborted, left_open, deleted), BEGINNING))
    found = 0
    while looks < 4:
        found += len(reader.poll(100, 50))
    assert found == (6 if isolation == "read_committed" else 13)
    assert reader._consumer is first  # see above

    flowing = TopicPartition(f"{topic}-flows", 0)  # and no more so while another partition delivers
    kafka_broker.create_topic(flowing.topic, 1)
    quiet = (committed, aborted, left_open, deleted)
    reader.assign({**dict.fromkeys(quiet), flowing: BEGINNING})
    answered: list[TopicPartition] = []
    in_doubt: list[TopicPartition] = []
    monkeypatch.setattr(reader._stalls, "answered", answered.append)  # a stall cannot be caused
    # A stall cannot be caused.
    monkeypatch.setattr(reader._stalls, "has_more", lambda partition, _: in_doubt.append(partition))
    steady = Producer({"bootstrap.servers": kafka_broker.bootstrap, "linger.ms": 0})

    def looked_at_all() -> bool:
        steady.produce(flowing.topic, b"value")
        steady.flush(10)
        reader.poll(100, 50)
        return all(answered.count(partition) >= 3 for partition in quiet)

    until(looked_at_all, "looks at the quiet partitions")
    assert in_doubt == []
    reader.close()
    admin.close()
    other.abort_transaction()
