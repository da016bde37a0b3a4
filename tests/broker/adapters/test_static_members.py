"""Static members (KIP-345): a membership that survives a restart, and members with the same name."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from streams_protocol.types import TopicPartition
from streams_py.adapters.connection.librdkafka_gaps import kafka_python_connection, remove_static_member
from streams_py.adapters.security.settings import SecuritySettings
from streams_py.errors import StreamsError

pytestmark = pytest.mark.broker


def test_static_member_keeps_generation_and_partitions_when_it_returns_within_its_session(group, until):
    _, other = group.join(name="a", instance_id="one", session_timeout_ms=10_000)
    group.wait_settled(other)
    member, thread = group.join(name="b", instance_id="two", session_timeout_ms=10_000)
    group.wait_settled(other, thread)
    until(lambda: other.rounds == 3, "all rounds")
    before, rounds, owned = member.group_metadata(), other.rounds, thread.owned
    member.leave_and_close(leave_group=False, timeout_ms=3000)
    again, back = group.join(name="b", instance_id="two", session_timeout_ms=10_000)
    until(lambda: back.rounds, "the old place")
    after = again.group_metadata()
    assert back.owned == owned
    assert (after.generation, after.instance_id) == (before.generation, "two")
    assert after.member_id != before.member_id
    assert other.rounds == rounds


def test_first_member_is_fenced_for_good_when_a_second_has_its_instance_id(group, until, problem_of):
    first, thread = group.join(name="a", instance_id="same")
    group.wait_settled(thread)
    second, successor = group.join(name="b", instance_id="same")
    until(lambda: successor.owned, "the successor takes over")
    until(lambda: problem_of(first) is not None, "the first learns it from a heartbeat")
    with pytest.raises(StreamsError, match=r"group\.instance\.id"):
        first.check()
    assert first.group_metadata() is None
    second.check()


def test_static_member_whose_tasks_have_migrated_to_a_namesake_does_not_take_them_back(group, until, problem_of):
    patient = {"instance_id": "same", "session_timeout_ms": 60_000, "heartbeat_interval_ms": 20_000}
    first, thread = group.join(name="a", **patient)
    group.wait_settled(thread)
    second, successor = group.join(name="b", **patient)
    until(lambda: successor.owned, "the successor takes over")
    first.rejoin_as_new_member()  # before a heartbeat reports it
    until(lambda: problem_of(first) is not None, "the first learns it when it joins")
    with pytest.raises(StreamsError, match=r"group\.instance\.id"):
        first.check()
    second.check()
    assert successor.owned
    assert "on_lost" not in successor.names()


def test_static_member_whose_tasks_have_migrated_to_nobody_gets_them_back(group, until):
    member, thread = group.join(instance_id="same")
    group.wait_settled(thread)
    member.rejoin_as_new_member()
    until(lambda: thread.rounds == 2, "its place")
    assert "on_lost" in thread.names()
    group.wait_settled(thread)


def test_static_member_that_leaves_for_good_does_not_remove_the_namesake_that_has_its_place(group, until, problem_of):
    first, thread = group.join(name="a", instance_id="same", session_timeout_ms=60_000)
    group.wait_settled(thread)
    second, successor = group.join(name="b", instance_id="same", session_timeout_ms=60_000)
    until(lambda: successor.owned, "the successor takes over")
    until(lambda: problem_of(first) is not None, "the first learns it")
    connection = kafka_python_connection(group.broker.bootstrap, "admin", SecuritySettings(), embedded=False)
    has_it = second.member_id
    assert first.member_id not in ("", has_it)
    remove_static_member(connection, group.id, "same", first.member_id, timeout_ms=30_000)
    assert members(group) == {has_it}
    remove_static_member(connection, group.id, "same", has_it, timeout_ms=30_000)
    assert has_it not in members(group)


def members(group):
    admin = AdminClient({"bootstrap.servers": group.broker.bootstrap})
    return {member.member_id for member in admin.describe_consumer_groups([group.id])[group.id].result(10).members}


def test_static_leader_watches_its_topics_again_when_it_has_come_back(group, until):
    member, thread = group.join(instance_id="one", session_timeout_ms=10_000)
    group.wait_settled(thread)
    member.leave_and_close(leave_group=False, timeout_ms=3000)
    again, back = group.join(instance_id="one", session_timeout_ms=10_000, metadata_max_age_ms=200)
    until(lambda: back.rounds, "the old place")
    assert "assign" not in back.names(), "the broker keeps the assignment of a leader that is back (KIP-814)"
    assert again.group_metadata().generation == 1
    group.partitions += [TopicPartition(group.topic, i) for i in (6, 7)]
    admin = AdminClient({"bootstrap.servers": group.broker.bootstrap})
    admin.create_partitions([NewPartitions(group.topic, 8)])[group.topic].result(10)
    group.wait_settled(back)
    assert back.names().count("assign") == 1
