"""A member whose subscription is too large for any broker: the broker fails the SyncGroup of all members."""

from __future__ import annotations

import pytest

from streams_py.adapters.kafka_python.stored_group import StoredGroup

pytestmark = pytest.mark.broker

_LARGE = b"x" * 1_600_000


def test_member_that_is_too_large_stops_alone(group, until, problem_of):
    _, first = group.join(name="a")
    _, second = group.join(name="b")
    group.wait_settled(first, second)
    large, thread = group.join(name="large", start=False)
    thread.user_data = lambda: _LARGE
    large.start()
    large.subscribe(frozenset({group.topic}))
    until(lambda: problem_of(large) is not None, "an error of the large member")
    assert "this member's own subscription has 16000" in str(problem_of(large))
    large.leave_and_close(leave_group=True, timeout_ms=5000)
    group.members.remove(large)
    group.wait_settled(first, second)
    assert [problem_of(member) for member in group.members] == [None, None]


def test_members_wait_for_a_large_one_that_stays_and_name_it(group, until, problem_of, caplog, monkeypatch):
    _, first = group.join(name="a")
    _, second = group.join(name="b")
    group.wait_settled(first, second)
    joining = StoredGroup.joining
    # Only the large member would detect it. Here it considers itself small, as a hostile member does.
    monkeypatch.setattr(StoredGroup, "joining", lambda self, size: joining(self, min(size, 1000)))
    large, thread = group.join(name="large", start=False)
    thread.user_data = lambda: _LARGE
    large.start()
    large.subscribe(frozenset({group.topic}))

    def named() -> list[str]:
        lines = [record.getMessage() for record in caplog.records]
        return [line for line in lines if "member large-consumer-" in line and "has the largest subscription" in line]

    until(lambda: len(named()) >= 2, "the leader names the large member, and tries again")
    assert "joining again" in named()[0]
    assert [problem_of(member) for member in group.members] == [None, None, None]
    rounds = first.rounds, second.rounds
    large.leave_and_close(leave_group=True, timeout_ms=5000)
    group.members.remove(large)
    until(lambda: first.rounds > rounds[0] and second.rounds > rounds[1], "a rebalance without the large member")
    group.wait_settled(first, second)
    assert first.names().count("on_lost") == second.names().count("on_lost") == 0
