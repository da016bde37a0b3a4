"""Group membership on Apache Kafka: hand-over, loss, static members, unavailable brokers."""

from __future__ import annotations

import contextlib
import logging
import threading
import time

import pytest
from kafka.net.compat import KafkaNetClient
from kafka.protocol.admin import DescribeGroupsRequest

from streams_protocol.consumer import decode_subscription
from streams_protocol.types import TopicPartition
from streams_py.errors import BrokerUnavailableError, StreamsError, TaskMigratedError, TopologyError
from streams_py.ports import OffsetAndMetadata
from tests.support.waiting import commit

pytestmark = [pytest.mark.broker, pytest.mark.smoke]


# -- cooperative hand-over -----------------------------------------------------------------------------------------


def test_join_is_stable_after_one_round_when_alone(group, until):
    member, thread = group.join()
    until(lambda: thread.rounds, "the first assignment")
    assert thread.names() == ["assign", "on_assignment", "on_assigned"]
    assert set(thread.owned) == set(group.partitions)
    assert member.group_metadata().generation == 1
    member.check()


def test_hand_over_takes_two_rounds_and_keeps_the_rest_when_a_second_member_joins(group, until):
    first_member, first = group.join(name="a")
    group.wait_settled(first)
    calls_before = len(first.calls)
    second_member, second = group.join(name="b")
    group.wait_settled(first, second)
    until(lambda: first.rounds == 3, "the round after the revocation")
    assert [member.group_metadata().generation for member in (first_member, second_member)] == [3, 3]
    order = [name for name, _ in first.calls[calls_before:] if name != "assign"]
    assert order == [
        "on_revoked", "on_revoked_committed", "on_assignment", "on_assigned",
        "on_assignment", "on_assigned",
    ]  # fmt: skip
    # No partition that stayed was revoked, and the second round added no partition to the first member.
    revoked = dict(first.calls[calls_before:])["on_revoked"]
    assert set(revoked) == set(second.owned)
    assert [added for name, added in first.calls[calls_before:] if name == "on_assigned"] == [(), ()]


def test_hand_over_balances_three_members_and_loses_nothing_when_two_join_at_once(group):
    _, first = group.join(name="a")
    group.wait_settled(first)
    _, second = group.join(name="b")
    _, third = group.join(name="c")
    group.wait_settled(first, second, third)
    assert set(first.owned) | set(second.owned) | set(third.owned) == set(group.partitions)
    for thread in (first, second, third):
        assert "on_lost" not in thread.names()
        assert thread.commit_problems == [None] * len(thread.commit_problems)


def test_rejoin_is_one_round_when_a_member_asks(group, until):
    member, thread = group.join()
    group.wait_settled(thread)
    member.request_rejoin("a test wants it")
    until(lambda: thread.rounds == 2, "the rejoin")
    assert member.group_metadata().generation == 2


def test_rejoin_request_is_not_lost_when_it_comes_during_a_join(group, until, gate):
    member, thread = group.join(start=False)
    thread.before_assign = lambda: gate.wait(10)
    member.start()
    member.subscribe(frozenset({group.topic}))
    until(lambda: thread.joins == 2, "the join with a member id")
    member.request_rejoin("came in the middle")
    gate.set()
    until(lambda: thread.rounds == 2, "a second round")


def test_eager_member_revokes_everything_before_each_join(group, until):
    member, thread = group.join(cooperative=False)
    until(lambda: thread.rounds == 1, "the first round")
    member.request_rejoin("once more")
    until(lambda: thread.rounds == 2, "the second round")
    names = [name for name in thread.names() if name != "assign"]
    assert names[-4:] == ["on_revoked", "on_revoked_committed", "on_assignment", "on_assigned"]
    assert all(not sent.owned for members in thread.seen_members for sent in members.values())


def test_follower_rejoin_leads_to_a_rebalance_even_when_its_user_data_is_the_same(group, until):
    # A broker answers a follower whose bytes are unchanged without a rebalance; the generation in them always changes.
    _, leader = group.join(name="a")
    group.wait_settled(leader)
    member, follower = group.join(name="b")
    follower.user_data = lambda: b"same"
    group.wait_settled(leader, follower)
    until(lambda: leader.rounds == 3, "all rounds")
    generation, rounds = member.group_metadata().generation, leader.rounds
    member.request_rejoin("with the same user data")
    until(lambda: leader.rounds == rounds + 1, "a round for everybody")
    until(lambda: member.group_metadata().generation == generation + 1, "a new generation")


# -- what goes over the wire ---------------------------------------------------------------------------------------


def test_subscription_is_version_3_with_owned_generation_and_rack(group, until):
    member, thread = group.join(client_rack="rack-1")
    group.wait_settled(thread)
    member.request_rejoin("to send what is owned")
    until(lambda: thread.rounds == 2, "the second round")
    data = _metadata_in_the_group(group)
    assert data[:2] == b"\x00\x03"
    sent = decode_subscription(data)
    assert sent.topics == (group.topic,)
    assert sent.owned_partitions == tuple(group.partitions)
    assert (sent.generation_id, sent.rack_id, sent.user_data) == (1, "rack-1", b"\x03")


def _metadata_in_the_group(group) -> bytes:
    """Return the member's bytes as the broker stores them; an admin client would convert them to text."""
    client = KafkaNetClient(bootstrap_servers=group.broker.bootstrap)
    client._net.start()  # no public request describes a classic group
    try:
        client._manager.bootstrap(10_000)  # no public request describes a classic group
        # No public request describes a classic group.
        response = client._manager.run(client._manager.send, DescribeGroupsRequest(groups=[group.id]))
        (found,) = response.groups
        assert (found.group_state, found.protocol_type, found.protocol_data) == ("Stable", "consumer", "stream")
        (member,) = found.members
        return bytes(member.member_metadata)
    finally:
        client.close()


# -- waiting callbacks ---------------------------------------------------------------------------------------------


def test_revocation_may_outlast_the_session_and_is_committed_before_the_partition_moves(group, until, gate):
    first_member, first = group.join(name="a", session_timeout_ms=1500)
    group.wait_settled(first)
    entered = threading.Event()
    first.before_revoked = lambda: (entered.set(), gate.wait(10))
    second_member, second = group.join(name="b")
    assert entered.wait(60)
    until(lambda: second.rounds == 1, "the second member's empty first round")
    hold_until = time.monotonic() + 2.5
    until(lambda: time.monotonic() > hold_until, "longer than a session")
    assert first_member.group_metadata() is not None
    gate.set()
    group.wait_settled(first, second)
    assert "on_lost" not in first.names()
    assert first.commit_problems == [None]
    moved = second_member.committed(second.owned, timeout_ms=5000).result(30)
    assert set(moved.values()) == {OffsetAndMetadata(7, "meta")}


def test_leader_may_assign_for_longer_than_a_session(group, until, gate):
    member, thread = group.join(start=False, session_timeout_ms=1500)
    entered = threading.Event()
    thread.before_assign = lambda: (entered.set(), gate.wait(2.5))
    member.start()
    member.subscribe(frozenset({group.topic}))
    assert entered.wait(60)
    until(lambda: thread.rounds == 1, "the assignment")
    assert member.group_metadata().generation == 1
    assert thread.names().count("assign") == 1


def test_leader_backs_off_and_joins_again_when_assign_raises_retriable(group, until):
    member, thread = group.join(start=False)
    problems = [BrokerUnavailableError("topics are not ready")]

    def fail_once() -> None:
        if problems:
            raise problems.pop()

    thread.before_assign = fail_once
    member.start()
    member.subscribe(frozenset({group.topic}))
    until(lambda: thread.rounds == 1, "an assignment in the end")
    member.check()


def test_check_raises_what_assign_raised_when_it_is_not_retriable(group, until, problem_of):
    member, thread = group.join(start=False)

    def refuse() -> None:
        raise TopologyError("counts differ")

    thread.before_assign = refuse
    member.start()
    member.subscribe(frozenset({group.topic}))
    until(lambda: problem_of(member) is not None, "the failure")
    with pytest.raises(TopologyError, match="counts differ"):
        member.check()
    assert thread.rounds == 0


def test_others_go_on_when_one_member_has_no_usable_assignment(group, until, problem_of):
    _, leader = group.join(name="a")
    group.wait_settled(leader)
    whole = leader.assign

    def forget_the_other(members):
        return {member: sent for member, sent in whole(members).items() if member.startswith("a-")}

    leader.assign = forget_the_other
    victim, _ = group.join(name="b")
    until(lambda: problem_of(victim) is not None, "the forgotten member learns it")
    with pytest.raises(StreamsError, match="sent no assignment to this member"):
        victim.check()
    group.members[0].check()
    assert leader.owned


# -- offsets -------------------------------------------------------------------------------------------------------


def test_commit_and_committed_round_trip_with_metadata(group):
    member, thread = group.join()
    group.wait_settled(thread)
    one, two, *_ = group.partitions
    commit(member, {one: OffsetAndMetadata(3, "AgAA")})
    assert member.committed([one, two], timeout_ms=5000).result(30) == {one: OffsetAndMetadata(3, "AgAA"), two: None}


def test_commit_raises_migrated_when_a_partition_is_not_owned(group):
    member, thread = group.join()
    group.wait_settled(thread)
    with pytest.raises(TaskMigratedError, match="no longer owned"):
        commit(member, {TopicPartition(group.topic, 99): OffsetAndMetadata(1)})


def test_commit_is_refused_at_once_while_the_group_rebalances(group, until, gate):
    member, thread = group.join()
    group.wait_settled(thread)
    thread.before_assign = lambda: gate.wait(60)
    member.request_rejoin("to be in a rebalance")
    until(lambda: thread.joins == 3, "the join")
    started = time.monotonic()
    with pytest.raises(BrokerUnavailableError, match="rebalancing"):
        member.commit({group.partitions[0]: OffsetAndMetadata(1)}, timeout_ms=50_000)
    assert time.monotonic() - started < 25, "it did not wait for its timeout"


# -- leaving, and losing membership --------------------------------------------------------------------------------


def test_close_keeps_the_place_until_the_session_ends_and_calls_no_listener(group, until):
    leaver, gone = group.join(name="a", session_timeout_ms=2000)
    group.wait_settled(gone)
    stayer, left = group.join(name="b")
    group.wait_settled(gone, left)
    until(lambda: left.rounds == 2, "all rounds")
    generation, calls = stayer.group_metadata().generation, len(gone.calls)
    started = time.monotonic()
    leaver.leave_and_close(leave_group=False, timeout_ms=3000)
    group.members.remove(leaver)
    group.wait_settled(left)
    assert time.monotonic() - started > 1.5, "the broker must have waited for the session"
    assert stayer.group_metadata().generation > generation
    assert len(gone.calls) == calls


def test_close_frees_the_place_at_once_when_asked_to_leave(group):
    patient = {"session_timeout_ms": 240_000}  # longer than this test waits, so the end of the session does not help
    leaver, gone = group.join(name="a", **patient)
    group.wait_settled(gone)
    _, left = group.join(name="b", **patient)
    group.wait_settled(gone, left)
    leaver.leave_and_close(leave_group=True, timeout_ms=10_000)
    group.members.remove(leaver)
    group.wait_settled(left)


def test_rejoin_as_new_member_reports_the_old_partitions_as_lost(group, until):
    member, thread = group.join()
    group.wait_settled(thread)
    old = member.group_metadata().member_id
    member.rejoin_as_new_member()
    until(lambda: thread.rounds == 2, "the new place")
    assert member.group_metadata().member_id != old
    assert ("on_lost", tuple(group.partitions)) in thread.calls
    assert "on_revoked" not in thread.names()
    assert all(not sent.owned for sent in thread.seen_members[-1].values())


def test_stuck_stream_thread_gives_up_its_place_and_gets_a_new_one_when_it_wakes(group, until):
    member, thread = group.join(max_poll_interval_ms=1000)
    group.wait_settled(thread)
    member.check()  # the last heartbeat for some time
    assert member.is_member()
    until(lambda: member.group_metadata() is None, "the member leaves")
    until(lambda: "on_stuck" in thread.names(), "the listener is called")
    assert thread.rounds == 1
    with contextlib.suppress(TaskMigratedError):
        member.check()
    assert not member.is_member()  # the heartbeat does not restore the old membership
    until(lambda: member.check() or thread.rounds == 2, "a new place after the next sign of life")
    assert ("on_lost", tuple(group.partitions)) in thread.calls


def test_membership_survives_when_python_code_computes_for_longer_than_a_session(group):
    member, thread = group.join(session_timeout_ms=1500)
    group.wait_settled(thread)
    limit, number = time.monotonic() + 3.0, 0
    while time.monotonic() < limit:
        number += sum(i * i for i in range(200))
    assert number
    assert member.group_metadata().generation == 1
    assert thread.rounds == 1


@pytest.mark.parametrize("leave_group", [False, True])
def test_orderly_close_warns_of_nothing_though_it_cuts_requests_off(group, until, gate, caplog, leave_group):
    _, first = group.join(name="a", session_timeout_ms=30_000)
    group.wait_settled(first)
    entered = threading.Event()
    first.before_revoked = lambda: (entered.set(), gate.wait(60))
    member, thread = group.join(name="b", session_timeout_ms=30_000, heartbeat_interval_ms=1)
    until(lambda: thread.rounds == 1, "the empty first round")
    assert entered.wait(60)
    member.request_rejoin("to have a request with the broker that it does not answer")
    # The broker does not show waiting joins.
    until(lambda: member._coordinator._requests.waits_at is not None, "the join is with the broker")
    caplog.clear()
    member.leave_and_close(leave_group=leave_group, timeout_ms=10_000)
    gate.set()
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
