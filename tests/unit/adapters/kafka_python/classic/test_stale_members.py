"""A group with members whose process no longer exists: members that wait for them start their sessions."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from kafka import errors as kafka_errors
from kafka.future import Future
from kafka.protocol.admin import DescribeGroupsRequest
from kafka.protocol.consumer import HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, JoinGroupResponse

from streams_py.adapters.kafka_python.classic.coordinator import PROTOCOL_NAME
from tests.support.kafka_python.scripted_member import ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS, T0, UNKNOWN_MEMBER_ID

COORDINATOR_NOT_AVAILABLE = 15
SESSION_MS = 50


class Haunted:
    """A coordinator whose group counts ``ghosts`` (id -> group.instance.id), of a generation, without a session.

    It answers JoinGroup when all of them are gone, which they are when their session was started, unless they ``stay``.
    ``answers``: the error that every heartbeat gets. ``attempts``: the members that each attempt sent heartbeats for.
    An attempt begins with the description of the group.
    """

    def __init__(self, member, *, generation, ghosts, failures=0, tells=True, stay=False, answers=None):
        self.member = member
        self.tells = tells
        self.generation = generation
        self.ghosts = dict(ghosts)
        self.failures = failures
        self.stay = stay
        self.answers = answers
        self.heartbeats = []
        self.attempts = []
        self.joins = []
        self.nodes = set()
        self._send = member.client._manager.send  # every request passes here
        self._joining = None
        member.client._manager.send = self.send  # see above
        transport = SimpleNamespace(_write_buffer=[])
        # this client has no connection of its own to a broker
        member.client._manager._conns = {"coordinator-1": SimpleNamespace(transport=transport, close=self.close)}
        member.client.cluster.broker_metadata = lambda node_id: object()
        member.coordinator.config["session_timeout_ms"] = SESSION_MS
        member.coordinator._session._timeout_s = SESSION_MS / 1000  # it reads its setting only when it is made

    def send(self, request, node_id=None, request_timeout_ms=None):
        if isinstance(request, JoinGroupRequest) and self.ghosts:
            self.joins.append(request)
            self._joining = Future()
            return self._joining
        if isinstance(request, DescribeGroupsRequest):
            self.nodes.add(node_id)
            self.attempts.append(set())
            if self.failures:
                self.failures -= 1
                return Future().failure(kafka_errors.KafkaConnectionError("cut"))
            counted = {**self.ghosts, "c-1": None} if self.tells else {}
            members = [SimpleNamespace(member_id=name, group_instance_id=one) for name, one in counted.items()]
            group = SimpleNamespace(group_id="g", error_code=0, members=members)
            return Future().success(SimpleNamespace(groups=[group]))
        is_own = getattr(request, "member_id", None) == self.member.coordinator.member_id
        if isinstance(request, HeartbeatRequest) and self._joining is not None and not is_own:
            self.nodes.add(node_id)
            self.attempts[-1].add(request.member_id)
            self.heartbeats.append((request.member_id, request.group_instance_id, request.generation_id))
            error = UNKNOWN_MEMBER_ID
            if request.member_id in self.ghosts:
                error = REBALANCE_IN_PROGRESS if request.generation_id == self.generation else ILLEGAL_GENERATION
            error = self.answers or error
            if error == REBALANCE_IN_PROGRESS and not self.stay:
                del self.ghosts[request.member_id]
            return Future().success(HeartbeatResponse(version=4, throttle_time_ms=0, error_code=error))
        return self._send(request, node_id, request_timeout_ms)

    def close(self, error=None):
        if self._joining is not None and not self._joining.is_done:
            self._joining.failure(kafka_errors.Cancelled("closed"))


@pytest.mark.parametrize("failures", [0, 1])
def test_member_that_waits_for_too_long_starts_the_sessions_of_all_others(make, failures):
    member = make().joined(T0, member_id="c-1")
    group = Haunted(member, generation=1, ghosts={"dead": None, "static": "i"}, failures=failures)
    member.will_join(2, T0, member_id="c-1")
    assert member.rejoin() is True
    assert sorted(group.heartbeats, key=str) == [("dead", None, 1), ("static", "i", 1)], "and not its own"
    assert group.nodes == {1}, "the coordinator's connection is JoinGroup's"


def test_who_has_led_the_group_knows_its_members_also_when_the_group_does_not_say_them(make):
    """A coordinator whose load broke off answers from before its first record."""
    member = make()
    send = member.client._manager.send  # every request passes here

    def lead(request, *arguments, **options):
        answer = send(request, *arguments, **options)
        if isinstance(request, JoinGroupRequest):
            metadata = dict(request.protocols)[PROTOCOL_NAME]
            answer.value.leader, answer.value.skip_assignment = answer.value.member_id, True
            answer.value.members = [
                JoinGroupResponse.JoinGroupResponseMember(name, instance_id, metadata)
                for name, instance_id in (("c-1", None), ("dead", None), ("static", "i"))
            ]
        return answer

    member.client._manager.send = lead  # see above
    member.joined(T0, member_id="c-1")
    member.client._manager.send = send  # see above
    group = Haunted(member, generation=1, ghosts={"dead": None, "static": "i"}, tells=False)
    member.will_join(2, T0, member_id="c-1")
    assert member.rejoin() is True
    assert sorted(group.heartbeats, key=str) == [("dead", None, 1), ("static", "i", 1)]


def test_sessions_are_started_with_the_generation_that_the_group_is_in_which_is_looked_for_once(make):
    """The broker may have lost some: it keeps a generation when it is complete, and may not have loaded all."""
    member = make().joined(T0, member_id="c-1")
    for generation in range(2, 6):
        member.will_join(generation, T0, member_id="c-1")
        assert member.rejoin() is True
    group = Haunted(member, generation=2, ghosts={"dead": None, "gone": None})
    member.coordinator.reset_generation()
    member.will_join(6, T0, member_id="c-1")
    assert member.poll() is True
    (first, second) = dict.fromkeys(name for name, _, _ in group.heartbeats if name != "c-1")
    assert [generation for name, _, generation in group.heartbeats if name == first] == [5, 4, 3, 2]
    assert [generation for name, _, generation in group.heartbeats if name == second] == [2]


@pytest.mark.parametrize("at", [2, 500])
def test_generation_is_looked_for_below_the_last_one_and_below_the_highest(make, at):
    """The generation goes back when the coordinator starts with an empty group, and forward when it loads its log."""
    member = make().joined(T0, member_id="c-1")
    for generation in (501, 3):
        member.will_join(generation, T0, member_id="c-1")
        assert member.rejoin() is True
    group = Haunted(member, generation=at, ghosts={"dead": None})
    member.will_join(502, T0, member_id="c-1")
    assert member.rejoin() is True
    assert group.heartbeats[-1] == ("dead", None, at)


def test_session_of_a_member_is_started_once_by_who_waits(make):
    """Repeated heartbeats from several waiting members would keep a dead member in the group."""
    member = make().joined(T0, member_id="c-1")
    group = Haunted(member, generation=1, ghosts={"dead": None, "slow": None}, stay=True)
    member.coordinator.request_rejoin_because("because")
    assert member.poll(10 * SESSION_MS) is False
    assert len(group.joins) > 3
    assert sorted(group.heartbeats, key=str) == [("dead", None, 1), ("slow", None, 1)]


@pytest.mark.parametrize("error", [ILLEGAL_GENERATION, COORDINATOR_NOT_AVAILABLE])
def test_nobody_else_is_asked_for_when_the_answer_is_not_about_a_member(make, error):
    member = make().joined(T0, member_id="c-1")
    group = Haunted(member, generation=1, ghosts={"dead": None, "slow": None}, answers=error)
    member.coordinator.request_rejoin_because("because")
    while not group.heartbeats:
        assert member.poll(SESSION_MS) is False
    assert member.poll(SESSION_MS) is False
    assert {len(members) for members in group.attempts} <= {0, 1}  # a later attempt may choose the other one


def test_member_that_has_seen_no_generation_asks_for_nothing(make):
    member = make()
    group = Haunted(member, generation=1, ghosts={"dead": None})
    assert member.poll(300) is False
    assert group.heartbeats == []
    assert group.nodes == set()


def test_in_a_large_group_each_member_takes_some(make):
    member = make().joined(T0, member_id="c-1")
    group = Haunted(member, generation=1, ghosts={f"m-{number}": None for number in range(100)}, stay=True)
    member.coordinator.request_rejoin_because("because")
    while not group.heartbeats:
        assert member.poll(SESSION_MS) is False
    looks = len(group.joins)  # or one fewer
    assert 0 < len({name for name, _, _ in group.heartbeats}) <= 16 * looks < 100


def test_nobody_is_asked_for_while_a_join_is_answered_in_time(make):
    member = make().joined(T0, member_id="c-1")
    group = Haunted(member, generation=1, ghosts={})
    member.will_join(2, T0, member_id="c-1")
    assert member.rejoin() is True
    assert group.heartbeats == []
