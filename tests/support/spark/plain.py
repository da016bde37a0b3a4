"""A plain consumer, one message at a time: it shares no code with the readers that are compared with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from confluent_kafka import Consumer, IsolationLevel, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec


class Plain(NamedTuple):
    """A record as a plain consumer returns it."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


def plain_records(bootstrap: str, topic: str, partitions: int, *, committed: bool = True) -> list[Plain]:
    """All records of a topic, by partition and offset."""
    return [
        Plain(message.partition(), message.offset(), message.timestamp()[1], message.key(), message.value())
        for message in plain_messages(bootstrap, topic, partitions, committed=committed)
    ]


def plain_messages(bootstrap: str, topic: str, partitions: int, *, committed: bool = True) -> Iterator[Message]:
    """All records as messages, with headers."""
    level = "read_committed" if committed else "read_uncommitted"
    for partition in range(partitions):
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "plain",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "isolation.level": level,
            }
        )
        consumer.assign([TopicPartition(topic, partition, 0)])
        while True:
            message = consumer.poll(60)
            assert message is not None, f"nothing came of {topic}-{partition}"
            if message.error() is not None:
                if message.error().code() == KafkaError._PARTITION_EOF:
                    break
                assert message.error().retriable(), message.error()
                continue
            yield message
        consumer.close()


def as_plain(row: Any) -> Plain:
    """A row of ``streams-kafka`` in the same form."""
    fields = (row[name] for name in ("partition", "offset", "timestamp_ms"))
    return Plain(*fields, *(None if row[name] is None else bytes(row[name]) for name in ("key", "value")))


def transactional(bootstrap: str, name: str) -> Producer:
    """A producer of transactions, initialised. A transaction may last ten minutes: machines of tests are busy."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "transaction.timeout.ms": 600_000})
    producer.init_transactions(60)
    return producer


def await_decided(bootstrap: str, topic: str, partitions: int) -> None:
    """Wait until no transaction is open. Commit and abort return before the markers are written."""
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def ends(level: IsolationLevel) -> list[int]:
        asked = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in range(partitions)}
        found = admin.list_offsets(asked, isolation_level=level)
        return [found[at].result(60).offset for at in asked]

    while ends(IsolationLevel.READ_COMMITTED) != ends(IsolationLevel.READ_UNCOMMITTED):
        pass
