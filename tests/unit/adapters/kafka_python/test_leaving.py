"""A member leaves under every id that its group may count, whatever is under way."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from kafka import errors as kafka_errors
from kafka.future import Future
from kafka.protocol.consumer import JoinGroupRequest, LeaveGroupRequest

from streams_py.adapters.kafka_python import leaving
from tests.support.kafka_python.scripted_member import MEMBER_ID_REQUIRED, T0


class Held:
    """Answers to JoinGroup come when the test says so."""

    def __init__(self, member):
        self.answers = []
        self._send = member.manager.send
        member.manager.send = self.send

    def send(self, request, node_id=None, request_timeout_ms=None):
        if not isinstance(request, JoinGroupRequest):
            return self._send(request, node_id, request_timeout_ms)
        self.answers.append((request, Future()))
        return self.answers[-1][1]

    async def answer(self):
        request, answer = self.answers.pop(0)
        self._send(request).add_both(answer.success)


def leave(member, *, timeout_ms=10_000):
    member.coordinator.is_closing = True
    member.run(member.coordinator.leave_async, "closing", timeout_ms)
    member.poll(20)  # requests in flight continue
    return [request.members[0].member_id for request in member.requests if isinstance(request, LeaveGroupRequest)]


def joins(member):
    return [request.member_id for request in member.requests if isinstance(request, JoinGroupRequest)]


def test_member_leaves_under_an_id_that_it_was_given_and_has_not_joined_with(make):
    member = make()
    member.joins.append((MEMBER_ID_REQUIRED, -1, "c-1"))
    inline, data = member.coordinator._inbox.call, Future()  # a slow stream thread

    async def slow_at_the_second_join(function, *arguments):
        return await data if member.requests else await inline(function, *arguments)

    member.coordinator._inbox.call = slow_at_the_second_join  # see above
    assert member.poll(20) is False
    assert leave(member) == ["c-1"]
    data.success(b"user data, too late")
    member.poll(20)
    assert joins(member) == [""], "no join after leaving"


@pytest.mark.parametrize("keeps_its_id", [True, False])
def test_member_whose_generation_was_refused_leaves_under_the_id_that_it_keeps(make, keeps_its_id):
    member = make().joined(T0, member_id="c-1")
    member.coordinator.reset_generation("c-1" if keeps_its_id else "")
    member.coordinator.need_rejoin = lambda: False
    assert leave(member) == (["c-1"] if keeps_its_id else [])


def test_member_waits_for_the_id_that_it_is_going_to_be_given(make):
    member = make()
    held = Held(member)
    assert member.poll(20) is False
    member.joins.append((MEMBER_ID_REQUIRED, -1, "c-1"))
    member.net.call_later(0.05, held.answer)
    assert leave(member) == ["c-1"]
    assert held.answers == [], "no join after leaving"


def test_member_that_is_told_no_id_does_not_wait_long(make, monkeypatch):
    monkeypatch.setattr(leaving, "_ID_WAIT_MS", 20)
    member = make()
    Held(member)
    assert member.poll(20) is False
    assert leave(member) == []


@pytest.mark.parametrize("joining", [True, False])
def test_connection_of_a_join_under_way_is_given_up_with_what_is_not_sent(make, joining):
    member = make().joined(T0)
    if joining:
        held = Held(member)
        member.coordinator.request_rejoin_because("because")
        assert member.poll(20) is False
    steps, unsent = [], [b"JoinGroup"]

    def close():
        steps.append(("closed", list(unsent)))
        if joining:
            held.answers[0][1].failure(kafka_errors.Cancelled("closed"))

    conns = member.manager._conns  # in place of a connection to the coordinator
    conns[member.coordinator.coordinator_id] = SimpleNamespace(
        transport=SimpleNamespace(_write_buffer=unsent), close=close
    )
    try:
        left = leave(member)
    finally:
        del conns[member.coordinator.coordinator_id]
    assert left == ["m"]
    assert steps == ([("closed", [])] if joining else [])


def test_static_member_stays(make):
    member = make().joined(T0)
    member.coordinator.config["group_instance_id"] = "i"
    assert leave(member) == []
