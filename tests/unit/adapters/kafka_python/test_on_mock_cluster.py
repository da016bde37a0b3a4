"""Membership on librdkafka's mock cluster, as the embedded default uses it: three members share six partitions."""

from __future__ import annotations

import itertools

import pytest

from streams_protocol.types import TopicPartition
from streams_py.adapters.kafka_python.classic.membership import KafkaPythonMembership
from streams_py.adapters.kafka_python.classic.options import MOCK_CLUSTER
from streams_py.adapters.kafka_python.settings import membership_settings
from streams_py.errors import BrokerUnavailableError, TaskMigratedError
from streams_py.ports import MemberAssignment, OffsetAndMetadata
from streams_py.testing.broker import EmbeddedBroker
from tests.support.waiting import until

PARTITIONS = [TopicPartition("input", i) for i in range(6)]


class Thread:
    """Owns what it is assigned; leads by giving partitions in turn and withholding what another still owns."""

    def __init__(self):
        self.owned = ()
        self.joins = 0

    def subscription_user_data(self, topics, member_id, generation):
        self.joins += 1
        return bytes([self.joins % 256])

    def assign(self, members):
        owner = {partition: member for member, sent in members.items() for partition in sent.owned}
        held = {member: [] for member in members}
        for member, partition in zip(itertools.cycle(sorted(members)), PARTITIONS):
            if owner.get(partition, member) == member:
                held[member].append(partition)
        return {member: MemberAssignment(tuple(mine), b"tasks") for member, mine in held.items()}

    def on_assignment(self, partitions, user_data, generation):
        self.owned = partitions

    def on_revoked(self, partitions):
        return {partition: OffsetAndMetadata(7, "m") for partition in partitions}

    def on_revoked_committed(self, error):
        pass  # not committed if the session expired before: the next owner reads the partition again

    def on_doubt(self, in_doubt): ...

    def on_join_waits(self, waited_s): ...

    def on_stuck(self):
        pass

    def on_lost(self, partitions):
        self.owned = ()

    def on_assigned(self, added):
        pass


@pytest.fixture
def broker():
    made = EmbeddedBroker()
    yield made
    made.close()


def test_three_members_share_the_partitions_and_their_commits(broker):
    broker.create_topic("input", 6)
    threads = [Thread() for _ in range(3)]
    members = [
        KafkaPythonMembership(
            membership_settings(
                {"session.timeout.ms": 10_000, "heartbeat.interval.ms": 100},
                bootstrap_servers=broker.bootstrap,
                group_id="g",
                client_id=f"member-{number}",
            ),
            thread,
            check_subscription=bytes,
            check_assignment=bytes,
            rules=MOCK_CLUSTER,
        )
        for number, thread in enumerate(threads)
    ]
    try:
        for member in members:
            member.start()
            member.subscribe(frozenset({"input"}))

        def shared_evenly() -> bool:
            for member in members:
                member.check()
            owned = [thread.owned for thread in threads]
            return [len(held) for held in owned] == [2, 2, 2] and sorted(itertools.chain(*owned)) == PARTITIONS

        def committed_by_one_and_seen_by_another() -> bool:
            """False while the group rebalances, which a busy machine may make it do again."""
            held = threads[0].owned
            if not held:
                return False
            one = held[0]
            try:
                members[0].commit({one: OffsetAndMetadata(3, "AgAA")}, timeout_ms=5000)
                seen = members[1].committed([one], timeout_ms=5000).result(30)
            except (BrokerUnavailableError, TaskMigratedError):
                return False
            return seen == {one: OffsetAndMetadata(3, "AgAA")}  # else the partition was revoked in between

        until(shared_evenly, "two partitions for each")
        until(committed_by_one_and_seen_by_another, "a commit")
    finally:
        for member in members:
            member.leave_and_close(leave_group=False, timeout_ms=3000)
