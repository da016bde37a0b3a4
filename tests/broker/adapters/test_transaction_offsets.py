"""Offsets in a transaction: the offsets that a member of the group reads afterwards, and rejected commits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from kafka import KafkaConsumer
from kafka.structs import TopicPartition as KafkaPartition

from streams_protocol.types import TopicPartition
from streams_py.adapters.confluent.clients import ConfluentClients
from streams_py.config.streams_config import StreamsConfig
from streams_py.errors import TaskCorruptedError, TaskMigratedError
from streams_py.ports import GroupMetadata, OffsetAndMetadata
from streams_py.testing.broker import Broker
from tests.support.broker.groups import FakeThread
from tests.support.broker.groups import Group as MemberGroup
from tests.support.waiting import until

pytestmark = pytest.mark.broker

TEXT = "AgAAAR9x+wTLAAAAAQAAAANlbmQAAAAAAAAABw=="


class Group:
    """A group with one member, and a producer that commits for it."""

    def __init__(self, broker: Broker, topic: str, instance_id: str | None) -> None:
        self.topic = topic
        self.broker = broker
        self.consumer: Any = KafkaConsumer(
            bootstrap_servers=broker.bootstrap.split(","),
            group_id=topic,
            group_instance_id=instance_id,
            enable_auto_commit=False,
        )
        until(
            lambda: self.consumer.partitions_for_topic(topic), "a topic that brokers know"
        )  # otherwise it joins again
        self.consumer.subscribe([topic])
        self._instance_id = instance_id
        until(self._is_member, "a member")
        config = StreamsConfig.of(
            {"application.id": topic, "bootstrap.servers": broker.bootstrap, "processing.guarantee": "exactly_once_v2"}
        )
        self.clients = ConfluentClients(config)
        self.producer = self.clients.transactional_producer("thread", f"{topic}-id")

    def _is_member(self) -> bool:
        self.consumer.poll(timeout_ms=200)
        # kafka-python keeps it to itself.
        return bool(self.consumer.assignment()) and not self.consumer._coordinator.rejoin_needed

    @property
    def member(self) -> GroupMetadata:
        who = self.consumer._coordinator._generation  # see above
        return GroupMetadata(self.topic, who.generation_id, who.member_id, self._instance_id)

    def commit(self, offsets: dict[int, OffsetAndMetadata], **changes: Any) -> None:
        """Commit for the member, with ``changes`` to its identity; retry if the group has a new generation."""
        positions = {TopicPartition(self.topic, number): at for number, at in offsets.items()}
        while True:
            member = self.member
            self.producer.produce(self.topic, b"v", b"k", 0, None, -1, None)
            try:
                self.producer.commit_transaction(positions, member._replace(**changes), 20_000)
            except TaskCorruptedError:
                if self.member == member:
                    raise
                self.producer.reset()
            else:
                return

    def committed(self, number: int) -> Any:
        """Return the committed offsets that members of the group get."""
        consumer: Any = KafkaConsumer(
            bootstrap_servers=self.broker.bootstrap.split(","),
            group_id=self.topic,
            isolation_level="read_committed",  # waits for the end of the transaction
        )
        try:
            return consumer.committed(KafkaPartition(self.topic, number), metadata=True)
        finally:
            consumer.close()

    def close(self) -> None:
        self.producer.close()
        self.consumer.close()
        self.clients.close()


@pytest.fixture
def joined(kafka_broker: Broker) -> Iterator[Callable[..., Group]]:
    made: list[Group] = []

    def make(instance_id: str | None = None) -> Group:
        topic = f"offsets-{uuid4()}"
        kafka_broker.create_topic(topic, 2)
        made.append(Group(kafka_broker, topic, instance_id))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize("instance_id", [None, "static-1"])
def test_text_beside_an_offset_arrives_without_anything_added(joined: Callable[..., Group], instance_id: str) -> None:
    one = joined(instance_id)
    one.commit({0: OffsetAndMetadata(7, TEXT), 1: OffsetAndMetadata(3_000_000_000)})
    assert one.committed(0)[:2] == (7, TEXT)
    assert one.committed(1)[:2] == (3_000_000_000, "")
    one.commit({0: OffsetAndMetadata(8, "größer")})
    assert one.committed(0)[:2] == (8, "größer")


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"member_id": "somebody"}, TaskMigratedError, "lost its place"),
        ({"instance_id": "unknown"}, TaskMigratedError, "lost its place"),
        ({"generation": 99}, TaskCorruptedError, "go back to the last commit"),
    ],
    ids=str,
)
def test_stranger_commits_nothing(
    joined: Callable[..., Group], change: dict[str, Any], error: type[Exception], text: str
) -> None:
    one = joined()
    one.commit({0: OffsetAndMetadata(5)})
    with pytest.raises(error, match=text):
        one.commit({0: OffsetAndMetadata(6)}, **change)
    one.producer.reset()
    assert one.committed(0).offset == 5


def test_more_text_than_the_broker_takes_sends_all_tasks_back_to_the_last_commit(joined: Callable[..., Group]) -> None:
    one = joined()
    with pytest.raises(TaskCorruptedError, match="metadata"):
        one.commit({0: OffsetAndMetadata(5, "x" * 10_000)})
    one.producer.reset()
    assert one.committed(0) is None


def test_offsets_of_a_member_are_taken_throughout_a_rebalance_in_the_generation_that_is_being_formed(
    kafka_broker: Broker, group: MemberGroup, gate: threading.Event
) -> None:
    leader_thread, follower_thread = FakeThread(group.partitions), FakeThread(group.partitions)
    leader, _ = group.join(leader_thread, name="l", session_timeout_ms=60_000)
    group.wait_settled(leader_thread)
    group.join(follower_thread, name="f", session_timeout_ms=60_000)
    group.wait_settled(leader_thread, follower_thread)
    before = leader.group_metadata()
    assert before is not None

    slow_to_join, slow_to_assign, assigning = threading.Event(), gate, threading.Event()

    def wait_with_the_join() -> bytes:
        slow_to_join.wait(60)
        return b"again"

    def wait_with_the_assignment() -> None:
        assigning.set()
        slow_to_assign.wait(60)

    follower_thread.user_data = wait_with_the_join
    leader_thread.before_assign = wait_with_the_assignment
    asked = follower_thread.joins
    config = StreamsConfig.of(
        {
            "application.id": group.id,
            "bootstrap.servers": kafka_broker.bootstrap,
            "processing.guarantee": "exactly_once_v2",
        }
    )
    clients = ConfluentClients(config)
    producer = clients.transactional_producer("thread", f"{group.id}-id")
    try:
        leader.request_rejoin("the broker waits for the other one now")
        until(lambda: follower_thread.joins > asked, "the follower is asked to join again")
        assert leader.forming() == before
        producer.commit_transaction({group.partitions[0]: OffsetAndMetadata(11)}, before, 20_000)

        slow_to_join.set()
        until(assigning.is_set, "everybody has joined, and the leader assigns")
        forming = leader.forming()
        assert forming == before._replace(generation=before.generation + 1)
        assert leader.group_metadata() == before
        producer.commit_transaction({group.partitions[0]: OffsetAndMetadata(12)}, forming, 20_000)
        with pytest.raises(TaskCorruptedError, match="go back to the last commit"):
            producer.commit_transaction({group.partitions[0]: OffsetAndMetadata(13)}, before, 20_000)
        slow_to_assign.set()
        until(lambda: leader.group_metadata() == forming, "the end of the rebalance")
        found = leader.committed([group.partitions[0]], timeout_ms=20_000).result(30)
        assert found[group.partitions[0]].offset == 12  # type: ignore[union-attr]
    finally:
        slow_to_join.set()
        producer.close()
        clients.close()
