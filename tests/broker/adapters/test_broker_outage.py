"""Brokers that are unavailable: at the start, for longer than a session, and permanently."""

from __future__ import annotations

import pytest

from streams_py.errors import BrokerUnavailableError
from streams_py.ports import OffsetAndMetadata
from streams_py.system.outages import MemberContact

pytestmark = pytest.mark.broker


def test_membership_waits_with_a_warning_when_no_broker_answers(group, until, caplog):
    away = group.settings()
    away["bootstrap_servers"] = ["127.0.0.1:1"]
    member, thread = group.join(start=False)
    member._settings = away  # brokers that are away from the start
    member._contact = MemberContact(away["bootstrap_servers"], "away")  # see above
    member.start()
    member.subscribe(frozenset({group.topic}))
    until(lambda: "cluster 127.0.0.1:1 unreachable for" in caplog.text, "a warning")
    assert member.group_metadata() is None
    with pytest.raises(BrokerUnavailableError, match="no broker at"):
        member.commit({group.partitions[0]: OffsetAndMetadata(1)}, timeout_ms=100)
    member.check()
    assert thread.calls == []


def test_membership_goes_on_in_the_same_generation_when_the_broker_was_away_longer_than_a_session(group, until):
    member, thread = group.join(session_timeout_ms=3000)
    group.wait_settled(thread)
    before = member.group_metadata()
    late_thread = type(thread)([])
    group.broker.stop_node(1)
    late, _ = group.join(late_thread, start=False, group_id=f"{group.id}-late")
    late.start()
    late.subscribe(frozenset({group.topic}))
    until(lambda: member.group_metadata() is None, "heartbeats are silent for a session")
    assert not member.is_member()
    with pytest.raises(BrokerUnavailableError):
        member.commit({group.partitions[0]: OffsetAndMetadata(1)}, timeout_ms=300)
    member.check()
    group.broker.start_node(1)
    until(lambda: member.group_metadata() is not None, "heartbeats are answered")
    assert member.group_metadata() == before
    until(member.is_member, "the group has confirmed the member")
    member.commit({group.partitions[0]: OffsetAndMetadata(5)}, timeout_ms=5000)
    assert thread.rounds == 1
    until(lambda: late_thread.rounds == 1, "a member that started without a broker joins")


def test_membership_moves_to_the_new_coordinator_when_its_node_is_killed(cluster_group, until):
    group = cluster_group
    member, thread = group.join(session_timeout_ms=10_000)
    group.wait_settled(thread)
    before, node = member.group_metadata(), member._coordinator.coordinator_id  # which broker it is
    number = int(node.removeprefix("coordinator-"))
    group.broker.kill_node(number)
    try:
        until(lambda: member._coordinator.coordinator_id not in (None, node), "another coordinator")  # see above
        member.commit({group.partitions[0]: OffsetAndMetadata(5)}, timeout_ms=15_000)
        assert member.group_metadata() == before
        assert thread.rounds == 1
    finally:
        group.broker.start_node(number)
