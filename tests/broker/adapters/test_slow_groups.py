"""A slow leader, and a member that leaves while it waits for the group."""

from __future__ import annotations

import threading

import pytest

from streams_py.ports import OffsetAndMetadata
from tests.support.broker.groups import FakeThread

pytestmark = pytest.mark.broker


@pytest.mark.parametrize(
    ("settings", "takes_s"),
    [
        pytest.param({"session_timeout_ms": 60_000, "request_timeout_ms": 1500}, 5, id="than a request"),
        pytest.param({"session_timeout_ms": 6_000}, 20, id="than a session", marks=pytest.mark.weekly),
    ],
)
def test_group_settles_in_one_round_when_the_leader_takes_longer(group, settings, takes_s):
    """A follower that stopped waiting and joined again would make the leader start again, forever."""
    leader_thread = FakeThread(group.partitions)
    waited = threading.Event()
    assigned = []

    def take_long():
        assigned.append(1)
        if len(assigned) > 1:  # the follower has also joined
            waited.wait(takes_s)

    leader_thread.before_assign = take_long
    leader, _ = group.join(leader_thread, **settings)
    group.wait_settled(leader_thread)
    before = leader.group_metadata().generation
    _, follower_thread = group.join(name="f", **settings)
    group.wait_settled(leader_thread, follower_thread)
    # One round to join, and one for the partitions that the leader revokes; each of them took longer.
    assert leader.group_metadata().generation <= before + 2
    assert follower_thread.joins <= 3


def takes_its_time(thread, gate):
    """Make the thread delay its answer to a join request until the gate opens; return an event set by the request."""
    asked = threading.Event()

    def hold_the_join():
        asked.set()
        gate.wait(60)
        return b"x"

    thread.user_data = hold_the_join
    return asked


@pytest.fixture
def slow_first(group, gate):
    """Start a member that owns all partitions and joins slowly; return (its thread, an event set by a join request)."""
    thread = FakeThread(group.partitions)
    group.join(thread, session_timeout_ms=120_000)
    group.wait_settled(thread)
    return thread, takes_its_time(thread, gate)


def test_member_leaves_at_once_when_its_own_join_is_still_waiting(group, until, gate, slow_first):
    first_thread, first_is_asked = slow_first
    second, second_thread = group.join(name="s", session_timeout_ms=120_000)
    until(first_is_asked.is_set, "the broker has the join, and waits for the first member")
    second.leave_and_close(leave_group=True, timeout_ms=10_000)
    group.members.remove(second)
    rounds = first_thread.rounds
    gate.set()
    until(
        lambda: first_thread.rounds > rounds,
        "the first one to continue, long before the session of the other one expires",
    )
    assert [len(members) for members in first_thread.seen_members][-1] == 1
    assert second_thread.rounds == 0


def test_group_does_not_wait_for_a_member_that_left_with_an_id_before_it_joined(group, until, gate):
    """The broker counts the member id that it has assigned, and would wait for it for the duration of a session."""
    first, first_thread = group.join(session_timeout_ms=120_000)
    group.wait_settled(first_thread)
    second_thread = FakeThread(group.partitions)
    waits = threading.Event()

    def hold_the_second_join():
        if second_thread.joins == 2:
            waits.set()
            gate.wait(60)
        return b"x"

    second_thread.user_data = hold_the_second_join
    second, _ = group.join(second_thread, name="s", session_timeout_ms=120_000)
    until(waits.is_set, "it has its id, and is going to join with it")
    second.leave_and_close(leave_group=True, timeout_ms=4_000)
    group.members.remove(second)
    rounds = first_thread.rounds
    first.request_rejoin("a round of its own")
    until(lambda: first_thread.rounds > rounds, "no member waits for the one that has left", timeout_s=60)
    assert [len(members) for members in first_thread.seen_members][-1] == 1


def test_member_whose_join_waits_for_longer_than_a_session_stays_one_and_may_commit(group, until, gate):
    """Its thread commits, perhaps for the last time, and the join waits for that."""
    thread = FakeThread(group.partitions)
    first, _ = group.join(thread, session_timeout_ms=3_000)
    group.wait_settled(thread)
    asked = takes_its_time(thread, gate)
    _, second_thread = group.join(name="s", session_timeout_ms=3_000)
    until(asked.is_set, "the first member is to join again")
    threading.Event().wait(6)
    mine = thread.owned
    first.commit({partition: OffsetAndMetadata(11, "") for partition in mine}, timeout_ms=5_000)
    gate.set()
    group.wait_settled(thread, second_thread)
    assert "on_lost" not in thread.names()
    assert {at.offset for at in first.committed(mine, timeout_ms=5_000).result(10).values()} >= {11}


def test_who_waits_for_a_slow_member_longer_than_a_session_stays_a_member_without_a_doubt(group, until, gate):
    """The coordinator confirms it over a second connection, not the one used for JoinGroup."""
    first_thread = FakeThread(group.partitions)
    group.join(first_thread, session_timeout_ms=3_000)
    second, second_thread = group.join(name="s", session_timeout_ms=3_000)
    group.wait_settled(first_thread, second_thread)
    asked = takes_its_time(first_thread, gate)
    second.request_rejoin("because")
    until(asked.is_set, "the second member waits for the first one")
    seen = []
    for _ in range(40):
        threading.Event().wait(0.2)
        seen.append(second.is_member())
    assert all(seen)
    gate.set()
    group.wait_settled(first_thread, second_thread)
    assert second_thread.doubts == []
    assert "on_lost" not in second_thread.names()
