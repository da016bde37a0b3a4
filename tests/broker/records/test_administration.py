"""Administrative requests on a real broker."""

from __future__ import annotations

import os
from collections.abc import Callable

import confluent_kafka
import pytest

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent import ConfluentClients
from streams_py.adapters.confluent.producer import ConfluentProducer
from streams_py.ports import AdminError, AdminErrorKind, PartitionInfo, TopicSpec
from streams_py.testing.broker import Broker
from tests.support.waiting import until

pytestmark = pytest.mark.broker


def kind(answer: object) -> AdminErrorKind:
    assert isinstance(answer, AdminError)
    return answer.kind


def test_topics_are_created_and_described(clients: Callable[..., ConfluentClients]) -> None:
    admin, name = clients().admin(), f"created-{os.getpid()}"
    wanted = [
        TopicSpec(name, 3, config={"cleanup.policy": "compact"}),
        TopicSpec(f"{name}-bad", 1, config={"no.such.config": "1"}),
    ]
    created = admin.create_topics(wanted)
    assert created[name] is None
    assert kind(created[f"{name}-bad"]) is AdminErrorKind.OTHER
    assert kind(admin.create_topics(wanted[:1])[name]) is AdminErrorKind.ALREADY_EXISTS
    first = PartitionInfo(name, 0, 1, (1,), frozenset({"rack-1"}))

    def has_leader() -> bool:  # brokers hear of a new topic a moment after it was created
        found = admin.describe_topics([name])[name]
        return isinstance(found, tuple) and found[0]._replace(topic_id=None) == first

    until(has_leader, "the new topic with its leader")
    described = admin.describe_topics([name, "no-such-topic"])
    infos = described[name]
    assert isinstance(infos, tuple)
    assert [info.partition for info in infos] == [0, 1, 2]
    (topic_id,) = {info.topic_id for info in infos}
    assert topic_id is not None
    assert kind(described["no-such-topic"]) is AdminErrorKind.UNKNOWN_TOPIC
    assert name in admin.describe_topics()
    admin.close()


def test_offsets_are_listed_and_records_deleted(
    topic: str, producer: ConfluentProducer, clients: Callable[..., ConfluentClients]
) -> None:
    for _ in range(10):
        producer.produce(topic, b"v", b"k", 1, None, 1, None)
    producer.flush(10_000)
    admin = clients().admin()
    partition, unknown, stranger = TopicPartition(topic, 1), TopicPartition(topic, 99), TopicPartition("no-such", 0)
    answers = admin.list_offsets([partition, unknown, stranger])
    assert answers[partition] == 10
    assert kind(answers[unknown]) is AdminErrorKind.UNKNOWN_TOPIC
    assert kind(answers[stranger]) is AdminErrorKind.UNKNOWN_TOPIC
    assert kind(admin.list_offsets([stranger])[stranger]) is AdminErrorKind.UNKNOWN_TOPIC
    admin.delete_records({partition: 4})
    until(lambda: admin.list_offsets([partition], earliest=True) == {partition: 4}, "records to be deleted")


def test_committed_offsets_are_read(kafka_broker: Broker, topic: str, clients: Callable[..., ConfluentClients]) -> None:
    settings = {"bootstrap.servers": kafka_broker.bootstrap, "group.id": f"group-{topic}"}
    committer = confluent_kafka.Consumer(settings)
    committer.commit(offsets=[confluent_kafka.TopicPartition(topic, 0, 7)], asynchronous=False)
    committer.close()
    admin = clients().admin()
    both = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    assert admin.committed_offsets(f"group-{topic}", both) == {both[0]: 7, both[1]: None}
    assert admin.committed_offsets("no-such-group", both) == {both[0]: None, both[1]: None}
    admin.close()


def test_unknown_static_member_is_no_error_when_it_is_to_be_removed(
    clients: Callable[..., ConfluentClients], kafka_broker: Broker, topic: str
) -> None:
    settings = {
        "bootstrap.servers": kafka_broker.bootstrap,
        "group.id": f"static-{topic}",
        "group.instance.id": "one",
        "session.timeout.ms": 45_000,
    }
    member = confluent_kafka.Consumer(settings)
    member.subscribe([topic])
    until(lambda: (member.poll(0.05), member.assignment())[1], "the member's assignment")
    admin = clients().admin()
    admin.remove_member(f"static-{topic}", "one", "")
    admin.remove_member(f"static-{topic}", "one", "")  # gone already
    member.close()
    admin.close()
