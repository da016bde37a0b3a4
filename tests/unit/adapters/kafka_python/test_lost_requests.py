"""A coordinator that has lost a JoinGroup or SyncGroup never answers it: the member asks again (group_requests.py)."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest
from kafka import errors as kafka_errors
from kafka.future import Future
from kafka.protocol.consumer import JoinGroupRequest, SyncGroupRequest

from tests.support.kafka_python.scripted_member import T0, UNKNOWN_MEMBER_ID

SESSION_MS = 50


class Losing:
    """Loses the first requests of a kind, until their connection ends. ``late``: it answers the first one then."""

    def __init__(self, member, kind, times=1, *, late=False):
        self.lost = []
        self.ended = 0
        self._kind, self._times, self._late = kind, times, late
        self._send = member.manager.send
        member.manager.send = self.send
        transport = SimpleNamespace(_write_buffer=[])
        # In place of a connection to the coordinator.
        member.manager._conns = {"coordinator-1": SimpleNamespace(transport=transport, close=self.close)}
        member.coordinator.config["session_timeout_ms"] = SESSION_MS
        member.session._timeout_s = SESSION_MS / 1000  # instead of waiting for seconds

    def send(self, request, node_id=None, request_timeout_ms=None):
        if isinstance(request, self._kind) and len(self.lost) < self._times:
            self.lost.append((request, Future()))
            return self.lost[-1][1]
        return self._send(request, node_id, request_timeout_ms)

    def close(self, error=None):
        assert error is None, "the library would log it as one"
        self.ended += 1
        request, answer = self.lost[-1]
        if answer.is_done:
            return  # at the end of the test
        if self._late:
            self._send(request).add_both(answer.success)
        else:
            answer.failure(kafka_errors.Cancelled("closed"))


@pytest.mark.parametrize("kind", [JoinGroupRequest, SyncGroupRequest])
@pytest.mark.parametrize("times", [1, 3])
def test_request_that_has_waited_for_a_session_is_sent_again_under_the_same_id(make, caplog, kind, times):
    member = make().joined(T0, member_id="c-1")
    losing = Losing(member, kind, times)
    member.will_join(2, T0, member_id="c-1")
    with caplog.at_level(logging.WARNING):
        assert member.rejoin() is True
    assert losing.ended == times
    sent = [request for request in member.requests if isinstance(request, kind)]
    assert [request for request, _ in losing.lost] == [sent[-1]] * times, "the same one, and no other join"
    assert member.calls.count(("JoinGroup", (T0,))) == 1
    assert member.coordinator.membership().member_id == "c-1"
    assert [name for name, _ in member.calls if name.startswith("on_lost")] == []
    said = [record.getMessage() for record in caplog.records if "group_requests" in record.name]
    name = kind.__name__
    warning = f"group g: {name} was not answered within 0.075 s, longer than session.timeout.ms; "
    assert said == times * [warning + "sending it again, since the request may be lost"]


def test_request_that_was_lost_is_given_up_where_it_was_sent_to_also_when_the_coordinator_has_moved(make):
    """An answer to something else has said so meanwhile."""
    member = make().joined(T0, member_id="c-1")
    losing = Losing(member, JoinGroupRequest)
    nodes, send = [], losing.send

    def move(request, node_id=None, request_timeout_ms=None):
        if isinstance(request, JoinGroupRequest):
            nodes.append(node_id)
            member.coordinator.coordinator_id = "coordinator-2"
        return send(request, node_id, request_timeout_ms)

    member.manager.send = move
    member.will_join(2, T0, member_id="c-1")
    assert member.rejoin() is True
    assert losing.ended == 1
    assert nodes == ["coordinator-1", "coordinator-2"]


def test_member_whose_id_was_lost_with_its_join_gets_another_one(make):
    member = make().joined(T0, member_id="c-1")
    losing = Losing(member, JoinGroupRequest)
    member.joins.append((UNKNOWN_MEMBER_ID, -1, "c-1"))
    member.will_join(2, T0, member_id="c-2")
    assert member.rejoin() is True
    assert losing.ended == 1
    assert member.coordinator.membership().member_id == "c-2"


def test_answer_that_comes_at_the_last_moment_counts(make):
    member = make().joined(T0, member_id="c-1")
    losing = Losing(member, JoinGroupRequest, late=True)
    member.will_join(2, T0, member_id="c-1")
    assert member.rejoin() is True
    assert losing.ended == 1
    assert len([request for request in member.requests if isinstance(request, JoinGroupRequest)]) == 2


def test_nothing_is_sent_again_by_who_is_leaving(make):
    member = make().joined(T0, member_id="c-1")
    losing = Losing(member, JoinGroupRequest)
    close = losing.close

    def leave_and_close(error=None):
        member.coordinator.is_closing = True
        close(error)

    member.manager._conns["coordinator-1"].close = leave_and_close  # the fake connection
    member.listener.subscription_user_data = lambda *_: b""
    member.coordinator.request_rejoin_because("because")
    assert member.poll(500) is False
    assert losing.ended == 1
    assert len([request for request in member.requests if isinstance(request, JoinGroupRequest)]) == 1
