"""Whether a member is still one: what its heartbeats say, and doubts (KIP-447)."""

from __future__ import annotations

import contextlib
import time

import pytest
from kafka import errors as kafka_errors
from kafka.future import Future
from kafka.protocol.consumer import HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, SyncGroupRequest

from tests.support.kafka_python.scripted_member import ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS, T0, UNKNOWN_MEMBER_ID


def test_membership_is_none_when_heartbeats_are_silent_for_a_session(make):
    member = make().joined(T0)
    assert member.coordinator.membership() is not None
    member.coordinator._joined_at -= 46  # kafka-python reads the clock itself
    member.coordinator.heartbeat.last_receive -= 46
    assert member.coordinator.membership() is None


def test_membership_is_none_when_heartbeats_are_disabled(make):
    member = make().joined(T0)
    member.coordinator._heartbeat_enabled = False  # as after an error of the library
    assert member.coordinator.membership() is None


def test_membership_is_none_when_the_generation_is_lost(make):
    member = make().joined(T0)
    member.coordinator.reset_generation()
    assert member.coordinator.membership() is None


def test_member_is_in_doubt_when_its_last_answered_heartbeat_was_sent_a_session_ago(make):
    member = make().joined(T0)
    coordinator, clock = member.coordinator, Clock(member)
    assert coordinator.is_member()
    clock.advance(45.1)
    assert not coordinator.is_member()
    # An answer that waited in the socket while the process was frozen says nothing about now.
    heartbeat = HeartbeatResponse(version=4, throttle_time_ms=0, error_code=0)
    member.heartbeat_answered(heartbeat, clock.now - 45.05)
    assert not coordinator.is_member()
    member.heartbeat_answered(heartbeat, clock.now)
    assert coordinator.is_member()


def test_member_is_confirmed_by_a_heartbeat_that_says_the_group_is_rebalancing(make):
    member = make().joined(T0)
    clock = Clock(member)
    clock.advance(46)
    rebalancing = HeartbeatResponse(version=4, throttle_time_ms=0, error_code=REBALANCE_IN_PROGRESS)
    with pytest.raises(kafka_errors.RebalanceInProgressError):
        member.heartbeat_answered(rebalancing, clock.now)
    assert member.coordinator.is_member()


class Waiting:
    """A coordinator with which JoinGroup, or SyncGroup, waits. Heartbeats that come meanwhile over another connection
    get the error ``says``, or no answer (None)."""

    def __init__(self, member, kind, says):
        self._kind, self._says = kind, says
        self._send = member.manager.send
        member.manager.send = self.send
        member.client.cluster.broker_metadata = lambda node_id: object()
        member.session._timeout_s = 0.2  # instead of waiting for seconds
        self.asked = []
        self.answer = Future()

    def send(self, request, node_id=None, request_timeout_ms=None):
        if isinstance(request, self._kind):
            return self.answer
        if isinstance(request, HeartbeatRequest):
            self.asked.append((request.member_id, request.generation_id, node_id))
            if self._says is None:
                return Future()
            return Future().success(HeartbeatResponse(version=4, throttle_time_ms=0, error_code=self._says))
        return self._send(request, node_id, request_timeout_ms)


@pytest.mark.parametrize("says", [0, REBALANCE_IN_PROGRESS, UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, None])
@pytest.mark.parametrize("kind", [JoinGroupRequest, SyncGroupRequest])
def test_who_waits_for_the_group_is_a_member_as_long_as_the_group_says_so(make, kind, says):
    """A broker that has died, was frozen or has lost the request does not: others may own the tasks by then."""
    member = make().joined(T0)
    coordinator = member.coordinator
    waiting = Waiting(member, kind, says)
    member.will_join(2, T0)
    coordinator.request_rejoin_because("because")
    assert member.poll(400) is False
    assert coordinator.is_member() is (says in (0, REBALANCE_IN_PROGRESS))
    assert set(waiting.asked) == {("m", 1 if kind is JoinGroupRequest else 2, 1)}
    assert [name for name, _ in member.calls if name != "JoinGroup"] == [], "nothing else comes of it"


def test_who_has_no_generation_has_nothing_to_ask_for(make):
    member = make()
    waiting = Waiting(member, JoinGroupRequest, 0)
    assert member.poll(300) is False
    assert waiting.asked == []


def test_answer_that_the_group_has_given_to_a_frozen_process_says_nothing_about_now(make):
    member = make().joined(T0)
    waiting = Waiting(member, JoinGroupRequest, None)
    first, send = Future(), waiting.send

    def answer_the_first_late(request, **more):
        answer = send(request, **more)
        return first if isinstance(request, HeartbeatRequest) and len(waiting.asked) == 1 else answer

    member.manager.send = answer_the_first_late
    coordinator = member.coordinator
    coordinator.request_rejoin_because("because")
    assert member.poll(400) is False
    assert len(waiting.asked) > 1
    first.success(HeartbeatResponse(version=4, throttle_time_ms=0, error_code=REBALANCE_IN_PROGRESS))
    member.run(member.net.sleep, 0.01)
    assert not coordinator.is_member()


def test_listener_hears_of_a_doubt_before_any_answer_and_of_its_end_when_an_answer_is_new_enough(make):
    member = make().joined(T0)
    coordinator, clock = member.coordinator, Clock(member)
    scheduled = []
    member.net.call_later = lambda delay_s, task: scheduled.append((delay_s, task))
    coordinator.watch_session()
    assert member.listener.doubts == []
    clock.advance(45.1)  # frozen
    ((delay_s, look_again),) = scheduled
    look_again()
    look_again()
    assert member.listener.doubts == [True]
    assert delay_s <= 1
    heartbeat = HeartbeatResponse(version=4, throttle_time_ms=0, error_code=0)
    member.heartbeat_answered(heartbeat, clock.now - 45.05)
    assert member.listener.doubts == [True]
    member.heartbeat_answered(heartbeat, clock.now)
    member.heartbeat_answered(heartbeat, clock.now)
    assert member.listener.doubts == [True, False]


def test_doubt_of_a_member_that_was_dropped_lasts_until_its_tasks_are_lost_and_it_has_joined_again(make):
    member = make().joined(T0)
    doubts, seen = member.listener.doubts, []
    member.listener.on_lost = lambda partitions: seen.append(tuple(doubts))
    member.listener.on_assigned = lambda added: seen.append(tuple(doubts))
    member.coordinator.reset_generation()
    assert doubts == [True]
    member.will_join(2, T0)
    member.poll()
    assert seen == [(True,), (True, False)]


def test_member_that_was_in_doubt_is_one_again_when_it_got_its_assignment(make):
    member = make().joined(T0)
    member.session._confirmed_at_s = -float("inf")  # no heartbeat was answered
    assert not member.coordinator.is_member()
    member.will_join(2, T0)
    member.rejoin()
    assert member.coordinator.is_member()


def test_member_that_leaves_is_none_before_the_broker_has_answered(make):
    member = make().joined(T0)
    seen = []
    send = member.manager.send

    def look(request, **options):
        seen.append(member.coordinator.is_member())
        return send(request, **options)

    member.manager.send = look
    with contextlib.suppress(AssertionError):
        member.run(member.coordinator.maybe_leave_group_async, "tired", 100)
    assert seen == [False]


class Clock:
    """The clock of a member's session."""

    def __init__(self, member):
        self.now = time.monotonic()
        member.session._clock_s = lambda: self.now  # a member reads the clock of the process

    def advance(self, seconds):
        self.now += seconds
